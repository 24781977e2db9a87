"""One HTTP/2 connection of a client, without its socket: bytes in, bytes out, calls answered."""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from storage.etcd.http2 import frames
from storage.etcd.http2.calls import DEADLINE_EXCEEDED, PREFIX_BYTES, STREAM_WINDOW, UNAVAILABLE, Exchange, RpcError, Stream, framed
from storage.etcd.http2.frames import ProtocolError
from storage.etcd.http2.headers import MAX_BLOCK_BYTES, Heads

CONNECTION_WINDOW: Final = 16 * 1024 * 1024
MAX_CONTROL_FRAMES: Final = 1024
"""So many answers to pings and settings may wait for the socket; a server that asks for more is ended."""
_MAX_CONTINUATIONS: Final = 64
_LAST_STREAM: Final = 2**31 - 1
_SPECIAL: Final = frames.END_HEADERS | frames.PADDED | frames.PRIORITY

# The two frames of a call that fits into one: HEADERS' own header, and DATA's with the prefix of gRPC's message.
_DATA_AND_PREFIX: Final = struct.Struct(">IBIBI")


class Session:
    """Give ``receive`` what comes, send what ``take`` returns after every call of anything here."""

    def __init__(self) -> None:
        self.streams: dict[int, Exchange] = {}
        self.is_ready = False
        """The server has introduced itself: calls may be opened."""
        self.is_leaving = False
        """No further call may be opened here."""
        self._heads = Heads()
        self._next = 1
        self._waiting: deque[Exchange] = deque()  # not opened: the server has as many as it takes
        self._blocked: dict[Exchange, None] = {}  # opened, but flow control holds back what they send
        self._max_streams = _LAST_STREAM
        self._send_window = frames.DEFAULT_WINDOW
        self._initial_window = frames.DEFAULT_WINDOW
        self._credit = CONNECTION_WINDOW
        self._rest = b""
        self._block: tuple[int, int, list[bytes]] | None = None  # headers that go on: stream, whether it ends, parts
        self._control = 0
        self._out: list[bytes] = [
            frames.PREFACE,
            frames.settings(
                {
                    frames.SETTINGS_HEADER_TABLE_SIZE: 0,
                    frames.SETTINGS_ENABLE_PUSH: 0,
                    frames.SETTINGS_INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    frames.SETTINGS_MAX_HEADER_LIST_SIZE: MAX_BLOCK_BYTES,
                }
            ),
            frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW),
        ]

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self.streams and not self._waiting

    def take(self) -> bytes:
        """Return what is to be sent."""
        out, self._out = self._out, []
        self._control = 0
        return b"".join(out)

    @property
    def has_output(self) -> bool:
        """Whether ``take`` returns something."""
        return bool(self._out)

    # --- what we do

    def open(self, exchange: Exchange) -> None:
        """Begin a call, or queue it while the server has as many as it takes."""
        if self.is_leaving:
            exchange.fail(RpcError(UNAVAILABLE, "the connection is being left", processed=False))
        elif len(self.streams) >= self._max_streams:
            self._waiting.append(exchange)
        else:
            self._open(exchange)

    def send(self, stream: Stream, message: bytes) -> None:
        """Send a message on a stream that is open."""
        if stream.is_over:
            return
        stream.unsent += framed(message)
        self._blocked[stream] = None
        self._pump()

    def release(self, stream: Stream) -> None:
        """Let the server send more, if everything that came was taken."""
        stream.released += stream.free()
        if stream.released >= STREAM_WINDOW // 2 and stream.stream in self.streams:
            self._extend(stream)

    def cancel(self, exchange: Exchange) -> None:
        """Forget a call; the server may have carried it out."""
        if self.streams.pop(exchange.stream, None) is None:
            if exchange in self._waiting:
                self._waiting.remove(exchange)
            return
        self._blocked.pop(exchange, None)
        self._out.append(frames.reset(exchange.stream, frames.CANCEL))
        self._admit()

    def expire(self, now: float) -> bool:
        """Fail the calls whose deadline has come; return whether there were any."""
        late = [each for each in (*self.streams.values(), *self._waiting) if each.deadline <= now]
        for exchange in late:
            processed = bool(exchange.stream)
            self.cancel(exchange)
            exchange.fail(RpcError(DEADLINE_EXCEEDED, "no answer in time", processed=processed))
        return bool(late)

    def next_deadline(self) -> float:
        """Return the earliest deadline (infinity: none)."""
        return min((each.deadline for each in (*self.streams.values(), *self._waiting)), default=float("inf"))

    def ping(self) -> None:
        """Ask the server for a sign of life."""
        self._out.append(frames.frame(frames.PING, 0, 0, b"virt-api"))

    def lost(self, message: str) -> None:
        """Fail everything: the connection is gone."""
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
        """Open no more calls here."""
        self.is_leaving = True
        waiting = list(self._waiting)
        self._waiting.clear()
        for exchange in waiting:
            exchange.fail(RpcError(UNAVAILABLE, "the connection is being left", processed=False))

    def _open(self, exchange: Exchange) -> None:
        stream = exchange.stream = self._next
        self._next = stream + 2
        if self._next >= _LAST_STREAM:
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
        """Send of what is blocked as much as both windows let through."""
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

    # --- what comes

    def receive(self, data: bytes) -> None:
        """Take bytes, split anywhere.

        Raises:
            ProtocolError: the connection must be ended, once ``take`` is sent.
        """
        if self._rest:
            data = self._rest + data
        position, size = 0, len(data)
        usual = self.is_ready and self._block is None
        unpack = frames.HEADER.unpack_from
        while size - position >= frames.HEADER_BYTES:
            length, flags, stream = unpack(data, position)
            kind = length & 0xFF
            length >>= 8
            stream &= 0x7FFFFFFF  # one bit is reserved
            if length > frames.FRAME_BYTES:
                raise self._broken(frames.FRAME_SIZE_ERROR, f"a frame of {length} octets")
            begin = position + frames.HEADER_BYTES
            position = begin + length
            if position > size:
                position = begin - frames.HEADER_BYTES
                break
            try:
                if kind == frames.DATA and usual:
                    self._data(flags, stream, data[begin:position])
                elif kind == frames.HEADERS and flags & _SPECIAL == frames.END_HEADERS and usual:
                    self._head(stream, flags & frames.END_STREAM, data[begin:position])
                else:
                    self._frame(kind, flags, stream, data[begin:position])
                    usual = self.is_ready and self._block is None
            except ProtocolError as error:
                raise self._broken(error.code, str(error)) from error
        self._rest = data[position:]

    def _broken(self, code: int, message: str) -> ProtocolError:
        self._out.append(frames.goaway(code))
        return ProtocolError(code, message)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None and kind != frames.CONTINUATION:
            raise ProtocolError(frames.PROTOCOL_ERROR, "headers that do not go on")
        if kind == frames.DATA:
            self._data(flags, stream, payload)
        elif kind == frames.HEADERS:
            self._headers(flags, stream, payload)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, stream, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._window_update(stream, frames.number(payload))
        elif kind == frames.RST_STREAM:
            self._reset(stream, frames.number(payload))
        else:
            self._connection_frame(kind, flags, stream, payload)
        if not self.is_ready and kind != frames.SETTINGS:
            raise ProtocolError(frames.PROTOCOL_ERROR, "the server does not begin with its settings: is it HTTP/2?")

    def _connection_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.PUSH_PROMISE:
            raise ProtocolError(frames.PROTOCOL_ERROR, "a push that we do not take")
        if kind not in (frames.SETTINGS, frames.PING, frames.GOAWAY):
            return  # PRIORITY, and what later versions may bring
        if stream:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"a frame of the connection on stream {stream}")
        if kind == frames.SETTINGS:
            self._settings(flags, payload)
        elif kind == frames.PING:
            self._ping(flags, payload)
        else:
            self._goaway(payload)

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._credit -= size
        if self._credit < 0:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._credit < CONNECTION_WINDOW // 2:
            self._out.append(frames.window_update(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW
        exchange = self.streams.get(stream)
        if exchange is None:
            self._check_known(stream)
            return
        exchange.credit -= size
        if exchange.credit < 0:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more data than the stream's window")
        if flags & frames.PADDED:
            payload = frames.unpadded(flags, payload)
        read = exchange.receive(payload)
        if flags & frames.END_STREAM:
            self._close(exchange)
            exchange.finish(None)
        elif read < 0:
            self.cancel(exchange)
        else:
            exchange.released += read + size - len(payload)
            if exchange.released >= STREAM_WINDOW // 2:
                self._extend(exchange)

    def _headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & frames.PADDED:
            payload = frames.unpadded(flags, payload)
        if flags & frames.PRIORITY:
            if len(payload) < 5:
                raise ProtocolError(frames.FRAME_SIZE_ERROR, "headers without the priority that they announce")
            payload = payload[5:]
        ends = flags & frames.END_STREAM
        if flags & frames.END_HEADERS:
            self._head(stream, ends, payload)
        else:
            self._block = (stream, ends, [payload])

    def _continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise ProtocolError(frames.PROTOCOL_ERROR, "a continuation of nothing")
        _, ends, parts = self._block
        parts.append(payload)
        if len(parts) > _MAX_CONTINUATIONS or sum(map(len, parts)) > MAX_BLOCK_BYTES:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "headers without end")
        if flags & frames.END_HEADERS:
            self._block = None
            self._head(stream, ends, b"".join(parts))

    def _head(self, stream: int, ends: int, block: bytes) -> None:
        head = self._heads.known.get(block) or self._heads.decode(block)
        exchange = self.streams.get(stream)
        if exchange is None:
            self._check_known(stream)
        elif ends:
            self._close(exchange)
            exchange.finish(head)
        elif not head.is_beginning and not 100 <= head.http_status < 200:
            exchange.fail(RpcError(UNAVAILABLE, f"the server answers HTTP {head.http_status}{'' if head.is_grpc else ', not gRPC'}"))
            self.cancel(exchange)

    def _check_known(self, stream: int) -> None:
        """Pass over what comes for a call that we have given up; there must have been one."""
        if not stream & 1 or stream >= self._next:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"stream {stream} was never opened")

    def _close(self, exchange: Exchange) -> None:
        """Both sides are done with a stream."""
        del self.streams[exchange.stream]
        if exchange.unsent or not exchange.ends:  # the server does not wait for what we had to say
            self._blocked.pop(exchange, None)
            self._out.append(frames.reset(exchange.stream, frames.CANCEL))
        if self._waiting:
            self._admit()

    def _reset(self, stream: int, code: int) -> None:
        exchange = self.streams.pop(stream, None)
        if exchange is None:
            self._check_known(stream)
            return
        self._blocked.pop(exchange, None)
        error = RpcError(UNAVAILABLE, f"the server reset the stream: {frames.error_name(code)}", processed=code != frames.REFUSED_STREAM)
        exchange.fail(error)
        self._admit()

    def _window_update(self, stream: int, increment: int) -> None:
        increment &= 0x7FFFFFFF
        if not increment:
            raise ProtocolError(frames.PROTOCOL_ERROR, "a window update of nothing")
        if stream == 0:
            self._send_window += increment
            window = self._send_window
        else:
            exchange = self.streams.get(stream)
            if exchange is None:
                self._check_known(stream)
                return
            exchange.send_window += increment
            window = exchange.send_window
        if window > frames.MAX_WINDOW:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "a window larger than windows are")
        if self._blocked:
            self._pump()

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ProtocolError(frames.FRAME_SIZE_ERROR, "an acknowledgement with settings in it")
            return
        for key, value in frames.pairs(payload):
            self._setting(key, value)
        self.is_ready = True
        self._answer(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))
        self._admit()
        self._pump()

    def _setting(self, key: int, value: int) -> None:
        """Heed one setting. The size of its table and of its frames need nothing: we use no table and no larger frames."""
        if key == frames.SETTINGS_MAX_CONCURRENT_STREAMS:
            self._max_streams = value
        elif key == frames.SETTINGS_INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise ProtocolError(frames.FLOW_CONTROL_ERROR, "a window larger than windows are")
            for exchange in self.streams.values():
                exchange.send_window += value - self._initial_window
            self._initial_window = value
        elif key == frames.SETTINGS_MAX_FRAME_SIZE and not frames.FRAME_BYTES <= value < 2**24:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"a maximal frame of {value} octets")

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, f"a ping of {len(payload)} octets")
        if not flags & frames.ACK:
            self._answer(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _answer(self, control: bytes) -> None:
        self._control += 1
        if self._control > MAX_CONTROL_FRAMES:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "more pings and settings than we answer")
        self._out.append(control)

    def _goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, "GOAWAY without its code")
        last = frames.number(payload[:4]) & 0x7FFFFFFF
        message = f"the server leaves: {frames.error_name(frames.number(payload[4:8]))}: {payload[8:200].decode(errors='replace')}"
        self.leave()
        for exchange in [each for each in self.streams.values() if each.stream > last]:
            del self.streams[exchange.stream]
            self._blocked.pop(exchange, None)
            exchange.fail(RpcError(UNAVAILABLE, message, processed=False))
