"""Sending side of a session: open calls, waiting calls and flow control."""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from storage.grpc import frames
from storage.grpc.calls import DEADLINE_EXCEEDED, PREFIX_BYTES, STREAM_WINDOW, UNAVAILABLE, Exchange, RpcError, Stream, framed

LAST_STREAM: Final = 2**31 - 1

# DATA's header with gRPC's message prefix, for a message in one frame.
_DATA_AND_PREFIX: Final = struct.Struct(">IBIBI")


class Sending:
    """The sending half of a Session."""

    def __init__(self) -> None:
        self.streams: dict[int, Exchange] = {}
        self.is_leaving = False
        """No new calls are possible."""
        self._next = 1
        self._waiting: deque[Exchange] = deque()  # for the server's limit of streams
        self._blocked: dict[Exchange, None] = {}  # open, but held back by flow control
        self._max_streams = LAST_STREAM
        self._send_window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._out: list[bytes] = []

    @property
    def is_idle(self) -> bool:
        """True if no call runs or is queued."""
        return not self.streams and not self._waiting

    def take(self) -> bytes:
        """Return the bytes to send, and clear them."""
        out, self._out = self._out, []
        return b"".join(out)

    @property
    def has_output(self) -> bool:
        """True if ``take`` returns something."""
        return bool(self._out)

    def open(self, exchange: Exchange) -> None:
        """Start a call, queue it while the server's limit is reached, or fail it after ``leave``."""
        if self.is_leaving:
            exchange.fail(RpcError(UNAVAILABLE, "the connection is being closed", processed=False))
        elif len(self.streams) >= self._max_streams:
            self._waiting.append(exchange)
        else:
            self._open(exchange)

    def send(self, stream: Stream, message: bytes) -> None:
        """Send a message on a stream, unless that has ended."""
        if stream.is_over:
            return
        stream.unsent += framed(message)
        self._blocked[stream] = None
        self._pump()

    def release(self, stream: Stream) -> None:
        """Let the server send more, if everything received was read."""
        stream.released += stream.free()
        if stream.released >= STREAM_WINDOW // 2 and stream.stream in self.streams:
            self._extend(stream)

    def cancel(self, exchange: Exchange) -> None:
        """Reset a call's stream and forget the call, without failing it; the server may have carried it out."""
        if self.streams.pop(exchange.stream, None) is None:
            if exchange in self._waiting:
                self._waiting.remove(exchange)
            return
        self._blocked.pop(exchange, None)
        self._out.append(frames.reset(exchange.stream, frames.CANCEL))
        self._admit()

    def expire(self, now: float) -> bool:
        """Cancel and fail calls with a deadline up to ``now``; return whether there were any."""
        late = [each for each in (*self.streams.values(), *self._waiting) if each.deadline <= now]
        for exchange in late:
            processed = bool(exchange.stream)
            self.cancel(exchange)
            exchange.fail(RpcError(DEADLINE_EXCEEDED, "no answer in time", processed=processed))
        return bool(late)

    def next_deadline(self) -> float:
        """Return the earliest deadline of all calls (infinity: none)."""
        return min((each.deadline for each in (*self.streams.values(), *self._waiting)), default=float("inf"))

    def ping(self) -> None:
        """Add a PING frame to the output."""
        self._out.append(frames.frame(frames.PING, 0, 0, b"virt-api"))

    def lost(self, message: str) -> None:
        """Fail all calls with ``message``: the connection is gone."""
        self.is_leaving = True
        opened, waiting = list(self.streams.values()), list(self._waiting)
        self.streams.clear()
        self._blocked.clear()
        self._waiting.clear()
        for exchange in opened:
            exchange.fail(RpcError(UNAVAILABLE, message))
        for exchange in waiting:
            exchange.fail(RpcError(UNAVAILABLE, message, processed=False))

    def leave(self) -> None:
        """Start no more calls on this connection, and fail the queued ones; running ones continue."""
        self.is_leaving = True
        waiting = list(self._waiting)
        self._waiting.clear()
        for exchange in waiting:
            exchange.fail(RpcError(UNAVAILABLE, "the connection is being closed", processed=False))

    def _open(self, exchange: Exchange) -> None:
        stream = exchange.stream = self._next
        self._next = stream + 2
        if self._next >= LAST_STREAM:
            self.leave()
        self.streams[stream] = exchange
        block, message = exchange.block, exchange.unsent
        size = len(message) + PREFIX_BYTES
        head = frames.HEADER.pack(len(block) << 8 | frames.HEADERS, frames.END_HEADERS, stream)
        if (
            exchange.ends
            and size <= frames.FRAME_BYTES
            and size <= self._send_window
            and size <= self._initial_window
            and not self._blocked
        ):
            self._send_window -= size
            data = _DATA_AND_PREFIX.pack(size << 8 | frames.DATA, frames.END_STREAM, stream, 0, size - PREFIX_BYTES)
            self._out += (head, block, data, message)
            exchange.unsent = b""
            return
        self._out += (head, block)
        exchange.send_window = self._initial_window
        if exchange.ends:
            exchange.unsent = framed(message)
            self._blocked[exchange] = None
            self._pump()

    def _admit(self) -> None:
        while self._waiting and len(self.streams) < self._max_streams:
            self._open(self._waiting.popleft())

    def _pump(self) -> None:
        for exchange in list(self._blocked):
            sent = 0
            unsent = exchange.unsent
            while sent < len(unsent):
                size = min(frames.FRAME_BYTES, self._send_window, exchange.send_window, len(unsent) - sent)
                if size <= 0:
                    break
                part = unsent[sent : sent + size]
                sent += size
                self._send_window -= size
                exchange.send_window -= size
                flags = frames.END_STREAM if exchange.ends and sent == len(unsent) else 0
                self._out.append(frames.frame(frames.DATA, flags, exchange.stream, part))
            exchange.unsent = unsent[sent:]
            if not exchange.unsent:
                del self._blocked[exchange]
            elif self._send_window <= 0:
                return

    def _extend(self, exchange: Exchange) -> None:
        exchange.credit += exchange.released
        self._out.append(frames.window_update(exchange.stream, exchange.released))
        exchange.released = 0
