"""Quantities such as ``512Mi``, ``1500m``, ``1e3``, like apimachinery's ``resource.Quantity``.

Exact to 10⁻⁹ (rounded up, away from zero, beyond) and at most 2⁶³-1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

_NANO: Final = 10**9
_MAX: Final = (2**63 - 1) * _NANO
_PATTERN: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT: Final = re.compile(r"[eE][-+]?[0-9]+")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DECIMAL_EXPONENTS: Final = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_MAX_TEXT: Final = 64
_MAX_EXPONENT: Final = 64

NUMBER_RULE: Final = "unable to parse numeric part of quantity"
SUFFIX_RULE: Final = "unable to parse quantity's suffix"
FORMAT_RULE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Format(Enum):
    """A quantity's notation, which is kept when writing."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount, in units of 10⁻⁹. Equality and order ignore the format."""

    nanos: int
    format: Format = field(default=Format.DECIMAL_SI, compare=False)

    @property
    def bytes(self) -> int:
        """The amount rounded up (away from zero) to an integer, like Go's ``Value()``."""
        return _divide_up(self.nanos, _NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded up, for CPU shares."""
        return _divide_up(self.nanos, 10**6)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(_bounded(self.nanos + other.nanos), self.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(_bounded(self.nanos - other.nanos), self.format)

    def __str__(self) -> str:
        if self.nanos == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
            return _binary(self.nanos // _NANO)
        mantissa, exponent = self.nanos, -9
        while mantissa % 1000 == 0 and exponent < 18:
            mantissa, exponent = mantissa // 1000, exponent + 3
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL[exponent]}"


def of_bytes(amount: int) -> str:
    """Format an exact number of bytes: ``64Gi``."""
    return str(Quantity(amount * _NANO, Format.BINARY_SI))


def shown(amount: float) -> str:
    """Format bytes with at most three digits: ``1.5Gi``, ``52.4Mi``, ``999``."""
    for unit in _BINARY[:-1]:
        if abs(amount) < 1000:
            return f"{amount:.0f}{unit}" if not unit or amount >= 100 else f"{amount:.3g}{unit}"
        amount /= 1024
    return f"{amount:.3g}{_BINARY[-1]}"


def about(amount: int) -> str:
    """Format bytes rounded down to two digits, for texts that rarely change: ``50Gi``, ``5000Mi``."""
    power = 0
    while (amount >= 10 * 1024 or (amount and amount % 1024 == 0)) and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    figures = 10 ** max(0, len(str(amount)) - 2)
    return f"{amount // figures * figures}{_BINARY[power]}"


def parse(text: str) -> Quantity:
    """Parse a quantity; an amount above 2⁶³-1 becomes 2⁶³-1.

    Raises:
        ValueError: it is invalid, with apimachinery's text.
    """
    if len(text) > _MAX_TEXT:
        raise ValueError(FORMAT_RULE)
    return _parse(text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Quantity:
    match = _PATTERN.fullmatch(text)
    if match is None or not text:
        raise ValueError(FORMAT_RULE)
    if not (match[2] or match[3]):
        raise ValueError(NUMBER_RULE)
    sign, whole, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4] or ""
    digits, exponent = int(whole + fraction), 9 - len(fraction)  # in nanos
    if suffix in _BINARY[1:]:
        digits, written = digits * 1024 ** _BINARY.index(suffix), Format.BINARY_SI
    elif suffix in _DECIMAL_EXPONENTS:
        exponent, written = exponent + _DECIMAL_EXPONENTS[suffix], Format.DECIMAL_SI
    elif _EXPONENT.fullmatch(suffix):
        if abs(given := int(suffix[1:])) > _MAX_EXPONENT:
            raise ValueError(NUMBER_RULE)
        exponent, written = exponent + given, Format.DECIMAL_EXPONENT
    else:
        raise ValueError(SUFFIX_RULE)
    nanos = digits * 10**exponent if exponent >= 0 else _divide_up(digits, 10**-exponent)
    return Quantity(_bounded(-nanos if sign == "-" else nanos), written)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


def _divide_up(amount: int, by: int) -> int:
    return -(-amount // by) if amount >= 0 else amount // by


def _bounded(nanos: int) -> int:
    return max(-_MAX, min(_MAX, nanos))
