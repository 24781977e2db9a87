"""cel-go's strings extension, version 2 (without ``reverse``); positions count characters."""

from __future__ import annotations

from typing import Final

from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.library import formatting
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import CelError, Value, type_name

LIBRARY: Final = Library()
_member = LIBRARY.member
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTED: Final = str.maketrans(
    {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}
)
MAX_MADE: Final = 4 << 20
"""In characters; exceeds any request."""


def _out_of_range(position: int) -> CelError:
    return CelError(f"index out of range: {position}")


@_member("charAt", str, int)
def _char_at(frame: Frame, text: str, position: int) -> str:
    frame.cost += NOMINAL
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


@_member("indexOf", str, str)
def _index_of(frame: Frame, text: str, part: str, offset: int = 0) -> int:
    frame.charge(cost.deep(text))
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset) if offset < len(text) else -1


_member("indexOf", str, str, int)(_index_of)


@_member("lastIndexOf", str, str)
def _last_index_of(frame: Frame, text: str, part: str) -> int:
    if not part:
        frame.charge(cost.deep(text))
        return len(text)
    if len(text.encode()) < len(part.encode()):
        return -1
    return int(_last_index_of_offset(frame, text, part, len(text) - 1))


@_member("lastIndexOf", str, str, int)
def _last_index_of_offset(frame: Frame, text: str, part: str, offset: int) -> int:
    frame.charge(cost.deep(text))
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


@_member("lowerAscii", str)
def _lower(frame: Frame, text: str) -> str:
    frame.charge(cost.traversal(len(text)))
    return text.translate(_LOWER)


@_member("upperAscii", str)
def _upper(frame: Frame, text: str) -> str:
    frame.charge(cost.traversal(len(text)))
    return text.translate(_UPPER)


@_member("trim", str)
def _trim(frame: Frame, text: str) -> str:
    frame.charge(cost.traversal(len(text)))
    return text.strip(_SPACE)


@_member("replace", str, str, str)
def _replace(frame: Frame, text: str, old: str, new: str, count: int = -1) -> str:
    frame.charge(cost.traversal(len(text), 2))
    times = text.count(old) if count < 0 else min(count, text.count(old))
    if len(text) + times * len(new) > MAX_MADE:
        raise CelError("the text that replace() makes is too long")
    return text.replace(old, new, count)


_member("replace", str, str, str, int)(_replace)


@_member("split", str, str)
def _split(frame: Frame, text: str, separator: str, count: int = -1) -> list[str]:
    frame.charge(cost.traversal(len(text), 2))
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


_member("split", str, str, int)(_split)


@_member("substring", str, int)
def _substring(frame: Frame, text: str, start: int) -> str:
    frame.charge(cost.traversal(len(text)))
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


@_member("substring", str, int, int)
def _substring_range(frame: Frame, text: str, start: int, end: int) -> str:
    frame.charge(cost.traversal(len(text)))
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for each in (start, end):
        if not 0 <= each <= len(text):
            raise _out_of_range(each)
    return text[start:end]


@_member("join", list)
def _join(frame: Frame, parts: list[Value], separator: str = "") -> str:
    length = 0
    for each in parts:
        if type(each) is not str:
            raise CelError(f"join: invalid input: {type_name(each)}")
        length += len(each) + len(separator)
    if length > MAX_MADE:
        raise CelError("the text that join() makes is too long")
    joined = separator.join(parts)
    frame.charge(cost.traversal(len(joined), 2))
    return joined


_member("join", list, str)(_join)


@LIBRARY.function("strings.quote", str)
def _quote(frame: Frame, text: str) -> str:
    frame.charge(cost.traversal(len(text)))
    return f'"{text.translate(_QUOTED)}"'


@_member("format", str, list)
def _format(frame: Frame, text: str, arguments: list[Value]) -> str:
    frame.charge(cost.traversal(len(text)) + cost.deep(arguments) // 100)  # cel-go only counts the text
    frame.toil(10 * cost.nodes(arguments))
    made = formatting.render(text, arguments)
    if len(made) > MAX_MADE:
        raise CelError("the text that format() makes is too long")
    return made
