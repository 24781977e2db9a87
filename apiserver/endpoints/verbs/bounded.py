"""A client's websocket that keeps what its reader has not asked for as bytes, and of these no more than one read of the socket.

The library decodes whatever arrives before it stops reading: of frames of two bytes, a read of 256 KiB makes objects of 30 MiB. And it
answers each ping, though nobody takes the answers. Both would be for the other side to choose: a node that was taken over.
"""

from __future__ import annotations

import asyncio
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from apiserver.client import buffers

SLICE: Final = 4 << 10
"""Bytes that are decoded at once: 2,000 frames at most, of 200 bytes each."""

TLS_BYTES: Final = 32 << 10
"""Bytes that wait to be deciphered, beyond which the socket is not read from."""

SOCKET_BYTES: Final = 64 << 10


class Bounded(ClientConnection):
    """Decodes in slices, as long as its reader takes the messages."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        if limit := getattr(transport, "set_read_buffer_limits", None):  # of TLS, in asyncio and uvloop alike: 256 KiB by itself
            limit(high=TLS_BYTES)
        buffers.narrow(transport, SOCKET_BYTES)
        self._held = bytearray()
        self._decoding = False
        self.recv_messages.resume = self._resume

    def data_received(self, data: bytes) -> None:
        """Take bytes of the server."""
        self._held += data
        self._decode(all_of_it=False)

    def eof_received(self) -> None:
        """Decode what is there, for nothing comes after it."""
        self._decode(all_of_it=True)
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Decode what is there, for nothing comes after it."""
        if self.protocol.state is not State.CLOSED:
            self._decode(all_of_it=True)
        super().connection_lost(exc)

    def send_data(self) -> None:
        """Send what the protocol wants sent; pongs that there is no room for are not owed (RFC 6455, 5.5.3)."""
        if self._decoding and self.paused and self.protocol.state is State.OPEN:
            self.protocol.data_to_send()
        else:
            super().send_data()

    def _decode(self, *, all_of_it: bool) -> None:
        self._decoding = True
        try:
            while self._held and (all_of_it or not self.recv_messages.paused):
                piece = bytes(self._held[:SLICE])
                del self._held[:SLICE]
                super().data_received(piece)
        finally:
            self._decoding = False

    def _resume(self) -> None:
        """Go on, once the reader has taken what there was: with what is here, then with the socket."""
        self._decode(all_of_it=False)
        if not self.recv_messages.paused:
            self.transport.resume_reading()
