"""Scrollback: what a console prints again when it is dialled again, left out where this terminal has it already.

virt-launcher begins every connection with its newest output (``layout.CONSOLE_REPLAY_BYTES``), which a browser or a second person
needs. Who was attached a moment ago has seen most of it, but not what came meanwhile: so what was seen last is looked for in the
beginning of the new connection, and what follows it is printed. Another launcher (the guest moved) has another past: nothing is
found, and all is printed.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places.layout import CONSOLE_REPLAY_BYTES

SHORTEST: Final = 16
"""Bytes: a shorter overlap is chance (an end of line, a prompt), unless nothing more was ever seen."""


class Scrollback:
    """The newest output of a session, bounded."""

    def __init__(self, limit: int = CONSOLE_REPLAY_BYTES) -> None:
        self._limit = limit
        self.content = b""

    def add(self, content: bytes) -> None:
        """Append output."""
        self.content = (self.content + content)[-self._limit :]


class Overlap:
    """The beginning of one connection, held against what was seen before it."""

    def __init__(self, seen: bytes) -> None:
        self._seen = seen
        self._held = b""
        self.decided = not seen

    def take(self, content: bytes) -> bytes:
        """Return what of the connection's next bytes is new; nothing while that is not known."""
        if self.decided:
            return content
        self._held += content
        position = self._seen.find(self._held)
        if position >= 0 and position + len(self._held) < len(self._seen):
            return b""  # all of it was seen, and more of what was seen may follow
        return self.rest()

    def rest(self) -> bytes:
        """Decide by what has come so far, because nothing more comes soon; return what of it is new."""
        held, self._held, self.decided = self._held, b"", True
        length = longest(self._seen, held)
        return held[length:] if length >= min(SHORTEST, len(self._seen)) else held


def longest(before: bytes, after: bytes) -> int:
    """Return the length of the longest end of ``before`` that ``after`` begins with (Knuth, Morris, Pratt: linear)."""
    after = after[: len(before)]
    borders = [0] * len(after)
    matched = 0
    for index in range(1, len(after)):
        while matched and after[index] != after[matched]:
            matched = borders[matched - 1]
        matched += after[index] == after[matched]
        borders[index] = matched
    matched = 0
    for byte in before[len(before) - len(after) :]:
        while matched and (matched == len(after) or byte != after[matched]):
            matched = borders[matched - 1]
        matched += matched < len(after) and byte == after[matched]
    return matched
