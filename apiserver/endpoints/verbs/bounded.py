"""A client websocket that passes frames on, and buffers unread input as bytes: at most a message and one socket read.

The library decodes all input before it pauses: 256 KiB of two-byte frames become 30 MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import Event, State

from apiserver.client import buffers
from apiserver.endpoints.http.slices import Slices

_HEAD_END: Final = b"\r\n\r\n"
_MAX_HEAD_BYTES: Final = 64 << 10

TLS_BYTES: Final = 32 << 10
"""Undecrypted, before reading pauses."""

SOCKET_BYTES: Final = 64 << 10

_PING_BYTES: Final = 8
"""More than the library's own pings have."""
_PING_HEAD: Final = bytes((0x89, 0x80 | _PING_BYTES, 0, 0, 0, 0))
"""With a mask of zeros, because TLS hides it."""


class Bounded(ClientConnection):
    """A client websocket that decodes input only while its reader takes it.

    ``recv`` returns the encoded frames, as bytes, of a message or of a fragment.

    ``protocol.writes`` is undocumented in websockets 17.4: read it with each new version.
    """

    async def send_frames(self, frames: bytes) -> None:
        """Send a client's encoded frames, like ``send``, without the library's ten calls for each."""
        if not self._is_open or self.transport.is_closing():
            async with self.send_context():
                return
        self.transport.write(frames)
        if self.paused:
            await self.drain()

    async def send_with_ping(self, frames: bytes) -> Awaitable[float]:
        """Send encoded frames and a ping in one write; the returned awaitable ends with the pong."""
        self._pings += 1
        payload = self._pings.to_bytes(_PING_BYTES)
        pong: asyncio.Future[float] = self.loop.create_future()
        self.pending_pings[payload] = (pong, self.loop.time())
        await self.send_frames(b"".join((frames, _PING_HEAD, payload)))
        return pong

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the buffers of TLS and kernel."""
        super().connection_made(transport)
        if limit := getattr(transport, "set_read_buffer_limits", None):  # asyncio and uvloop: 256 KiB
            limit(high=TLS_BYTES)
        buffers.narrow(transport, SOCKET_BYTES)
        self._head: bytearray | None = bytearray() if self.protocol.state is State.CONNECTING else None
        """Incomplete; slices begin with a frame."""
        self._most = self.protocol.max_message_size or 0
        self._held = Slices()
        self._decoding = False
        self._pings = 0
        self.recv_messages.resume = self._resume

    def data_received(self, data: bytes) -> None:
        """Hold input; decode it while the reader of messages keeps up."""
        self._held.add(data if self._head is None else self._behind_head(data))
        self._decode(all_of_it=False)

    def _behind_head(self, data: bytes) -> bytes:
        self._head = head = (self._head or bytearray()) + data
        end = head.find(_HEAD_END)
        if end < 0 and len(head) <= _MAX_HEAD_BYTES:
            return b""
        size = end + len(_HEAD_END) if end >= 0 else len(head)
        self._head = None
        super().data_received(bytes(head[:size]))
        return bytes(head[size:])

    def eof_received(self) -> None:
        """Decode all held frames, although the reader has paused."""
        self._decode(all_of_it=True)
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Decode all held frames, although the reader has paused."""
        if self.protocol.state is not State.CLOSED:
            self._decode(all_of_it=True)
        super().connection_lost(exc)

    def send_data(self) -> None:
        """Send the protocol's output. Without room, drop pongs: RFC 6455, 5.5.3 allows it."""
        if self._decoding and self.paused and self.protocol.state is State.OPEN:
            self.protocol.data_to_send()
        else:
            if len(self.protocol.writes) > 1 and all(self.protocol.writes):  # an empty one ends the connection
                self.protocol.writes[:] = [b"".join(self.protocol.writes)]
            super().send_data()

    def _decode(self, *, all_of_it: bool) -> None:
        self._decoding = True
        try:
            while self._held and (all_of_it or not self.recv_messages.paused):
                whole = None if all_of_it or not self._is_open else self._held.message(self._most, masked=False)
                if whole is None:
                    super().data_received(self._held.all() if all_of_it else self._held.cut())
                elif whole:
                    self.recv_messages.put(Frame(Opcode.BINARY, whole))
                else:
                    break
        finally:
            self._decoding = False

    @property
    def _is_open(self) -> bool:
        return self.protocol.state is State.OPEN

    def process_event(self, event: Event) -> None:
        """Replace a data frame by a binary one with its encoding, for a reader that sends it on."""
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            event = Frame(Opcode.BINARY, event.serialize(mask=False))
        super().process_event(event)

    def _resume(self) -> None:
        self._decode(all_of_it=False)
        if not self.recv_messages.paused:
            self.transport.resume_reading()
