"""Equality and order of values: numbers by amount; other types differ."""

from __future__ import annotations

from typing import Final

from apiserver.cel.values import CelError, Duration, Message, Opaque, Optional, Timestamp, Type, UInt, Value, no_such_overload

_NUMBERS: Final = frozenset({int, UInt, float})
_PLAIN: Final = frozenset({str, bytes, bool, type(None), Duration, Timestamp, Type})
_ORDERED: Final = frozenset({str, bytes, bool, Duration, Timestamp})


def equal(left: Value, right: Value) -> bool:
    """Return CEL's ``left == right``: 1 equals 1.0, other types differ.

    Raises CelError if ``left`` is a library's value and ``right`` has another type.
    """
    kind, other = type(left), type(right)
    if kind is other and kind in _PLAIN:
        return bool(left == right)
    if kind in _NUMBERS and other in _NUMBERS:
        if (kind is float) is (other is float):
            return bool(left == right)
        return float(left) == float(right)  # as in cel-go: with a double's precision
    if kind is list and other is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if kind is dict and other is dict:
        return len(left) == len(right) and all(key in right and equal(each, right[key]) for key, each in left.items())
    if kind is Optional and other is Optional:
        return left.present == right.present and (not left.present or equal(left.value, right.value))
    if kind is Message and other is Message:
        return left.type_name == right.type_name and equal(left.fields, right.fields)
    if isinstance(left, Opaque):
        if kind is not other:
            raise no_such_overload()
        return left.equals(right)
    return False


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for less, equal or greater; raises CelError for types without an order, and for NaN."""
    kind, other = type(left), type(right)
    if not ((kind is other and kind in _ORDERED) or (kind in _NUMBERS and other in _NUMBERS)):
        raise no_such_overload()
    if kind is float or other is float:
        left, right = float(left), float(right)
        if left != left or right != right:  # not-a-number differs from itself
            raise CelError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def has_order(value: Value) -> bool:
    """Return whether ``<`` can compare values of this value's type."""
    return type(value) in _ORDERED or type(value) in _NUMBERS


def contains(container: Value, value: Value) -> bool:
    """Return whether a list has an equal element. Raises CelError as :func:`equal`."""
    kind = type(value)
    if kind is str:
        return value in container  # Python's equality of strings is CEL's
    return any(equal(value, each) for each in container)
