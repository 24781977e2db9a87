"""Kubernetes' lists, cel-go's lists (version 3) and its sets."""

from __future__ import annotations

from typing import Final

from apiserver.cel import comparing, cost, loops, operators
from apiserver.cel.comparing import equal
from apiserver.cel.frame import Frame
from apiserver.cel.registry import ANY, NOMINAL, Library
from apiserver.cel.values import CelError, Duration, UInt, Value, no_such_overload

LIBRARY: Final = Library()
_member, _function = LIBRARY.member, LIBRARY.function
_ZEROS: Final = {UInt: UInt(0), float: 0.0, Duration: Duration(0)}


@_member("isSorted", list)
def _is_sorted(frame: Frame, values: list[Value]) -> bool:
    frame.charge(cost.deep(values))
    return all(comparing.compare(values[at], values[at + 1]) <= 0 for at in range(len(values) - 1))


@_member("sum", list)
def _sum(frame: Frame, values: list[Value]) -> Value:
    frame.charge(cost.deep(values))
    total = _ZEROS.get(type(values[0]), 0) if values else 0
    for each in values:
        operation = operators.ARITHMETIC["+"].get((type(total), type(each)))
        if operation is None:
            raise no_such_overload()
        total = operation(frame, total, each)
    return total


def _extreme(frame: Frame, values: list[Value], wanted: int, name: str) -> Value:
    frame.charge(cost.deep(values))
    if not values:
        raise CelError(f"{name} called on empty list")
    best = values[0]
    if not comparing.has_order(best):
        raise no_such_overload()
    for each in values[1:]:
        if comparing.compare(each, best) == wanted:
            best = each
    return best


@_member("min", list)
def _min(frame: Frame, values: list[Value]) -> Value:
    return _extreme(frame, values, -1, "min")


@_member("max", list)
def _max(frame: Frame, values: list[Value]) -> Value:
    return _extreme(frame, values, 1, "max")


@_member("indexOf", list, ANY)
def _index_of(frame: Frame, values: list[Value], wanted: Value) -> int:
    frame.charge(cost.deep(values))
    return next((at for at, each in enumerate(values) if equal(each, wanted)), -1)


@_member("lastIndexOf", list, ANY)
def _last_index_of(frame: Frame, values: list[Value], wanted: Value) -> int:
    frame.charge(cost.deep(values))
    return next((at for at in range(len(values) - 1, -1, -1) if equal(values[at], wanted)), -1)


@_member("slice", list, int, int)
def _slice(frame: Frame, values: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    frame.charge(cost.LIST + NOMINAL + end - start)
    return values[start:end]


@_member("flatten", list)
def _flatten(frame: Frame, values: list[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise CelError("level must be non-negative")
    frame.charge(cost.LIST + NOMINAL)
    made: list[Value] = []
    for each in values:
        frame.charge(NOMINAL)
        if type(each) is list and depth > 0:
            made += _flatten(frame, each, depth - 1)
        else:
            made.append(each)
    return made


_member("flatten", list, int)(_flatten)


@_member("sort", list)
def _sort(frame: Frame, values: list[Value]) -> list[Value]:
    return loops.sort(frame, values, values)


@_function("lists.range", int)
def _range(frame: Frame, count: int) -> list[int]:
    frame.charge(cost.LIST + NOMINAL + max(count, 0))
    return list(range(count))


@_member("reverse", list)
def _reverse(frame: Frame, values: list[Value]) -> list[Value]:
    frame.charge(cost.LIST + NOMINAL + len(values))
    return values[::-1]


@_member("distinct", list)
def _distinct(frame: Frame, values: list[Value]) -> list[Value]:
    frame.charge(cost.LIST + NOMINAL + 2 * len(values) ** 2)
    frame.toil(cost.nodes(values) * len(values))
    made: list[Value] = []
    for each in values:
        if not any(_same(each, other) for other in made):
            made.append(each)
    return made


def _same(left: Value, right: Value) -> bool:
    try:
        return equal(left, right)
    except CelError:
        return False


def _charge_sets(frame: Frame, left: list[Value], right: list[Value], factor: int) -> None:
    frame.charge(NOMINAL + factor * len(left) * len(right))
    frame.toil(cost.nodes(left) * len(right))


def _contains(left: list[Value], right: list[Value]) -> bool:
    return all(any(_same(each, other) for other in left) for each in right)


@_function("sets.contains", list, list)
def _sets_contains(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    _charge_sets(frame, left, right, 1)
    return _contains(left, right)


@_function("sets.equivalent", list, list)
def _sets_equivalent(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    _charge_sets(frame, left, right, 2)
    return _contains(left, right) and _contains(right, left)


@_function("sets.intersects", list, list)
def _sets_intersects(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    _charge_sets(frame, left, right, 1)
    return any(_same(each, other) for each in left for other in right)
