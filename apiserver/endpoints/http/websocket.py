"""Websockets (RFC 6455) on a connection of this server, with frames of the sans-I/O ``websockets``.

Import it late.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import SERVER, Protocol, State

from apiserver.endpoints.http.connection import Connection, Gone
from apiserver.endpoints.http.messages import Request, Response
from apiserver.endpoints.http.slices import Slices
from apiserver.endpoints.http.upgrade import TOKEN_PROTOCOL, Closed, offered

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HELD: Final = 32 << 10
"""Most undecoded bytes before reading pauses."""
_ABNORMAL: Final = 1006


def texts(messages: Iterable[bytes]) -> bytes:
    """Encode text messages (UTF-8) as a server's frames, for any websocket."""
    return b"".join([Frame(Opcode.TEXT, data).serialize(mask=False) for data in messages])


class WebSocket(Response):
    """The server's side of a websocket, and its handler's response.

    One task receives frames, to pass them on; any may send. A binary message is not decoded.
    """

    __slots__ = (
        "_carrier", "_ended", "_heard", "_held", "_max_bytes", "_messages", "_on_close", "_paused", "_ping_seconds", "_protocol",
        "_ready", "_request", "_socket_bytes", "_timer", "subprotocol",
    )  # fmt: skip
    prepared = True

    def __init__(
        self,
        request: Request,
        *,
        protocols: Sequence[str] = (),
        max_bytes: int = 1 << 20,
        ping_seconds: float = 0.0,
        socket_bytes: int = 0,
        on_close: Callable[[], object] | None = None,
    ) -> None:
        """Prepare a websocket for the handshake ``request``.

        ``protocols``: best first. ``max_bytes``: of a message. ``ping_seconds``: interval; 0: none. ``socket_bytes``: kernel
        buffers, each way; 0: the default. ``on_close``: called at the client's close; discards messages, so never call
        :meth:`receive_frames`.
        """
        super().__init__(status=101)
        self._on_close = on_close
        self._request = request
        self._carrier = cast("Connection", request.carrier)
        known = offered(request)
        self.subprotocol = next((each for each in protocols if each in known and not each.startswith(TOKEN_PROTOCOL)), "")
        self._max_bytes = max_bytes
        self._protocol = Protocol(SERVER, state=State.OPEN, max_size=max_bytes)
        self._ping_seconds = ping_seconds
        self._socket_bytes = socket_bytes
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._held = Slices()
        self._messages: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._paused = False
        self._ended = False

    async def accept(self) -> None:
        """Answer 101 with :attr:`headers` and switch to frames, after ``upgrade.is_well_formed``. Raises ConnectionError."""
        key = self._request.headers["Sec-WebSocket-Key"].encode()
        self.headers["Upgrade"] = "websocket"
        self.headers["Connection"] = "Upgrade"
        self.headers["Sec-WebSocket-Accept"] = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest()).decode()
        if self.subprotocol:
            self.headers["Sec-WebSocket-Protocol"] = self.subprotocol
        self._carrier.take_over(self._received, self)
        if self._socket_bytes:
            self._carrier.narrow(self._socket_bytes)
        if self._ping_seconds:
            self._beat()

    async def receive_frames(self) -> bytes:
        """Return the next message, or a fragment of one, encoded as a client's frames. Raises Closed."""
        while not self._messages:
            if self._decode():
                continue
            if self._ended:
                close = self._protocol.close_rcvd
                raise Closed(close.code if close else _ABNORMAL, close.reason if close else "")
            await self._wait()
        return self._messages.popleft()

    def push(self, frames: bytes) -> bool:
        """Send encoded server's frames, such as :func:`texts`; return whether there is room for more, else await :meth:`room`.

        Raises ConnectionError.
        """
        if self._protocol.state is not State.OPEN:
            raise Gone("the WebSocket is closed")
        return self._carrier.send_now(frames)

    async def room(self) -> None:
        """Wait until there is room for more. Raises Gone."""
        await self._carrier.room()

    async def end(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame; discard messages until the client's close or disconnection. Safe to repeat.

        The handler's end closes the connection. There is no time limit. Raises ConnectionError if the frame cannot be sent.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            await self._carrier.send(self._frames())
        while not self._ended:
            self._messages.clear()
            if not self._decode():
                await self._wait()
        self._stop_beating()

    async def _wait(self) -> None:
        self._ready.clear()
        self._paused = False
        self._carrier.pause(reading=True)
        await self._ready.wait()

    def _received(self, data: bytes) -> None:
        self._heard = True
        if data:
            self._held.add(data)
            while not self._messages and self._decode():
                pass
            if self._messages and len(self._held) > _HELD:
                self._paused = True
                self._carrier.pause(reading=False)
        else:
            self._held.clear()
            self._protocol.receive_eof()
            self._take_events(gone=True)
        self._ready.set()

    def _decode(self) -> bool:
        if self._ended:
            return False
        if self._on_close is None and (whole := self._held.message(self._max_bytes, masked=True)) is not None:
            if whole:
                self._messages.append(whole)
            return bool(whole)
        if not (piece := self._held.cut()):
            return False
        self._protocol.receive_data(piece)
        self._take_events(gone=False)
        return True

    def _take_events(self, *, gone: bool) -> None:
        for event in self._protocol.events_received():
            frame = cast("Frame", event)
            if frame.opcode in DATA_OPCODES and self._on_close is None:
                self._messages.append(frame.serialize(mask=True))
        answers = self._frames()
        if answers and (self._carrier.has_room or self._protocol.state is not State.OPEN):
            self._carrier.send_now(answers)  # RFC 6455, 5.5.3 allows dropping pongs
        if gone or self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None:
            self._held.clear()
            self._end(gone=gone)

    def _end(self, *, gone: bool) -> None:
        self._stop_beating()
        if not self._ended:
            self._ended = True
            if self._on_close is not None and not gone and self._protocol.close_rcvd_then_sent is not False:
                self._on_close()

    def _frames(self) -> bytes:
        return b"".join(self._protocol.data_to_send())

    def _beat(self) -> None:
        if not self._heard and not self._paused:
            self._carrier.abort()
            return
        self._heard = False
        self._protocol.send_ping(b"")
        self._carrier.send_now(self._frames())
        self._timer = asyncio.get_running_loop().call_later(self._ping_seconds, self._beat)

    def _stop_beating(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
