"""Scrollback: detect output that a reconnected console repeats, to print it once.

virt-launcher starts every connection with its newest output (``layout.CONSOLE_REPLAY_BYTES``). A session searches it
for its own last output, and prints the rest; after a move to another launcher, all.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.places.layout import CONSOLE_REPLAY_BYTES

SHORTEST: Final = 16
"""In bytes; shorter overlaps are chance (a prompt), unless the session saw no more."""


class Scrollback:
    """The newest ``limit`` bytes of a session's output."""

    def __init__(self, limit: int = CONSOLE_REPLAY_BYTES) -> None:
        self._limit = limit
        self.content = b""

    def add(self, content: bytes) -> None:
        """Append output, dropping the oldest."""
        self.content = (self.content + content)[-self._limit :]


class Overlap:
    """Finds what a new connection repeats of the output ``seen`` before."""

    def __init__(self, seen: bytes) -> None:
        self._seen = seen
        self._held = b""
        self.decided = not seen

    def take(self, content: bytes) -> bytes:
        """Return the bytes of a new connection not seen before; empty while undecided."""
        if self.decided:
            return content
        self._held += content
        position = self._seen.find(self._held)
        if position >= 0 and position + len(self._held) < len(self._seen):
            return b""
        return self.rest()

    def rest(self) -> bytes:
        """Decide with the bytes so far, because of a pause or the end; return those not seen before."""
        held, self._held, self.decided = self._held, b"", True
        length = longest(self._seen, held)
        return held[length:] if length >= min(SHORTEST, len(self._seen)) else held


def longest(before: bytes, after: bytes) -> int:
    """Return the length of the longest suffix of ``before`` that is a prefix of ``after`` (Knuth, Morris, Pratt: linear)."""
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
