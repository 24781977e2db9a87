"""Interpret YAML scalars as kube-apiserver's Go parser does: YAML 1.1 with exceptions. Pure.

``tests/reference_library/test_yaml.py`` compares both (``sigs.k8s.io/yaml``) over a generated table.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from apiserver.apis.meta.errors import BadRequest

Scalar = str | int | float | bool | None

TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = frozenset({"str", "bool", "int", "float", "null", "timestamp"})
"""The text must match these; other tags, except binary, mean text."""
_WORDS: Final = MappingProxyType(
    {
        **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
        **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
        **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
        **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
        **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
        **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    }
)
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_SIGNED_BITS: Final = re.compile(r"0b([-+][01]+)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?:[Tt]|[ ]+)([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
_BASES: Final = (16, 2, 8, 10)
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
"""Half with a sign."""
_EXPONENT_FROM: Final = 6
"""As Go's format g."""
_DIGITS_OF_FLOAT32: Final = 9


def plain(text: str) -> Scalar:
    """Return the value of a scalar that is written without quotes and tag: number, bool, None, text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if text[0] != "." and (number := _integer(digits)) is not None:
        return number
    return _float(digits, text) if _FLOAT.fullmatch(digits) else text


def tagged(tag: str, text: str) -> Scalar:
    """Return a tagged scalar's value, or ``text`` for an unknown tag. Raises BadRequest if ``text`` is not of the tag's type."""
    kind = tag.removeprefix(TAG) if tag.startswith(TAG) else ""
    if kind == "binary":
        return _decoded(text)
    if kind not in _KINDS or kind == "str":
        return text
    if kind == "timestamp":
        if not _is_time(text):
            raise BadRequest(f"cannot read {text[:64]!r} in YAML as a timestamp")
        return text
    said = plain(text)
    if kind == "float" and type(said) is int and said < -_LOWEST:
        said = float(said)
    if _kind_of(said) != kind:
        raise BadRequest(f"cannot read {text[:64]!r} in YAML as {kind}")
    return said


def key(scalar: Scalar) -> str:
    """Return the JSON key for a YAML key, or raise BadRequest."""
    if isinstance(scalar, str):
        return scalar
    if isinstance(scalar, bool):
        return str(scalar).lower()
    if isinstance(scalar, float):
        return _as_float32(scalar)
    if scalar is None or scalar >= -_LOWEST:
        raise BadRequest(f"a key of a YAML map cannot be {'null' if scalar is None else scalar}")
    return str(scalar)


def value(scalar: Scalar) -> Scalar:
    """Return a scalar as in Go's JSON: ``5.0`` becomes 5, if 64 bits can hold it. Raises BadRequest for infinity and NaN."""
    if not isinstance(scalar, float):
        return scalar
    if not math.isfinite(scalar):
        raise BadRequest(f"JSON does not support the number {scalar}")
    if not scalar.is_integer():
        return scalar
    number = int(Decimal(repr(scalar)))
    return number if _LOWEST <= number <= _HIGHEST else scalar


def _integer(digits: str) -> int | None:
    """Parse like Go's ``ParseInt`` or ``ParseUint``; None for other text, or beyond 64 bits."""
    if (bits := _SIGNED_BITS.fullmatch(digits)) is not None:
        return int(bits[1], 2)
    match = _INTEGER.fullmatch(digits)
    if match is None:
        return None
    base, magnitude = next((base, group) for base, group in zip(_BASES, match.groups()[1:], strict=True) if group is not None)
    if len(magnitude) > _HIGHEST.bit_length():
        magnitude = magnitude.lstrip("0")[: _HIGHEST.bit_length() + 1] or "0"
    number = -int(magnitude, base) if match[1] == "-" else int(magnitude, base)
    return number if _LOWEST <= number <= (_HIGHEST >> 1 if match[1] else _HIGHEST) else None


def _float(digits: str, text: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else text  # as Go's ParseFloat


def _kind_of(said: Scalar) -> str:
    return "null" if said is None else type(said).__name__


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", "").encode(), validate=True).decode()
    except binascii.Error as error:
        raise BadRequest("a !!binary value in YAML is not base64") from error
    except UnicodeDecodeError as error:
        raise BadRequest("a !!binary value in YAML is not UTF-8") from error


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, *clock = (int(each or 0) for each in match.groups())
    try:
        date(year or 4, month, day)  # Python lacks the year 0, a leap year
    except ValueError:
        return False
    hours, minutes, seconds = clock
    return hours < 24 and minutes < 60 and seconds < 60


def _as_float32(number: float) -> str:
    """Format a number as Go's ``FormatFloat(number, 'g', -1, 32)``, except for YAML's ``.nan`` and ``.inf``."""
    if math.isnan(number):
        return ".nan"
    try:
        stored = struct.pack("f", number)
    except OverflowError:
        stored = struct.pack("f", math.copysign(math.inf, number))
    (nearest,) = struct.unpack("f", stored)
    if not math.isfinite(nearest):
        return ".inf" if nearest > 0 else "-.inf"
    shortest = next(digits for digits in range(_DIGITS_OF_FLOAT32) if struct.pack("f", float(f"{nearest:.{digits}e}")) == stored)
    shown = f"{nearest:.{shortest}e}"
    power = int(shown.partition("e")[2])
    return shown if power < -4 or power >= _EXPONENT_FROM else f"{float(shown):.{max(0, shortest - power)}f}"
