"""Names and options of node plugins in machines.

docs/plugins.md specifies plugins; :mod:`handler.plugins` is virt-handler's side.
"""

from __future__ import annotations

import re
from typing import Final

MAX_NAME: Final = 40
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

MAX_OPTIONS: Final = 32
MAX_OPTION_NAME: Final = 63
MAX_OPTION_VALUE: Final = 1024
"""Bytes."""
_OPTION_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    """Return whether a text is valid as a plugin's name, which is a file name on the node."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def is_option_name(text: str) -> bool:
    """Return whether a text is valid as an option's name."""
    return len(text) <= MAX_OPTION_NAME and _OPTION_NAME.fullmatch(text) is not None


def option_problem(value: str) -> str:
    """Return why an option's value is invalid, or ""."""
    if len(value.encode(errors="replace")) > MAX_OPTION_VALUE:
        return f"must be no more than {MAX_OPTION_VALUE} bytes"
    return "" if value.isprintable() else "must be one line of printable characters"


def names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated flag.

    Raises:
        ValueError: a name is invalid.
    """
    found = tuple(each for each in text.split(",") if each)
    if wrong := [each for each in found if not is_name(each)]:
        raise ValueError(f"{wrong[0]!r} is not a plugin name: use at most {MAX_NAME} of a-z, 0-9 and -, without - at the start or end")
    return found
