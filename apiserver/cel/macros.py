"""Macros: calls with names and expressions instead of values.

As in Kubernetes: the standard macros, optionals', ``sortBy``, and comprehensions with two variables.
"""

from __future__ import annotations

from typing import Final, cast

from apiserver.cel.syntax import Bind, Call, Comprehension, Ident, Loop, Node, Select, SortBy, Source

_ONE_VARIABLE: Final = {("all", 2), ("exists", 2), ("exists_one", 2), ("existsOne", 2), ("map", 2), ("map", 3), ("filter", 2)}
_TWO_VARIABLES: Final = {
    *(("all", 3), ("exists", 3), ("existsOne", 3), ("exists_one", 3)),
    *((name, count) for name in ("transformList", "transformMap", "transformMapEntry") for count in (3, 4)),
}


def expand(source: Source, call: Call) -> Node:
    """Expand a macro; return other calls unchanged. Raises CompileError for wrong arguments, such as a variable that is not a name."""
    shape = (call.function, len(call.args))
    if call.target is None:
        return _has(source, call) if shape == ("has", 1) else call
    if shape in _ONE_VARIABLE:
        return _loop(source, call, call.target, 1)
    if shape in _TWO_VARIABLES:
        return _loop(source, call, call.target, 2)
    if shape in (("optMap", 2), ("optFlatMap", 2)):
        name = _variable(source, call.args[0], f"{call.function}() variable name must be a simple identifier")
        return Bind(call.at, call.target, name, call.args[1], wrap=call.function == "optMap")
    if shape == ("sortBy", 2):
        return SortBy(call.at, call.target, _variable(source, call.args[0], "argument must be a simple name"), call.args[1])
    return call


def _has(source: Source, call: Call) -> Node:
    chosen = call.args[0]
    if not isinstance(chosen, Select) or chosen.test:
        raise source.error(call.at, "invalid argument to has() macro")
    return Select(chosen.at, chosen.operand, chosen.field, chosen.optional, test=True)


def _loop(source: Source, call: Call, over: Node, count: int) -> Node:
    names = tuple(_variable(source, each, "argument must be a simple name") for each in call.args[:count])
    if len(set(names)) < len(names):
        raise source.error(call.at, f"duplicate variable name: {names[0]}")
    rest = call.args[count:]
    loop = cast("Loop", "exists_one" if call.function == "existsOne" else call.function)
    return Comprehension(call.at, loop, over, names, rest[-1], rest[0] if len(rest) == 2 else None)


def _variable(source: Source, node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise source.error(node.at, message)
    return node.name
