"""One step of a path as ``FieldsV1`` writes it, and the order of steps.

===========  =====================================  =====================
written      selects                                people read
===========  =====================================  =====================
``f:name``   a field of a struct or a map           ``.name``
``k:{…}``    an item of a list by its keys          ``[name="x",port=1]``
``v:…``      an item of a set by its value          ``[="x"]``
``i:3``      an item of a list by its place         ``[3]``
``.``        the thing itself, beside its fields
===========  =====================================  =====================

The text is canonical: two steps are equal if and only if their texts are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

SELF: Final = "."
NOWHERE: Final = "?:"
"""The step to an item that none leads to; never written."""

Rank = tuple[Any, ...]
_RANKS: Final[dict[str, Rank]] = {SELF: (-1,), NOWHERE: (9,)}

_PLAIN: Final = re.compile(r"[ !#-%'-;=?-\[\]-~]*").fullmatch
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), *b"<>&", 0x2028, 0x2029)},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\\"): "\\\\",
    ord('"'): '\\"',
}
"""Go's encoder escapes them with ``EscapeHTML``."""
_GO_ESCAPES: Final = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}
_EXACT: Final = 2**53
_CACHED: Final = 8192
"""Number of cached steps; most recur in every object."""
_LONGEST: Final = 256
"""Characters; other steps may be as long as an object."""


class ElementError(ValueError):
    """The text is not a step of a path."""


def value(item: Any) -> str:  # noqa: ANN401 - any scalar
    """Return the step ``v:"a"`` to an item of a set."""
    return "v:" + to_json(item)


def key(fields: Iterable[tuple[str, Any]]) -> str:
    """Return the step ``k:{"name":"a"}`` to the list item with these key fields."""
    return "k:{" + ",".join(f"{quote(name)}:{to_json(each)}" for name, each in sorted(fields, key=lambda pair: pair[0])) + "}"


def quote(text: str) -> str:
    """Return a text as Go's JSON string."""
    return f'"{text}"' if _PLAIN(text) else f'"{text.translate(_ESCAPES)}"'


def to_json(item: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value's JSON as Go writes it: keys sorted, 1.0 as ``1``."""
    if isinstance(item, str):
        return quote(item)
    if isinstance(item, bool):
        return "true" if item else "false"
    if item is None:
        return "null"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        return _float(item, exponent_from=1e21)
    if isinstance(item, list):
        return "[" + ",".join(to_json(each) for each in item) + "]"
    return "{" + ",".join(f"{quote(name)}:{to_json(item[name])}" for name in sorted(item)) + "}"


def canonical(text: str) -> str | None:
    """Return a step of a client's ``fieldsV1`` as we write it; None for an unknown kind of step.

    Raises:
        ElementError: it is not a step, or is ``.``.
    """
    if text[:2] == "f:":
        return text
    return (_canonical if len(text) <= _LONGEST else _canonical.__wrapped__)(text)


def rank(text: str) -> Rank:
    """Return a step's sort key: fields by name, then list items by keys, by value, by position."""
    if text[:2] == "f:":
        return (0, text)
    if text in _RANKS:
        return _RANKS[text]
    return (_rank if len(text) <= _LONGEST else _rank.__wrapped__)(text)


def show(text: str, *, stored: bool = False) -> str:
    """Return a step, but not ``.``, as people read it: ``.spec``, ``[name="a"]``.

    ``stored``: it is from ``managedFields``, where Go reads numbers as floats: ``1e+06``.
    """
    if text[:2] == "f:":
        return "." + text[2:]
    return (_show if len(text) <= _LONGEST else _show.__wrapped__)(text, stored)


def to_go(item: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as structured-merge-diff prints it."""
    if isinstance(item, str):
        return go_quote(item)
    if isinstance(item, bool):
        return "true" if item else "false"
    if item is None:
        return "null"
    if isinstance(item, float):
        return go_float(item)
    if isinstance(item, list):
        return "[" + ",".join(to_go(each) for each in item) + "]"
    if isinstance(item, dict):
        return "".join(f"{name}={to_go(item[name])}" for name in sorted(item))
    return str(item)


def go_quote(text: str) -> str:
    """Return a text as Go's ``%q`` prints it."""
    return '"' + "".join(each if each.isprintable() and each not in '"\\' else _go_escape(each) for each in text) + '"'


def go_float(number: float) -> str:
    """Return a number as Go's ``%v`` prints a float64."""
    text = _float(number, exponent_from=1e6, exponent_below=1e-4)
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].zfill(2)}" if mark else text


def _go_escape(character: str) -> str:
    code = ord(character)
    if short := _GO_ESCAPES.get(character):
        return short
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _float(number: float, *, exponent_from: float, exponent_below: float = 1e-6) -> str:
    size = abs(number)
    digits = Decimal(repr(number))
    if size and (size < exponent_below or size >= exponent_from):
        sign, figures, exponent = digits.normalize().as_tuple()
        power = int(exponent) + len(figures) - 1
        fraction = "".join(map(str, figures[1:]))
        return f"{'-' if sign else ''}{figures[0]}{'.' + fraction if fraction else ''}e{'+' if power >= 0 else '-'}{abs(power)}"
    plain = format(digits, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _number(text: str) -> int:
    """Return the integer in a text as Go reads it: large ones are rounded to a float."""
    number = int(text)
    return number if -_EXACT <= number <= _EXACT else int(float(text))


def _load(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text, parse_int=_number)
    except ValueError as error:
        raise ElementError(f"parsing key as path element: {error}") from None


@lru_cache(_CACHED)
def _canonical(text: str) -> str | None:
    if len(text) < 2 or text[1] != ":":
        raise ElementError("key must be 2 characters long:" if len(text) < 2 else f"missing colon: {text}")
    if text[0] == "v":
        return value(_load(text[2:]))
    if text[0] == "k":
        fields = _load(text[2:])
        if not isinstance(fields, dict):
            raise ElementError(f"parsing key as path element: {text} is no object")
        return key(fields.items())
    if text[0] == "i":
        if not re.fullmatch(r"[+-]?\d+", text[2:], re.ASCII):
            raise ElementError(f"parsing key as path element: {text} is no place")
        return f"i:{int(text[2:])}"
    return None


@lru_cache(_CACHED)
def _rank(text: str) -> Rank:
    if text[0] == "k":
        return (1, *((name, _value_rank(each)) for name, each in json.loads(text[2:]).items()))
    return (2, _value_rank(json.loads(text[2:]))) if text[0] == "v" else (3, int(text[2:]))


def _value_rank(item: Any) -> Rank:  # noqa: ANN401 - any JSON value
    if isinstance(item, bool):
        return (2, item)
    if isinstance(item, int | float):
        return (0, item)
    if isinstance(item, str):
        return (1, item)
    if isinstance(item, list):
        return (3, tuple(_value_rank(each) for each in item))
    return (4, tuple((name, _value_rank(each)) for name, each in sorted(item.items()))) if isinstance(item, dict) else (5,)


@lru_cache(_CACHED)
def _show(text: str, stored: bool) -> str:  # noqa: FBT001 - lru_cache knows positions only
    if text[0] == "i":
        return f"[{text[2:]}]"
    item = json.loads(text[2:], parse_int=float if stored else int)
    if text[0] == "k":
        return "[" + ",".join(f"{name}={to_go(each)}" for name, each in item.items()) + "]"
    return f"[={to_go(item)}]"
