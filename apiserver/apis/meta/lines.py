"""Text from the other side of a border (a guest, its launcher, a stranger's registry), made fit for statuses, events and logs. Pure."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most ``limit`` characters, without control characters: no terminal obeys it.

    Lines are joined by `` | ``; what had to be left out at the end is an ellipsis.
    """
    lines = ("".join(each for each in line if each.isprintable()).strip() for line in text[: 4 * limit].splitlines())
    line = " | ".join(each for each in lines if each)
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"
