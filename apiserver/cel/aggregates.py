"""Compile literals of lists, maps and messages."""

from __future__ import annotations

from typing import Final

from apiserver.cel import cost
from apiserver.cel.code import Code, Nodes
from apiserver.cel.frame import Frame
from apiserver.cel.syntax import ListOf, MapOf, MessageOf
from apiserver.cel.values import CelError, Message, Optional, Value, key_of, no_such_overload

_PATCH_FIELDS: Final = frozenset({"op", "path", "from", "value"})


def charge_equality(frame: Frame, left: Value, right: Value) -> None:
    """Charge ``frame`` for a comparison: a tenth of the smaller size, rounded up.

    The values of lists and maps count as toil. Raises CostExceeded, but not for two strings: their cost is checked later.
    """
    if type(left) is str and type(right) is str:
        shorter = min(len(left), len(right))
        frame.cost += (shorter + 9) // 10
        return
    frame.charge(cost.traversal(min(cost.size(left), cost.size(right))))
    if type(left) is type(right) and type(left) in (list, dict):
        frame.toil(cost.nodes(left))


def has_key(container: Value, key: Value) -> bool:
    """Return whether a map has a key (``in``); raises CelError for others than maps."""
    if type(container) is not dict:
        raise no_such_overload()
    try:
        return key_of(key) in container
    except CelError:
        return False


def compile_list(nodes: Nodes, node: ListOf, scope: dict[str, int]) -> Code:
    """Compile ``[a, b]``; a list of constants is built once."""
    codes = [nodes.compile(each.value, scope) for each in node.items]
    runs = [(each.run, item.optional) for each, item in zip(codes, node.items, strict=True)]
    optional = any(item.optional for item in node.items)
    if all(each.constant for each in codes) and not optional:
        fixed = [each.run(Frame({}, 0)) for each in codes]
        return Code(lambda _frame: fixed, 0, constant=True)
    plain = [each.run for each in codes]

    def build(frame: Frame) -> Value:
        return [run(frame) for run in plain]

    def build_optional(frame: Frame) -> Value:
        made: list[Value] = []
        for run, may_lack in runs:
            value = run(frame)
            if not may_lack:
                made.append(value)
            elif _unwrap(value):
                made.append(value.value)
        return made

    return Code(build_optional if optional else build, sum(each.cost for each in codes) + cost.LIST)


def compile_map(nodes: Nodes, node: MapOf, scope: dict[str, int]) -> Code:
    """Compile ``{k: v}``."""
    pairs = [(nodes.compile(item.key, scope), nodes.compile(item.value, scope), item) for item in node.items if item.key is not None]
    runs = [(key.run, value.run, item.optional) for key, value, item in pairs]

    def build(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        for key, value, may_lack in runs:
            name, given = key(frame), value(frame)
            if may_lack:
                if not _unwrap(given):
                    continue
                given = given.value
            made[name if type(name) is float else key_of(name)] = given  # the last repeated key counts, as in cel-go
        return made

    if all(key.constant and value.constant for key, value, _ in pairs) and not any(item.optional for item in node.items):
        try:
            fixed = build(Frame({}, 0))
        except CelError:
            pass
        else:
            return Code(lambda _frame: fixed, 0, constant=True)
    return Code(build, sum(key.cost + value.cost for key, value, _ in pairs) + cost.MAP)


def compile_message(nodes: Nodes, node: MessageOf, scope: dict[str, int]) -> Code:
    """Compile ``Object.spec{...}`` or ``JSONPatch{...}``. Raises CompileError."""
    name = node.name
    if name != "JSONPatch" and name.partition(".")[0] != "Object":
        raise nodes.source.error(node.at, f"undeclared reference to '{name}' (in container '')")
    _check_fields(nodes, node)
    codes = [nodes.compile(item.value, scope) for item in node.items]
    runs = [(item, each.run) for item, each in zip(node.items, codes, strict=True)]

    def build(frame: Frame) -> Value:
        fields: dict[str, Value] = {}
        for item, run in runs:
            value = run(frame)
            if not item.optional:
                fields[item.name] = value
            elif _unwrap(value):
                fields[item.name] = value.value
        if name == "JSONPatch" and not all(type(fields.get(each, "")) is str for each in ("op", "path", "from")):
            raise CelError("op, path and from of a JSONPatch are strings")
        return Message(name, fields)

    return Code(build, sum(each.cost for each in codes) + cost.MESSAGE)


def _check_fields(nodes: Nodes, node: MessageOf) -> None:
    seen: set[str] = set()
    for item in node.items:
        if node.name == "JSONPatch" and item.name not in _PATCH_FIELDS:
            raise nodes.source.error(node.at, f"undefined field '{item.name}'")
        if item.name in seen:
            raise nodes.source.error(node.at, f"duplicate field: {item.name}")
        seen.add(item.name)


def _unwrap(value: Value) -> bool:
    if type(value) is not Optional:
        raise CelError("cannot initialize optional entry from a value that is not optional")
    return value.present
