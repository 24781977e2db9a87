"""``string.format``: the clauses of cel-go's strings extension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from apiserver.apis.meta.validation import quote
from apiserver.cel.library.standard import double_text
from apiserver.cel.times import duration_text, timestamp_text
from apiserver.cel.values import BoolKey, CelError, Duration, Timestamp, Type, UInt, Value, from_key, type_name

_PRECISION: Final = 6
_MAX_PRECISION: Final = 1000
_KEYS: Final = frozenset({str, int, UInt, BoolKey})
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def render(text: str, arguments: list[Value]) -> str:
    """Fill in the clauses of the text (``%s``, ``%d``, ``%.2f``, ``%e``, ``%b``, ``%x``, ``%X``, ``%o``), or raise CelError.

    Surplus arguments are ignored.
    """
    made: list[str] = []
    position = used = 0
    while (percent := text.find("%", position)) >= 0:
        made.append(text[position:percent])
        if text[percent + 1 : percent + 2] == "%":
            made.append("%")
            position = percent + 2
            continue
        clause, precision, position = _clause(text, percent + 1)
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        made.append(clause(arguments[used], precision))
        used += 1
    made.append(text[position:])
    return "".join(made)


def _clause(text: str, position: int) -> tuple[Callable[[Value, int], str], int, int]:
    precision = _PRECISION
    if text[position : position + 1] == ".":
        end = position + 1
        while text[end : end + 1].isdigit():
            end += 1
        digits = text[position + 1 : end]
        if not digits or len(digits) > 9 or int(digits) > _MAX_PRECISION:
            raise CelError(f"could not parse formatting clause: invalid precision: {digits[:9]}")
        precision, position = int(digits), end
    letter = text[position : position + 1]
    if not letter:
        raise CelError("unexpected end of string")
    if letter not in _CLAUSES:
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
    return _CLAUSES[letter], precision, position + 1


def _refused(clause: str, wanted: str, value: Value) -> CelError:
    return CelError(f"error during formatting: {clause} clause can only be used on {wanted}, was given {type_name(value)}")


def _string(value: Value, _precision: int) -> str:
    if type(value) is float:
        return double_text(value)
    return _inner(value)


def _inner(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case UInt() | int():
            return str(int(value))
        case float():
            return f"{value:.6f}" if math.isfinite(value) else _special(value)
        case bytes():
            return value.decode(errors="replace")
        case list():
            return f"[{', '.join(_quoted(each) for each in value)}]"
        case dict():
            return _map(value)
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case Type():
            return value.name
        case _:
            pass
    raise _refused("string", "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps", value)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


def _quoted(value: Value) -> str:
    text = _inner(value)
    if type(value) is bytes:
        return f"b{quote(text)}"
    if type(value) is str or (type(value) is float and not math.isfinite(value)):
        return quote(text)
    return text


def _map(value: dict[Value, Value]) -> str:
    for key in value:
        if type(key) not in _KEYS:
            raise CelError(f"error during formatting: no formatting function for map key of type {type_name(key)}")
    pairs = [(_quoted(from_key(key)), _quoted(each)) for key, each in value.items()]
    pairs.sort(key=lambda pair: pair[0].encode())
    return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"


def _decimal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return str(int(value))
    raise _refused("decimal", "integers", value)


def _number(value: Value, clause: str) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    raise _refused(clause, "doubles", value)


def _non_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else ("∞" if number > 0 else "-∞")


def _fixed(value: Value, precision: int) -> str:
    number = _number(value, "fixed-point") or 0.0  # no sign for a negative zero
    return f"{number:,.{precision}f}" if math.isfinite(number) else _non_finite(number)


def _scientific(value: Value, _precision: int) -> str:
    number = _number(value, "scientific")
    if not math.isfinite(number):
        return _non_finite(number)
    mantissa, _, exponent = f"{number:.{_PRECISION}e}".partition("e")  # Go ignores the precision
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(each)] for each in exponent.lstrip("+-").zfill(2))
    return f"{mantissa}×10{'⁻' if exponent.startswith('-') else ''}{raised}"


def _binary(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt, bool):
        return format(int(value), "b")
    raise _refused("binary", "integers and bools", value)


def _octal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return format(int(value), "o")
    raise _refused("octal", "integers", value)


def _hex(value: Value, _precision: int) -> str:
    if type(value) is str:
        return value.encode().hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) in (int, UInt):
        return format(int(value), "x")
    raise _refused("hex", "integers, byte buffers, and strings", value)


def _upper_hex(value: Value, precision: int) -> str:
    return _hex(value, precision).upper()


_CLAUSES: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": _upper_hex,
}
