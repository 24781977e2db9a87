"""Regular expressions by RE2, with time linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.registry import Library
from apiserver.cel.values import CelError

LIBRARY: Final = Library()
_member = LIBRARY.member
_MAX_BYTES: Final = 8 << 20
"""Per pattern."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 ships no types
    """Compile a regular expression, or raise CelError."""
    import re2  # late: it takes megabytes

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise CelError(f"error parsing regexp: {text}") from None


def _charge(frame: Frame, text: str, pattern: str) -> None:
    frame.charge(cost.regex(len(text), len(pattern)))


@_member("matches", str, str)
def _matches(frame: Frame, text: str, pattern: str) -> bool:
    _charge(frame, text, pattern)
    return compiled(pattern).search(text) is not None


LIBRARY.function("matches", str, str)(_matches)


@_member("find", str, str)
def _find(frame: Frame, text: str, pattern: str) -> str:
    _charge(frame, text, pattern)
    match = compiled(pattern).search(text)
    return match[0] if match else ""


@_member("findAll", str, str)
def _find_all(frame: Frame, text: str, pattern: str, limit: int = -1) -> list[str]:
    _charge(frame, text, pattern)
    found: list[str] = []
    end = -1
    if limit == 0:
        return found
    for match in compiled(pattern).finditer(text):
        if match.start() == match.end() == end:
            continue  # Go finds no empty match at the end of the previous one
        end = match.end()
        found.append(match[0])
        if len(found) == limit:
            break
    return found


_member("findAll", str, str, int)(_find_all)
