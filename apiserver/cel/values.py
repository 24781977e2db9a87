"""Values of the expression language, and its errors.

``None``, ``bool``, ``int`` (64 bits), ``float``, ``str``, ``bytes``, ``list`` and ``dict`` are CEL's null, bool, int,
double, string, bytes, list and map. Source: the CEL specification (github.com/google/cel-spec, doc/langdef.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

Value: TypeAlias = Any

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
NANOS: Final = 10**9
TIMESTAMP_MIN: Final = -62_135_596_800 * NANOS
"""0001-01-01T00:00:00Z."""
TIMESTAMP_MAX: Final = 253_402_300_799 * NANOS + NANOS - 1
"""9999-12-31T23:59:59.999999999Z."""


class CelError(Exception):
    """A failed evaluation, which ``&&`` and ``||`` ignore if the other side decides."""


class CompileError(Exception):
    """The expression is invalid in its environment."""


class CostExceeded(Exception):
    """An evaluation exceeded its limit; operators do not absorb it."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class UInt(int):
    """An unsigned 64-bit integer, equal to an int of this value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Type:
    """A value's type, itself a value."""

    name: str


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970."""

    nanos: int
    offset: int = field(default=0, compare=False)
    """Original offset in minutes east of Greenwich, only for formatting."""


@dataclass(frozen=True, slots=True)
class BoolKey:
    """A bool as map key, because Python's ``True`` equals ``1``."""

    value: bool


@dataclass(slots=True, eq=False)
class Optional:
    """A value that may be missing (``optional.none()``)."""

    value: Value
    present: bool = True


NONE: Final = Optional(None, present=False)


@dataclass(slots=True, eq=False)
class Message:
    """An object built by ``Name{field: value}``."""

    type_name: str
    fields: dict[str, Value]


class Opaque:
    """A library's value, such as a quantity."""

    __slots__ = ()
    type_name: ClassVar[str] = "opaque"

    def equals(self, other: Opaque) -> bool:
        """Return whether ``other``, of the same class, is equal."""
        return self is other


class Lazy(Opaque):
    """An object that computes its fields on access."""

    __slots__ = ()
    type_name: ClassVar[str] = "kubernetes.variables"

    def has(self, name: str) -> bool:
        """Return whether this value has the field ``name``."""
        raise NotImplementedError

    def get(self, name: str) -> Value:
        """Return a field, or raise CelError."""
        raise NotImplementedError


_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Type: "type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
}


def type_name(value: Value) -> str:
    """Return the name of a value's type. Raises CelError for a Python value that CEL lacks."""
    if (name := _NAMES.get(type(value))) is not None:
        return name
    if isinstance(value, Message | Opaque):
        return value.type_name
    raise CelError(f"unsupported value of Python type {type(value).__name__}")


def no_such_overload(function: str = "") -> CelError:
    """Return the error of a call without matching signature."""
    return CelError(f"no such overload: {function}" if function else "no such overload")


_KEYS: Final = frozenset({str, int, UInt, Duration, Timestamp, type(None), Optional})


def key_of(value: Value) -> Value:
    """Return a CEL value's key in Python's maps: for a bool, a :class:`BoolKey`; for a number with a fraction, one that no map has.

    Raises CelError for values that cannot be keys, such as lists.
    """
    kind = type(value)
    if kind in _KEYS:
        return value
    if kind is bool:
        return BoolKey(value)
    if kind is float:
        return value if value.is_integer() else BoolKey  # equal to no existing key
    raise CelError(f"unsupported key type: {type_name(value)}")


def from_key(key: Value) -> Value:
    """Return the CEL value of a map's key; inverse of :func:`key_of`."""
    return key.value if type(key) is BoolKey else key


def checked_int(value: int) -> int:
    """Return ``value``; raises CelError beyond 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> UInt:
    """Return ``value`` as UInt; raises CelError if it is negative or beyond 64 bits."""
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def checked_duration(nanos: int) -> Duration:
    """Return the duration; raises CelError beyond Go's ``time.Duration``."""
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise CelError("duration overflow")


def checked_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return the timestamp; raises CelError outside the years 1 to 9999."""
    if TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        return Timestamp(nanos, offset)
    raise CelError("timestamp overflow")
