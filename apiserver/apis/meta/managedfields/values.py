"""Kinds of values under a type that allows several, and Go's messages for mismatches."""

from __future__ import annotations

from typing import Any, Final, Literal

from apiserver.apis.meta.managedfields.elements import go_float, go_quote
from apiserver.apis.meta.managedfields.schema import Atom, Mismatch

Kind = Literal["map", "scalar", "list"]

ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda _: "ABSENT", "__bool__": lambda _: False})()
"""No value, unlike null."""


def kind_of(atom: Atom, value: Any) -> Kind:  # noqa: ANN401 - any JSON value
    """Return a value's own kind (``map`` …) if the type allows it, else the first that it allows: map, scalar, list."""
    found = own_kind(atom, value)
    if found is not None:
        return found
    if atom.map is not None:
        return "map"
    return "scalar" if atom.scalar is not None else "list"


def own_kind(atom: Atom, value: Any) -> Kind | None:  # noqa: ANN401 - any JSON value
    """Return a value's own kind (``map`` …); None if null or not allowed by the type."""
    if isinstance(value, dict):
        return "map" if atom.map is not None else None
    if isinstance(value, list):
        return "list" if atom.list is not None else None
    return None if value is None or value is ABSENT or atom.scalar is None else "scalar"


def misfit(atom: Atom, value: Any) -> Mismatch:  # noqa: ANN401 - any JSON value
    """Return the Mismatch for a value of a kind that its type does not allow."""
    if atom.map is not None:
        return Mismatch(f"expected map, got {printed(value)}")
    if atom.scalar == "numeric":
        return Mismatch(f"expected numeric (int or float), got {_type_of(value)}")
    if atom.scalar == "string":
        return Mismatch(f"expected string, got &value.valueUnstructured{{Value:{_in_go_syntax(value)}}}")
    if atom.scalar == "boolean":
        return Mismatch(f"expected boolean, got {printed(value)}")
    if atom.scalar == "untyped":
        return Mismatch(f"expected any scalar, got {printed(value)}")
    return Mismatch(f"expected list, got {printed(value)}")


def printed(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as Go's ``%v`` prints structured-merge-diff's wrapper of it."""
    return f"&{{{_plain(value)}}}"


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_plain, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return "<nil>" if value is None else str(value)


def _in_go_syntax(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return "map[string]interface {}{" + ", ".join(f"{go_quote(key)}:{_in_go_syntax(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_in_go_syntax, value)) + "}"
    if isinstance(value, str):
        return go_quote(value)
    return "interface {}(nil)" if value is None else _plain(value)


def _type_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    names = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64", float: "float64"}
    return names.get(type(value), "<nil>")
