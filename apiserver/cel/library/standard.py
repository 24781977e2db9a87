"""The functions of the CEL specification: sizes, conversions, strings, times."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Final

from apiserver.cel import cost, times
from apiserver.cel.frame import Frame
from apiserver.cel.registry import ANY, NOMINAL, Library
from apiserver.cel.values import (
    INT_MAX,
    INT_MIN,
    NANOS,
    UINT_MAX,
    CelError,
    Duration,
    Timestamp,
    Type,
    UInt,
    Value,
    checked_int,
    checked_timestamp,
    checked_uint,
    type_name,
)

LIBRARY: Final = Library()
_function, _member = LIBRARY.function, LIBRARY.member
_EXPONENT_FROM: Final = 6
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def _size(frame: Frame, value: Value) -> int:
    frame.cost += NOMINAL
    return len(value)


_KINDS: Final[tuple[type, ...]] = (str, bytes, list, dict)
for _kind in _KINDS:
    _function("size", _kind)(_size)
    _member("size", _kind)(_size)


@_function("type", ANY)
def _type(frame: Frame, value: Value) -> Type:
    frame.cost += NOMINAL
    return Type(type_name(value))


@_function("dyn", ANY)
def _same(frame: Frame, value: Value) -> Value:
    frame.cost += NOMINAL
    return value


for _name, _kind in (
    *(("int", int), ("uint", UInt), ("double", float), ("string", str), ("bytes", bytes), ("bool", bool)),
    *(("timestamp", Timestamp), ("duration", Duration)),
):
    _function(_name, _kind)(_same)


def double_text(value: float) -> str:
    """Format a double like Go's ``strconv.FormatFloat(value, 'g', -1, 64)``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    shortest = repr(value)
    digits = shortest.partition("e")[0].replace(".", "").replace("-", "").strip("0") or "0"
    power = _power(shortest)
    if -4 <= power < _EXPONENT_FROM:
        return _fixed(digits, power, negative=math.copysign(1, value) < 0)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _power(shortest: str) -> int:
    return Decimal(shortest).adjusted() if Decimal(shortest) else 0


def _fixed(digits: str, power: int, *, negative: bool) -> str:
    if power < 0:
        text = "0." + "0" * (-power - 1) + digits
    elif len(digits) <= power + 1:
        text = digits.ljust(power + 1, "0")
    else:
        text = f"{digits[: power + 1]}.{digits[power + 1 :]}"
    return f"-{text}" if negative else text


@_function("int", float)
def _double_to_int(frame: Frame, value: float) -> int:
    frame.cost += NOMINAL
    if not math.isfinite(value) or not -(2.0**63) < value < 2.0**63:
        raise CelError("integer overflow")
    return int(value)


@_function("int", UInt)
def _uint_to_int(frame: Frame, value: UInt) -> int:
    frame.cost += NOMINAL
    return checked_int(int(value))


@_function("int", str)
def _string_to_int(frame: Frame, text: str) -> int:
    frame.cost += NOMINAL
    number = _integer(text, "ParseInt", signed=True)
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError(f'strconv.ParseInt: parsing "{text[:64]}": value out of range')


@_function("int", Timestamp)
def _timestamp_to_int(frame: Frame, value: Timestamp) -> int:
    frame.cost += NOMINAL
    return value.nanos // NANOS


@_function("int", Duration)
def _duration_to_int(frame: Frame, value: Duration) -> int:
    frame.cost += NOMINAL
    return value.nanos


def _integer(text: str, function: str, *, signed: bool) -> int:
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise CelError(f'strconv.{function}: parsing "{text[:64]}": invalid syntax')
    if len(digits.lstrip("0")) > 20:
        raise CelError(f'strconv.{function}: parsing "{text[:64]}": value out of range')
    return -int(digits) if text[:1] == "-" else int(digits)


@_function("uint", int)
def _int_to_uint(frame: Frame, value: int) -> UInt:
    frame.cost += NOMINAL
    return checked_uint(value)


@_function("uint", float)
def _double_to_uint(frame: Frame, value: float) -> UInt:
    frame.cost += NOMINAL
    if not math.isfinite(value) or not 0 <= value < 2.0**64:
        raise CelError("unsigned integer overflow")
    return UInt(value)


@_function("uint", str)
def _string_to_uint(frame: Frame, text: str) -> UInt:
    frame.cost += NOMINAL
    number = _integer(text, "ParseUint", signed=False)
    if number <= UINT_MAX:
        return UInt(number)
    raise CelError(f'strconv.ParseUint: parsing "{text[:64]}": value out of range')


@_function("double", int)
def _int_to_double(frame: Frame, value: int) -> float:
    frame.cost += NOMINAL
    return float(value)


_function("double", UInt)(_int_to_double)


