"""Refuses control characters, and those that change how text is displayed.

Directional characters display a line in another order than stored ("Trojan Source", CVE-2021-42574). Line and paragraph separators end
lines for some programs only.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_DIRECTIONAL: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode's property Bidi_Control."""
_SEPARATORS: Final = "\u2028\u2029"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_EITHER: Final = re.compile(f"[{_CONTROLS}{_DIRECTIONAL}{_SEPARATORS}]")
_MISLEADING: Final = re.compile(f"[{_DIRECTIONAL}{_SEPARATORS}]")


def problem(text: str) -> str:
    """Return the error of a text with a control character, or one that changes how it is displayed; else ""."""
    if not _EITHER.search(text):
        return ""
    if found := _CONTROL.search(text):
        return f"must not have control characters such as {_named(found[0])}"
    if found := _MISLEADING.search(text):
        return f"must not have characters such as {_named(found[0])}, which change the order or lines of displayed text"
    return ""


def _named(character: str) -> str:
    return f"U+{ord(character):04X}"


def line_of_control(text: str) -> int:
    """Return the first line with a control character, where parsing stops; 0 if none."""
    found = _CONTROL.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 0
