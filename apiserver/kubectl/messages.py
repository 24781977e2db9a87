"""Error messages in kubectl's words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.lines import one_line

_WARNING: Final = re.compile(r'(?P<code>[0-9]{3}) [^\s"]+ "(?P<text>(?:[^"\\]|\\.)*)"')
_CONFLICT: Final = re.compile(r'Operation cannot be fulfilled on \S+ "[^"]*": ')
_ESCAPED: Final = re.compile(r"\\(.)")
MAX_SAID: Final = 32 << 10
"""Longest quote; no status has more."""


class Failure(Exception):
    """A command failed; the text is complete, as the user sees it."""


class Unreachable(Failure):
    """A server did not answer."""


def said(text: str) -> str:
    """Return a server's or node's text as one line of limited length without control characters."""
    return one_line(text, MAX_SAID)


def of_status(error: StatusError, doing: str) -> Failure:
    """Return the Failure to print for a server's error; ``doing``: ``open the console of virtual machine default/web``."""
    if error.code == 401:
        return Failure(f"error: You must be logged in to the server ({said(error.message) or error.reason})")
    reason = f" ({error.reason})" if error.reason != "Unknown" else ""
    text = said(error.message)  # a Conflict's begins with what ``doing`` says
    return Failure(f"Error from server{reason}: cannot {doing}: {_CONFLICT.sub('', text, count=1) if error.code == 409 else text}")


def of_transport(error: Exception, server: str, doing: str) -> Unreachable:
    """Return the Failure to print if a server did not answer."""
    return Unreachable(f"Unable to connect to the server {server}: cannot {doing}: {said(describe(error))}")


def of_warnings(headers: Iterable[str]) -> list[str]:
    """Return the lines for ``Warning`` headers, as kubectl: code 299, each once.

    Control characters become question marks; invalid warnings (RFC 7234, section 5.5) are skipped.
    """
    found = (each for header in headers for each in _WARNING.finditer(header))
    texts = (
        "".join(one if one.isprintable() else "?" for one in _ESCAPED.sub(r"\1", each["text"])) for each in found if each["code"] == "299"
    )
    return [f"Warning: {text}" for text in dict.fromkeys(texts) if text]


def describe(error: BaseException) -> str:
    """Return an exception's text, else its name; for system errors, the system's text."""
    if isinstance(error, TimeoutError):
        return str(error) or "timed out"
    cause = getattr(error, "os_error", None) or error  # aiohttp's text has internal objects
    if type(cause) is not OSError and not isinstance(cause, ConnectionError):
        return str(cause) or type(cause).__name__
    return os.strerror(cause.errno) if cause.errno and cause.errno > 0 and not cause.filename else str(cause)


def first(error: BaseException) -> BaseException:
    """Return the exception, or the first one in a group, at any depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