@_function("double", str)
def _string_to_double(frame: Frame, text: str) -> float:
    frame.cost += NOMINAL
    invalid = CelError(f'strconv.ParseFloat: parsing "{text[:64]}": invalid syntax')
    if not text.isascii() or "_" in text or text != text.strip():
        raise invalid
    try:
        number = float(text) if "x" not in text.lower() else float.fromhex(text)
    except ValueError:
        raise invalid from None
    except OverflowError:
        number = math.inf
    if math.isinf(number) and "inf" not in text.lower():
        raise CelError(f'strconv.ParseFloat: parsing "{text[:64]}": value out of range')
    return number


def _to_string(text_of: object) -> object:
    def convert(frame: Frame, value: Value) -> str:
        frame.cost += NOMINAL
        return text_of(value)  # type: ignore[operator,no-any-return]  # one of the functions below

    return convert


for _kind, _text in (
    (int, str),
    (UInt, lambda value: str(int(value))),
    (float, double_text),
    (bool, lambda value: "true" if value else "false"),
    (Timestamp, times.timestamp_text),
    (Duration, times.duration_text),
):
    _function("string", _kind)(_to_string(_text))  # type: ignore[arg-type]  # it makes a function


@_function("string", bytes)
def _bytes_to_string(frame: Frame, value: bytes) -> str:
    frame.charge(cost.traversal(len(value)))
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


@_function("bytes", str)
def _string_to_bytes(frame: Frame, value: str) -> bytes:
    frame.charge(cost.traversal(len(value)))
    return value.encode()


@_function("bool", str)
def _string_to_bool(frame: Frame, text: str) -> bool:
    frame.cost += NOMINAL
    if text in _BOOLS:
        return _BOOLS[text]
    raise CelError(f'strconv.ParseBool: parsing "{text[:64]}": invalid syntax')


@_function("timestamp", str)
def _string_to_timestamp(frame: Frame, text: str) -> Timestamp:
    frame.cost += NOMINAL
    return times.parse_timestamp(text)


@_function("timestamp", int)
def _int_to_timestamp(frame: Frame, seconds: int) -> Timestamp:
    frame.cost += NOMINAL
    return checked_timestamp(seconds * NANOS)


@_function("duration", str)
def _string_to_duration(frame: Frame, text: str) -> Duration:
    frame.cost += NOMINAL
    return times.parse_duration(text)


@_member("startsWith", str, str)
def _starts_with(frame: Frame, text: str, prefix: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return text.startswith(prefix)


@_member("endsWith", str, str)
def _ends_with(frame: Frame, text: str, suffix: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return text.endswith(suffix)


@_member("contains", str, str)
def _contains(frame: Frame, text: str, part: str) -> bool:
    frame.charge(cost.traversal(len(text)) * cost.traversal(len(part)))
    return part in text


def _year_day(moment: datetime) -> int:
    return moment.timetuple().tm_yday - 1


for _name, _part in (
    ("getFullYear", lambda moment: moment.year),
    ("getMonth", lambda moment: moment.month - 1),
    ("getDate", lambda moment: moment.day),
    ("getDayOfMonth", lambda moment: moment.day - 1),
    ("getDayOfWeek", lambda moment: moment.isoweekday() % 7),
    ("getDayOfYear", _year_day),
    ("getHours", lambda moment: moment.hour),
    ("getMinutes", lambda moment: moment.minute),
    ("getSeconds", lambda moment: moment.second),
):

    def _accessor(part: object) -> object:
        def read(frame: Frame, value: Timestamp, zone: str = "UTC") -> int:
            frame.cost += NOMINAL
            return part(times.local(value, zone))  # type: ignore[operator,no-any-return]  # one of the functions above

        return read

    _member(_name, Timestamp)(_accessor(_part))  # type: ignore[arg-type]  # it makes a function
    _member(_name, Timestamp, str)(_accessor(_part))  # type: ignore[arg-type]  # it makes a function


@_member("getMilliseconds", Timestamp)
def _milliseconds(frame: Frame, value: Timestamp, zone: str = "UTC") -> int:
    frame.cost += NOMINAL
    times.local(value, zone)
    return value.nanos % NANOS // 10**6


_member("getMilliseconds", Timestamp, str)(_milliseconds)

for _name, _unit in (("getHours", 3600 * NANOS), ("getMinutes", 60 * NANOS), ("getSeconds", NANOS), ("getMilliseconds", 10**6)):

    def _whole(unit: int) -> object:
        def read(frame: Frame, value: Duration) -> int:
            frame.cost += NOMINAL
            return abs(value.nanos) // unit * (-1 if value.nanos < 0 else 1)

        return read

    _member(_name, Duration)(_whole(_unit))  # type: ignore[arg-type]  # it makes a function
