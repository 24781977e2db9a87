"""Cuts a websocket's input into slices to decode: few short frames at once, but a long frame whole.

A slice of empty frames becomes objects of a hundred times its size. A long frame in small slices takes a third more processor time.
"""

from __future__ import annotations

from typing import Final

SLICE: Final = 4 << 10
"""At most so many bytes of whole frames, 2,000 frames with 200 bytes of memory each; then the frame that begins within."""


class Slices:
    """Undecoded frames (RFC 6455, 5.2). The decoder judges them; the cutter only reads their lengths."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._rest = 0
        """Uncut bytes of the present frame."""
        self._shown = 0
        """Held bytes of an incomplete head."""

    def __len__(self) -> int:
        return len(self._held) - self._shown

    def add(self, data: bytes) -> None:
        """Append input."""
        self._held += data

    def clear(self) -> None:
        """Discard all input."""
        self._held.clear()
        self._rest = self._shown = 0

    def cut(self) -> bytes:
        """Return the next slice; empty without input."""
        end = self._rest
        while end < SLICE and (size := frame_bytes(self._held, end)):
            end += size
        shown, count = self._shown, min(end, len(self._held))
        if not end:
            self._shown = len(self._held)
            return bytes(self._held[shown:])
        piece = bytes(memoryview(self._held)[shown:count])
        del self._held[:count]
        self._rest, self._shown = end - count, 0
        return piece

    def all(self) -> bytes:
        """Return all that is left."""
        piece = bytes(self._held[self._shown :])
        self.clear()
        return piece


def frame_bytes(held: bytearray, start: int) -> int:
    """Return the length of the frame at ``start``; 0 without its whole head."""
    if len(held) < start + 2:
        return 0
    marked, length = divmod(held[start + 1], 128)
    head = 2 + 4 * marked
    if length >= 126:
        more = 2 if length == 126 else 8
        if len(held) < start + 2 + more:
            return 0
        length = int.from_bytes(held[start + 2 : start + 2 + more])
        head += more
    return head + length
