"""Conversion of parsed JSON to dataclasses, with checks."""

from __future__ import annotations

import functools
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

MAX_ITEMS: Final = 128
"""Per list: twice the longest one in use."""
MAX_INTEGER: Final = (1 << 63) - 1

M = TypeVar("M")


class ProtocolError(Exception):
    """The peer broke a rule, and the connection must end; or our message cannot be encoded, and is not sent."""


def read(kind: type[M], value: object, path: str) -> M:
    """Return parsed JSON as an instance of the dataclass ``kind``; ``path`` names the value in errors. Raises ProtocolError."""
    found: M = _checked(kind, value, path)
    return found


@functools.cache
def _members(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple((item.name, hints[item.name], item.default is MISSING and item.default_factory is MISSING) for item in fields(kind))


def _checked(kind: Any, value: Any, path: str) -> Any:  # noqa: ANN401  # types are the data here
    """Return ``value`` as an instance of the annotation ``kind``, or raise ProtocolError."""
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _dataclass(kind, value, path)
    if origin is Literal:
        if isinstance(value, str) and value in get_args(kind):
            return value
        raise ProtocolError(f"{path}: expected one of {', '.join(get_args(kind))}")
    if origin is tuple:
        if not isinstance(value, list):
            raise ProtocolError(f"{path}: expected a list")
        if len(value) > MAX_ITEMS:
            raise ProtocolError(f"{path}: more than {MAX_ITEMS} items")
        return tuple(_checked(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is types.UnionType:  # the only unions in messages
        return None if value is None else _checked(get_args(kind)[0], value, path)
    if origin is dict:
        kind = dict
    return _scalar(kind, value, path)


def _dataclass(kind: Any, value: Any, path: str) -> Any:  # noqa: ANN401  # as in _checked
    if not isinstance(value, dict):
        raise ProtocolError(f"{path}: expected an object")
    arguments = {}
    for name, member, required in _members(kind):
        if name in value:
            arguments[name] = _checked(member, value[name], f"{path}.{name}")
        elif required:
            raise ProtocolError(f"{path}.{name}: missing")
    return kind(**arguments)


def _scalar(kind: type, value: Any, path: str) -> Any:  # noqa: ANN401  # as in _checked
    if kind is float and type(value) is int:
        value = _checked(int, value, path) * 1.0
    if type(value) is not kind:  # an exact comparison, because isinstance accepts True as an int
        raise ProtocolError(f"{path}: expected {kind.__name__}")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ProtocolError(f"{path}: too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProtocolError(f"{path}: too large")
    return value
