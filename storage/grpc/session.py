"""The client side of one HTTP/2 connection without its socket: bytes in, bytes out, calls answered."""

from __future__ import annotations

from typing import Final

from storage.grpc import frames
from storage.grpc.calls import STREAM_WINDOW, UNAVAILABLE, Exchange, RpcError
from storage.grpc.frames import ProtocolError
from storage.grpc.headers import MAX_BLOCK_BYTES, Heads
from storage.grpc.sending import Sending

CONNECTION_WINDOW: Final = 16 * 1024 * 1024
MAX_CONTROL_FRAMES: Final = 1024
"""Queued answers to pings and settings before disconnecting the server."""
_MAX_CONTINUATIONS: Final = 64
_SPECIAL: Final = frames.END_HEADERS | frames.PADDED | frames.PRIORITY


class Session(Sending):
    """An HTTP/2 client without its socket: pass input to ``receive``, and send the result of ``take`` after every call."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = False
        """The server's SETTINGS came: calls can start."""
        self._heads = Heads()
        self._credit = CONNECTION_WINDOW
        self._rest = b""
        self._block: tuple[int, int, list[bytes]] | None = None  # incomplete headers: stream, whether it ends, parts
        self._control = 0
        self._out = [
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

    def take(self) -> bytes:
        """Return the bytes to send, and clear them."""
        self._control = 0
        return super().take()

    def receive(self, data: bytes) -> None:
        """Receive bytes, split anywhere.

        Raises:
            ProtocolError: the connection must end, after sending ``take``.
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
                raise self._broken(frames.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
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
            raise ProtocolError(frames.PROTOCOL_ERROR, "headers without their continuation")
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
            raise ProtocolError(frames.PROTOCOL_ERROR, "the server did not start with SETTINGS: is it an HTTP/2 server?")

    def _connection_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.PUSH_PROMISE:
            raise ProtocolError(frames.PROTOCOL_ERROR, "a server push, which is disabled")
        if kind not in (frames.SETTINGS, frames.PING, frames.GOAWAY):
            return  # PRIORITY, and frames of later versions
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
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more data than the connection's flow-control window")
        if self._credit < CONNECTION_WINDOW // 2:
            self._out.append(frames.window_update(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW
        exchange = self.streams.get(stream)
        if exchange is None:
            self._check_known(stream)
            return
        exchange.credit -= size
        if exchange.credit < 0:
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "more data than the stream's flow-control window")
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
                raise ProtocolError(frames.FRAME_SIZE_ERROR, "HEADERS without the announced priority")
            payload = payload[5:]
        ends = flags & frames.END_STREAM
        if flags & frames.END_HEADERS:
            self._head(stream, ends, payload)
        else:
            self._block = (stream, ends, [payload])

    def _continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise ProtocolError(frames.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        _, ends, parts = self._block
        parts.append(payload)
        if len(parts) > _MAX_CONTINUATIONS or sum(map(len, parts)) > MAX_BLOCK_BYTES:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "HEADERS of unlimited length")
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
        if not stream & 1 or stream >= self._next:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"stream {stream} was never opened")

    def _close(self, exchange: Exchange) -> None:
        del self.streams[exchange.stream]
        if exchange.unsent or not exchange.ends:  # the server does not need the rest
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
            raise ProtocolError(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
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
            raise ProtocolError(frames.FLOW_CONTROL_ERROR, "a flow-control window above the maximum")
        if self._blocked:
            self._pump()

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ProtocolError(frames.FRAME_SIZE_ERROR, "a SETTINGS acknowledgement with payload")
            return
        for key, value in frames.pairs(payload):
            self._setting(key, value)
        self.is_ready = True
        self._answer(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))
        self._admit()
        self._pump()

    def _setting(self, key: int, value: int) -> None:
        if key == frames.SETTINGS_MAX_CONCURRENT_STREAMS:
            self._max_streams = value
        elif key == frames.SETTINGS_INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise ProtocolError(frames.FLOW_CONTROL_ERROR, "a flow-control window above the maximum")
            for exchange in self.streams.values():
                exchange.send_window += value - self._initial_window
            self._initial_window = value
        elif key == frames.SETTINGS_MAX_FRAME_SIZE and not frames.FRAME_BYTES <= value < 2**24:
            raise ProtocolError(frames.PROTOCOL_ERROR, f"an invalid maximum frame size of {value} bytes")

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes")
        if not flags & frames.ACK:
            self._answer(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _answer(self, control: bytes) -> None:
        self._control += 1
        if self._control > MAX_CONTROL_FRAMES:
            raise ProtocolError(frames.ENHANCE_YOUR_CALM, "too many PING and SETTINGS frames")
        self._out.append(control)

    def _goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ProtocolError(frames.FRAME_SIZE_ERROR, "GOAWAY without its code")
        last = frames.number(payload[:4]) & 0x7FFFFFFF
        message = (
            f"the server closes the connection (GOAWAY): {frames.error_name(frames.number(payload[4:8]))}: "
            f"{payload[8:200].decode(errors='replace')}"
        )
        self.leave()
        for exchange in [each for each in self.streams.values() if each.stream > last]:
            del self.streams[exchange.stream]
            self._blocked.pop(exchange, None)
            exchange.fail(RpcError(UNAVAILABLE, message, processed=False))
