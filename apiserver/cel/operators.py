"""Arithmetic. Integer overflow is an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.values import (
    INT_MIN,
    CelError,
    Duration,
    Timestamp,
    UInt,
    Value,
    checked_duration,
    checked_int,
    checked_timestamp,
    checked_uint,
    no_such_overload,
)

Operation = Callable[[Frame, Value, Value], Value]


def _text(frame: Frame, left: Value, right: Value) -> Value:
    frame.charge(cost.traversal(len(left) + len(right)) - 1)  # the step itself was charged
    return left + right


def _lists(frame: Frame, left: list[Value], right: list[Value]) -> list[Value]:
    frame.charge((len(left) + len(right)) // 100)  # cel-go does not copy; this bounds many such steps
    return left + right


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    if (left, right) == (INT_MIN, -1):
        raise CelError("integer overflow")
    return int(math.copysign(1, left)) * (abs(left) % abs(right))


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _float(operation: Callable[[float, float], float]) -> Operation:
    return lambda _frame, left, right: operation(left, right)


_ADD: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda _f, a, b: checked_int(a + b),
    (UInt, UInt): lambda _f, a, b: checked_uint(int(a) + int(b)),
    (float, float): lambda _f, a, b: a + b,
    (str, str): _text,
    (bytes, bytes): _text,
    (list, list): _lists,
    (Duration, Duration): lambda _f, a, b: checked_duration(a.nanos + b.nanos),
    (Timestamp, Duration): lambda _f, a, b: checked_timestamp(a.nanos + b.nanos, a.offset),
    (Duration, Timestamp): lambda _f, a, b: checked_timestamp(a.nanos + b.nanos, b.offset),
}
_SUBTRACT: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda _f, a, b: checked_int(a - b),
    (UInt, UInt): lambda _f, a, b: checked_uint(int(a) - int(b)),
    (float, float): lambda _f, a, b: a - b,
    (Duration, Duration): lambda _f, a, b: checked_duration(a.nanos - b.nanos),
    (Timestamp, Duration): lambda _f, a, b: checked_timestamp(a.nanos - b.nanos, a.offset),
    (Timestamp, Timestamp): lambda _f, a, b: checked_duration(a.nanos - b.nanos),
}
_MULTIPLY: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda _f, a, b: checked_int(a * b),
    (UInt, UInt): lambda _f, a, b: checked_uint(int(a) * int(b)),
    (float, float): lambda _f, a, b: a * b,
}
_DIVIDE: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda _f, a, b: checked_int(_quotient(a, b)),
    (UInt, UInt): lambda _f, a, b: UInt(_quotient(int(a), int(b))),
    (float, float): _float(_divide),
}
_MODULO: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda _f, a, b: _remainder(a, b),
    (UInt, UInt): lambda _f, a, b: UInt(_remainder(int(a), int(b))),
}
ARITHMETIC: Final = {"+": _ADD, "-": _SUBTRACT, "*": _MULTIPLY, "/": _DIVIDE, "%": _MODULO}


def negate(value: Value) -> Value:
    """Return ``-value``, or raise CelError."""
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return checked_duration(-value.nanos)
    raise no_such_overload()
