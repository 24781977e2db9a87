"""Comprehensions. Each iteration is charged first, which ends loops at the limit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key
from itertools import islice
from typing import Final

from apiserver.cel import comparing, cost
from apiserver.cel.code import Code, Nodes, Run
from apiserver.cel.frame import Frame
from apiserver.cel.syntax import Bind, Comprehension, SortBy
from apiserver.cel.values import NONE, CelError, Optional, Value, from_key, key_of, no_such_overload

_ALL_TURN: Final = 3
_EXISTS_TURN: Final = 4
_MAP_TURN: Final = 12


def compile_loop(nodes: Nodes, node: Comprehension, scope: dict[str, int]) -> Code:
    """Compile a looping macro (``all``, ``map`` …); ``scope`` maps outer loops' variables to slots."""
    over = nodes.compile(node.over, scope)
    slots = tuple(nodes.slot() for _ in node.variables)
    inner = {**scope, **dict(zip(node.variables, slots, strict=True))}
    step = nodes.compile(node.step, inner)
    where = nodes.compile(node.where, inner) if node.where is not None else None
    walk = _walk(over.run, slots)
    if node.loop in ("all", "exists"):
        return Code(_quantifier(walk, step, deciding=node.loop == "exists"), over.cost + 1)
    if node.loop == "exists_one":
        return Code(_exists_one(walk, step), over.cost + 2)
    if node.loop == "filter":
        return Code(_filter(walk, step, slots[0]), over.cost + 1)
    if node.loop in ("map", "transformList"):
        return Code(_map(walk, step, where), over.cost + 1)
    return Code(_to_map(walk, step, where, slots[0], entries=node.loop == "transformMapEntry"), over.cost + 1)


def _walk(over: Run, slots: tuple[int, ...]) -> Run:
    if len(slots) == 1:
        slot = slots[0]

        def single(frame: Frame) -> Iterator[None]:
            container = over(frame)
            values = frame.slots
            if type(container) is list:
                for each in container:
                    values[slot] = each
                    yield
            elif type(container) is dict:
                for key in container:
                    values[slot] = from_key(key)
                    yield
            else:
                raise no_such_overload()

        return single
    first, second = slots

    def double(frame: Frame) -> Iterator[None]:
        container = over(frame)
        values = frame.slots
        if type(container) is list:
            for values[first], values[second] in enumerate(container):
                yield
        elif type(container) is dict:
            for key, each in container.items():
                values[first], values[second] = from_key(key), each
                yield
        else:
            raise no_such_overload()

    return double


def _quantifier(walk: Run, step: Code, *, deciding: bool) -> Run:
    """Compile ``exists`` (``deciding`` True) or ``all``: an element with the deciding value overrides errors."""
    test, turn = step.run, step.cost + (_EXISTS_TURN if deciding else _ALL_TURN)
    more = turn - step.cost - 1  # cost of detecting the decision before the last element

    def run(frame: Frame) -> Value:
        failed: CelError | None = None
        turns = walk(frame)
        for _ in turns:
            frame.charge(turn)
            try:
                value = test(frame)
            except CelError as error:
                failed = error
                continue
            if value is deciding:
                frame.cost += sum(more for _ in islice(turns, 1))
                return deciding
            if type(value) is not bool:
                failed = no_such_overload()
        if failed is not None:
            raise failed
        return not deciding

    return run


def _truth(value: Value) -> bool:
    if type(value) is not bool:
        raise no_such_overload()
    return value


def _exists_one(walk: Run, step: Code) -> Run:
    test, turn = step.run, step.cost

    def run(frame: Frame) -> Value:
        count = 0
        for _ in walk(frame):
            frame.charge(turn)
            if _truth(test(frame)):
                frame.cost += 2
                count += 1
        return count == 1

    return run


def _filter(walk: Run, step: Code, slot: int) -> Run:
    test, turn = step.run, step.cost

    def run(frame: Frame) -> Value:
        kept: list[Value] = []
        for _ in walk(frame):
            frame.charge(turn)
            value = frame.slots[slot]
            if _truth(test(frame)):
                frame.cost += _MAP_TURN + 1
                kept.append(value)
        return kept

    return run


def _map(walk: Run, step: Code, where: Code | None) -> Run:
    transform, turn = step.run, step.cost + _MAP_TURN

    def run(frame: Frame) -> Value:
        made: list[Value] = []
        for _ in walk(frame):
            if where is not None:
                frame.charge(where.cost)
                if not _truth(where.run(frame)):
                    continue
            frame.charge(turn)
            made.append(transform(frame))
        return made

    return run


def _to_map(walk: Run, step: Code, where: Code | None, slot: int, *, entries: bool) -> Run:
    transform, turn = step.run, step.cost + (2 if entries else 3)

    def run(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        for _ in walk(frame):
            key = frame.slots[slot]
            if where is not None:
                frame.charge(where.cost)
                if not _truth(where.run(frame)):
                    continue
            frame.charge(turn)
            value = transform(frame)
            if entries:
                _join(made, value)
            else:
                made[key_of(key)] = value
        return made

    return run


def _join(made: dict[Value, Value], entry: Value) -> None:
    if type(entry) is not dict:
        raise no_such_overload()
    for key, value in entry.items():
        if key in made:
            raise CelError(f"insert failed: key {from_key(key)} already exists")
        made[key] = value


def compile_bind(nodes: Nodes, node: Bind, scope: dict[str, int]) -> Code:
    """Compile ``optMap`` and ``optFlatMap``."""
    over = nodes.compile(node.over, scope)
    slot = nodes.slot()
    step = nodes.compile(node.step, {**scope, node.variable: slot})
    value, transform, again, wrap = over.run, step.run, over.cost + step.cost + (3 if node.wrap else 2), node.wrap

    def run(frame: Frame) -> Value:
        found = value(frame)
        if type(found) is not Optional:
            raise no_such_overload()
        if not found.present:
            frame.cost += 1
            return NONE
        frame.cost += again
        frame.slots[slot] = found.value
        result = transform(frame)
        return Optional(result) if wrap else result

    return Code(run, over.cost + 1)


def compile_sort_by(nodes: Nodes, node: SortBy, scope: dict[str, int]) -> Code:
    """Compile ``sortBy``."""
    over = nodes.compile(node.over, scope)
    slot = nodes.slot()
    step = nodes.compile(node.key, {**scope, node.variable: slot})
    value, key, turn = over.run, step.run, step.cost + _MAP_TURN

    def run(frame: Frame) -> Value:
        elements = value(frame)
        if type(elements) is not list:
            raise no_such_overload()
        keys: list[Value] = []
        for each in elements:
            frame.charge(turn)
            frame.slots[slot] = each
            keys.append(key(frame))
        return sort(frame, elements, keys)

    return Code(run, over.cost + 3)


def sort(frame: Frame, elements: list[Value], keys: list[Value]) -> list[Value]:
    """Return the elements sorted by ``keys``, one per element; raises CelError unless these have one ordered type; CostExceeded."""
    frame.charge(cost.LIST + 1 + 2 * len(keys) ** 2)
    if not keys:
        return elements
    if not comparing.has_order(keys[0]):
        raise CelError("list elements must be comparable")
    if any(type(each) is not type(keys[0]) for each in keys):
        raise CelError("list elements must have the same type")
    order = cmp_to_key(comparing.compare)
    return [elements[position] for position in sorted(range(len(keys)), key=lambda each: order(keys[each]))]
