"""Select fields, keys and elements, also of optionals."""

from __future__ import annotations

from apiserver.cel.values import (
    NONE,
    CelError,
    Duration,
    Lazy,
    Message,
    Optional,
    Timestamp,
    UInt,
    Value,
    key_of,
    no_such_overload,
    type_name,
)

_FIELDLESS = frozenset({type(None), bool, int, UInt, float, str, bytes, Duration, Timestamp})
"""For these, ``has`` is not an error."""


def field(value: Value, name: str) -> Value:
    """Return ``value.name``; for an optional ``value``, an optional. Raises CelError."""
    kind = type(value)
    if kind is dict:
        try:
            return value[name]
        except KeyError:
            raise CelError(f"no such key: {name}") from None
    if kind is Message:
        if name in value.fields:
            return value.fields[name]
        raise CelError(f"no such key: {name}")
    if kind is Optional:
        return optional_field(value, name)
    if isinstance(value, Lazy):
        return value.get(name)
    raise no_such_overload()


def optional_field(value: Value, name: str) -> Optional:
    """Return the optional ``value.?name``, empty without that field. Raises CelError for values that :func:`has` refuses."""
    if not has(value, name):
        return NONE
    return Optional(field(value.value if type(value) is Optional else value, name))


def has(value: Value, name: str) -> bool:
    """Return whether the field exists (``has(value.name)``); False for plain values. Raises CelError for others, such as lists."""
    if type(value) is Optional:
        if not value.present:
            return False
        value = value.value
    if type(value) is dict:
        return name in value
    if type(value) is Message:
        return name in value.fields
    if isinstance(value, Lazy):
        return value.has(name)
    if type(value) in _FIELDLESS:
        return False
    raise no_such_overload()


def index(value: Value, key: Value) -> Value:
    """Return ``value[key]``; for an optional ``value``, an optional. Raises CelError."""
    kind = type(value)
    if kind is dict:
        wanted = _wanted(key)
        try:
            return value[wanted]
        except KeyError:
            raise CelError(f"no such key: {key}") from None
    if kind is list:
        position = _position(key)
        if 0 <= position < len(value):
            return value[position]
        raise CelError(f"index out of bounds: {position}")
    if kind is Optional:
        return optional_index(value, key)
    if kind is Message and type(key) is str:
        return field(value, key)
    raise no_such_overload()


def optional_index(value: Value, key: Value) -> Optional:
    """Return the optional ``value[?key]``, or raise CelError."""
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.value
    if type(value) is dict:
        wanted = _wanted(key)
        return Optional(value[wanted]) if wanted in value else NONE
    if type(value) is list:
        position = _position(key)
        return Optional(value[position]) if 0 <= position < len(value) else NONE
    if type(value) in _FIELDLESS:
        return NONE
    raise no_such_overload()


def _wanted(key: Value) -> Value:
    if key is None or type(key) is Optional:
        raise CelError(f"invalid qualifier type: {'<nil>' if key is None else '*types.Optional'}")
    return key_of(key)


def _position(key: Value) -> int:
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")
