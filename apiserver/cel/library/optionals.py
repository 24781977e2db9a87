"""Optional values."""

from __future__ import annotations

from typing import Final

from apiserver.cel.frame import Frame
from apiserver.cel.registry import ANY, NOMINAL, Library
from apiserver.cel.values import NONE, TIMESTAMP_MIN, CelError, Duration, Message, Optional, Timestamp, UInt, Value

LIBRARY: Final = Library()
_member, _function = LIBRARY.member, LIBRARY.function
_PLAIN: Final = frozenset({type(None), bool, int, UInt, float, str, bytes, list, dict})


@_function("optional.of", ANY)
def _of(frame: Frame, value: Value) -> Optional:
    frame.cost += NOMINAL
    return Optional(value)


@_function("optional.none")
def _none(frame: Frame) -> Optional:
    frame.cost += NOMINAL
    return NONE


@_function("optional.ofNonZeroValue", ANY)
def _of_non_zero(frame: Frame, value: Value) -> Optional:
    frame.cost += NOMINAL
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Value) -> bool:
    if isinstance(value, Duration):
        return value.nanos == 0
    if isinstance(value, Timestamp):
        return value.nanos == TIMESTAMP_MIN
    if isinstance(value, Message):
        return not value.fields
    return type(value) in _PLAIN and not value


@_member("hasValue", Optional)
def _has_value(frame: Frame, value: Optional) -> bool:
    frame.cost += NOMINAL
    return value.present


@_member("value", Optional)
def _value(frame: Frame, value: Optional) -> Value:
    frame.cost += NOMINAL
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _unwrap(frame: Frame, values: list[Value]) -> list[Value]:
    frame.cost += NOMINAL
    for each in values:
        if type(each) is not Optional:
            raise CelError(f"value {each} is not optional")
    return [each.value for each in values if each.present]


_function("optional.unwrap", list)(_unwrap)
_member("unwrapOpt", list)(_unwrap)


@_member("first", list)
def _first(frame: Frame, values: list[Value]) -> Optional:
    frame.cost += NOMINAL
    return Optional(values[0]) if values else NONE


@_member("last", list)
def _last(frame: Frame, values: list[Value]) -> Optional:
    frame.cost += NOMINAL
    return Optional(values[-1]) if values else NONE
