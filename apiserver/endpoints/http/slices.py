"""Cuts a websocket's input into whole messages to pass on, and slices to decode: few short frames at once, but a long frame whole."""

from __future__ import annotations

from typing import Final

SLICE: Final = 4 << 10
"""At most so many bytes of whole frames, 2,000 frames with 200 bytes of memory each; then the frame that begins within."""
_BINARY: Final = b"\x82"
"""Of a message in one frame, without extensions."""


class Slices:
    """A websocket's received, undecoded frames (RFC 6455, 5.2). Only their lengths are read; the decoder checks them."""

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

    def message(self, most: int, *, masked: bool) -> bytes | None:
        """Remove and return the next frame, undecoded, if it is a binary message of at most ``most`` bytes; empty if incomplete.

        ``masked``: the sender is a client. None: anything else, for :meth:`cut` and the decoder; also without input.
        """
        held = self._held
        if self._rest or self._shown or held[:1] != _BINARY or (len(held) > 1 and held[1] >> 7 != masked):
            return None
        head, length = measure(held, 0)
        if length > most:
            return None
        size = head + length
        if not head or size > len(held):
            return b""
        piece = bytes(memoryview(held)[:size])
        del held[:size]
        return piece

    def cut(self) -> bytes:
        """Remove and return the next slice, for the decoder; empty without input."""
        end = self._rest
        while end < SLICE and (size := sum(measure(self._held, end))):
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
        """Remove and return all that is left."""
        piece = bytes(self._held[self._shown :])
        self.clear()
        return piece


def measure(held: bytearray, start: int) -> tuple[int, int]:
    """Return the lengths of head (with a mask) and payload of the frame at ``start``; zeros if its length is incomplete."""
    if len(held) < start + 2:
        return 0, 0
    marked, length = divmod(held[start + 1], 128)
    head = 2 + 4 * marked
    if length >= 126:
        more = 2 if length == 126 else 8
        if len(held) < start + 2 + more:
            return 0, 0
        length = int.from_bytes(held[start + 2 : start + 2 + more])
        head += more
    return head, length
