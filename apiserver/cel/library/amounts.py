"""Quantities (``500m``, ``1Gi``) and semantic versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from apiserver.apis.meta import quantity
from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import INT_MAX, INT_MIN, NANOS, UINT_MAX, CelError, Opaque, checked_int

LIBRARY: Final = Library()
_member, _function = LIBRARY.member, LIBRARY.function
_WRITTEN: Final = re.compile(r"[+-]?[0-9]*(?:\.([0-9]*))?([a-zA-Z]*[+-]?[0-9]*)")
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DIGITLESS: Final = re.compile(r"([+-]?)\.?([a-zA-Z].*)?")
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+")
_LONGEST: Final = 256


@dataclass(slots=True, eq=False)
class Quantity(Opaque):
    """A quantity as CEL value, such as ``500m``."""

    type_name: ClassVar[str] = "kubernetes.Quantity"
    amount: quantity.Quantity
    fractional: bool = False
    """Written in fractions, which Go never calls an integer: ``1000m``."""

    def equals(self, other: Opaque) -> bool:
        """Return whether ``other`` is the same amount."""
        return isinstance(other, Quantity) and self.amount.nanos == other.amount.nanos

    def whole(self) -> int | None:
        """Return the amount as int; None with a fraction, even if only written so (``1000m``), or beyond 64 bits."""
        number, rest = divmod(self.amount.nanos, NANOS)
        return number if not rest and not self.fractional and INT_MIN <= number < INT_MAX else None


def _quantity_of(text: str) -> Quantity:
    if text and (bare := _DIGITLESS.fullmatch(text)):
        text = f"{bare[1]}0{bare[2] or ''}"  # in Go, "Mi" is zero
    try:
        amount = quantity.parse(text)
    except ValueError as error:
        raise CelError(str(error)) from None
    return Quantity(amount, fractional=_is_fractional(text))


def _is_fractional(text: str) -> bool:
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return True
    suffix = match[2] or ""
    if suffix.endswith("i"):
        return "." in text
    exponent = int(suffix[1:]) if suffix[:1] in ("e", "E") and len(suffix) > 1 else _EXPONENTS.get(suffix, 0)
    return exponent < len(match[1] or "")


@_function("quantity", str)
def _quantity(frame: Frame, text: str) -> Quantity:
    frame.charge(cost.traversal(len(text)))
    return _quantity_of(text)


@_function("isQuantity", str)
def _is_quantity(frame: Frame, text: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    try:
        _quantity_of(text)
    except CelError:
        return False
    return True


def _sign(frame: Frame, value: Quantity) -> int:
    frame.cost += NOMINAL
    return (value.amount.nanos > 0) - (value.amount.nanos < 0)


_function("sign", Quantity)(_sign)
_member("sign", Quantity)(_sign)


@_member("isInteger", Quantity)
def _is_integer(frame: Frame, value: Quantity) -> bool:
    frame.cost += NOMINAL
    return value.whole() is not None


@_member("asInteger", Quantity)
def _as_integer(frame: Frame, value: Quantity) -> int:
    frame.cost += NOMINAL
    if (whole := value.whole()) is None:
        raise CelError("cannot convert value to integer")
    return whole


@_member("asApproximateFloat", Quantity)
def _as_float(frame: Frame, value: Quantity) -> float:
    frame.cost += NOMINAL
    return value.amount.nanos / NANOS


def _order(left: Quantity, right: Quantity) -> int:
    return (left.amount.nanos > right.amount.nanos) - (left.amount.nanos < right.amount.nanos)


def _sum(left: Quantity, nanos: int) -> Quantity:
    return Quantity(quantity.Quantity(left.amount.nanos + nanos, left.amount.format), (left.amount.nanos + nanos) % NANOS != 0)


@_member("add", Quantity, Quantity)
def _add(frame: Frame, left: Quantity, right: Quantity) -> Quantity:
    frame.cost += NOMINAL
    return _sum(left, right.amount.nanos)


@_member("add", Quantity, int)
def _add_int(frame: Frame, left: Quantity, right: int) -> Quantity:
    frame.cost += NOMINAL
    return _sum(left, right * NANOS)


@_member("sub", Quantity, Quantity)
def _sub(frame: Frame, left: Quantity, right: Quantity) -> Quantity:
    frame.cost += NOMINAL
    return _sum(left, -right.amount.nanos)


@_member("sub", Quantity, int)
def _sub_int(frame: Frame, left: Quantity, right: int) -> Quantity:
    frame.cost += NOMINAL
    return _sum(left, -right * NANOS)


@dataclass(slots=True, eq=False)
class Semver(Opaque):
    """A version by semver.org 2.0."""

    type_name: ClassVar[str] = "kubernetes.Semver"
    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...]
    """Parts of the pre-release, sortable: numbers before words. Empty for a release."""

    def equals(self, other: Opaque) -> bool:
        """Return whether all but the build are equal."""
        return isinstance(other, Semver) and self.key() == other.key()

    def key(self) -> tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]:
        """Return the sort key; it ignores the build."""
        return self.major, self.minor, self.patch, not self.pre, self.pre


def _parsed(text: str, *, normalize: bool = False) -> Semver:
    if not text or len(text) > _LONGEST:
        raise CelError("Version string empty" if not text else "Version string too long")
    parts = text.removeprefix("v").split(".", 2) if normalize else text.split(".", 2)
    if normalize:
        parts = [_normal(each) for each in parts]
        if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
            raise CelError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    last, plus, build = parts[2].partition("+")
    patch, dash, pre = last.partition("-")
    if plus and not all(_IDENTIFIER.fullmatch(each) for each in build.split(".")):
        raise CelError(f"Invalid character(s) found in build meta data {build!r}")
    identifiers = tuple(_identifier(each) for each in pre.split(".")) if dash else ()
    return Semver(_number(parts[0]), _number(parts[1]), _number(patch), identifiers)


def _normal(part: str) -> str:
    if len(part) > 1:
        part = part.lstrip("0")
        if not part or not part[0].isdigit():
            part = "0" + part
    return part


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise CelError(f"Invalid character(s) found in number {text!r}")
    if len(text) > 1 and text[0] == "0":
        raise CelError(f"Number must not contain leading zeroes {text!r}")
    if int(text) > UINT_MAX:
        raise CelError(f"Number out of range {text!r}")
    return int(text)


def _identifier(text: str) -> tuple[int, int, str]:
    if text.isascii() and text.isdigit():
        return 0, _number(text), ""
    if not _IDENTIFIER.fullmatch(text):
        raise CelError(f"Invalid character(s) found in prerelease {text!r}")
    return 1, 0, text


@_function("semver", str)
def _semver(frame: Frame, text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 - positional in the language, too
    frame.charge(cost.traversal(len(text)))
    return _parsed(text, normalize=normalize)


_function("semver", str, bool)(_semver)


@_function("isSemver", str)
def _is_semver(frame: Frame, text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - positional in the language, too
    frame.charge(cost.traversal(len(text)))
    try:
        _parsed(text, normalize=normalize)
    except CelError:
        return False
    return True


_function("isSemver", str, bool)(_is_semver)


@_member("major", Semver)
def _major(frame: Frame, version: Semver) -> int:
    frame.cost += NOMINAL
    return checked_int(version.major)


@_member("minor", Semver)
def _minor(frame: Frame, version: Semver) -> int:
    frame.cost += NOMINAL
    return checked_int(version.minor)


@_member("patch", Semver)
def _patch(frame: Frame, version: Semver) -> int:
    frame.cost += NOMINAL
    return checked_int(version.patch)


def _compare_versions(left: Semver, right: Semver) -> int:
    return (left.key() > right.key()) - (left.key() < right.key())


for _kind, _compare in ((Quantity, _order), (Semver, _compare_versions)):

    def _comparison(compare: object, wanted: int | None) -> object:
        def run(frame: Frame, left: Opaque, right: Opaque) -> int | bool:
            frame.cost += NOMINAL
            order: int = compare(left, right)  # type: ignore[operator]  # one of the two above
            return order if wanted is None else order == wanted

        return run

    _member("compareTo", _kind, _kind)(_comparison(_compare, None))  # type: ignore[arg-type]  # it makes a function
    _member("isGreaterThan", _kind, _kind)(_comparison(_compare, 1))  # type: ignore[arg-type]  # it makes a function
    _member("isLessThan", _kind, _kind)(_comparison(_compare, -1))  # type: ignore[arg-type]  # it makes a function
