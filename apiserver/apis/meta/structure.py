"""Checks members and types of JSON without pydantic.

Unknown members are ignored, and a null is absent. A check takes a value and returns pairs of path and problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from apiserver.apis.meta import quantity, times
from apiserver.apis.meta.objects import Json

Faults: TypeAlias = tuple[tuple[str, str], ...]
Check: TypeAlias = Callable[[Json], Faults]
Shape: TypeAlias = "str | Sequence[str] | Mapping[str, Shape]"
"""A check in JSON; see :func:`check_of`."""

MAX_FAULTS: Final = 8
"""Reported per object."""
_LONG_TIME: Final = 40
"""Longer times are not cached."""
_SOUND: Final[Faults] = ()
_KINDS: Final[Mapping[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def anything(_: Json) -> Faults:
    """Return no faults."""
    return _SOUND


def text(value: Json) -> Faults:
    """Return faults unless a value is Unicode text, not half a surrogate pair."""
    if type(value) is not str:
        return _not("a string", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return (("", "must be Unicode text"),)
    return _SOUND


def boolean(value: Json) -> Faults:
    """Return faults unless a value is a boolean."""
    return _SOUND if type(value) is bool else _not("a boolean", value)


def integer(bits: int) -> Check:
    """Return a check that a value is a signed integer of ``bits`` bits."""
    limit = 1 << (bits - 1)

    def check(value: Json) -> Faults:
        if type(value) is not int:
            return _not("an integer", value)
        return _SOUND if -limit <= value < limit else (("", f"must be an integer of {bits} bits"),)

    return check


def int_or_string(value: Json) -> Faults:
    """Return faults unless the value is an integer of 32 bits, or Unicode text."""
    if type(value) is str:
        return text(value)
    return _INT32(value) if type(value) is int else _not("an integer or a string", value)


def time(value: Json) -> Faults:
    """Return faults unless the value is an RFC 3339 time."""
    if type(value) is not str:
        return _not("a string", value)
    return _remembered_time(value) if len(value) < _LONG_TIME else _time(value)


def amount(value: Json) -> Faults:
    """Return faults unless the value is a number or quantity."""
    if type(value) not in (str, int, float):
        return _not("a quantity", value)
    try:
        quantity.parse(str(value))
    except ValueError:
        return (("", "must be a quantity such as 512Mi"),)
    return _SOUND


def one_of(*words: str) -> Check:
    """Return a check that a value is one of these words."""
    known = frozenset(words)

    def check(value: Json) -> Faults:
        return _SOUND if type(value) is str and value in known else (("", f"must be one of {', '.join(words)}"),)

    return check


def items(check: Check) -> Check:
    """Return a check of lists; each element must pass ``check``."""

    def each(value: Json) -> Faults:
        if type(value) is not list:
            return _not("a list", value)
        return tuple((f"[{index}]{place}", fault) for index, item in enumerate(value) for place, fault in check(item))

    return each


def values(check: Check) -> Check:
    """Return a check of objects with any members; each value must pass ``check``."""

    def each(value: Json) -> Faults:
        if type(value) is not dict:
            return _not("an object", value)
        return tuple((f"[{ascii(key)[:64]}]{place}", fault) for key, item in value.items() for place, fault in check(item))

    return each


texts: Final = values(text)
"""Labels, annotations, selectors."""


def members(known: Mapping[str, Check]) -> Check:
    """Return a check of objects with these members, and any others; one named with a final ``?`` may be absent or null."""
    parts = tuple((name.removesuffix("?"), check, not name.endswith("?")) for name, check in known.items())

    def check(value: Json) -> Faults:
        if type(value) is not dict:
            return _not("an object", value)
        found: list[tuple[str, str]] = []
        for name, inner, is_required in parts:
            given = value.get(name)
            if given is not None:
                found += [(f".{name}{place}", fault) for place, fault in inner(given)]
            elif is_required:
                found.append((f".{name}", "is missing"))
        return tuple(found)

    return check


_INT32: Final = integer(32)
_NAMED: Final[Mapping[str, Check]] = {
    "anything": anything,
    "text": text,
    "boolean": boolean,
    "int32": _INT32,
    "int64": integer(64),
    "intOrString": int_or_string,
    "time": time,
    "amount": amount,
}


def check_of(shape: Shape) -> Check:
    """Return the check (from a value to its faults) of a ``Shape``.

    ``"text"``, ``"int32"`` and the like are scalars, a list of words is an enumeration, ``{"[]": shape}`` a list, ``{"*": shape}`` an
    object with any members, and any other object lists members as for :func:`members`.

    Raises:
        KeyError: no scalar has this name.
    """
    if isinstance(shape, str):
        return _NAMED[shape]
    if not isinstance(shape, Mapping):
        return one_of(*shape)
    if shape.keys() == {"[]"}:
        return items(check_of(shape["[]"]))
    if shape.keys() == {"*"}:
        return values(check_of(shape["*"]))
    return members({name: check_of(each) for name, each in shape.items()})


def _time(value: str) -> Faults:
    return _SOUND if times.parsed(value) is not None else (("", "must be an RFC 3339 time such as 2006-01-02T15:04:05Z"),)


_remembered_time: Final = lru_cache(maxsize=1024)(_time)


def sentences(faults: Faults) -> tuple[str, ...]:
    """Return faults as sentences with paths; the last counts those beyond ``MAX_FAULTS``."""
    said = tuple(f"{place.removeprefix('.') or 'the object'} {fault}" for place, fault in faults[:MAX_FAULTS])
    return (*said, f"and {len(faults) - MAX_FAULTS} more") if len(faults) > MAX_FAULTS else said


def _not(wanted: str, value: Json) -> Faults:
    return (("", f"must be {wanted}, not {_KINDS.get(type(value), 'this')}"),)
