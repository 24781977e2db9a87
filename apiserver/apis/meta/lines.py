"""Makes untrusted text safe for statuses, events and logs."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most ``limit`` printable characters.

    It joins lines by `` | ``; an ellipsis marks a cut.
    """
    lines = ("".join(each for each in line if each.isprintable()).strip() for line in text[: 4 * limit].splitlines())
    line = " | ".join(each for each in lines if each)
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"
