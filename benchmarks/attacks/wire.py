"""A client's side of TLS between asyncio's streams and OpenSSL: every byte is ours to send, to hold back or to leave unread."""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import socket
import ssl
from typing import Final

_UNREAD: Final = 1 << 10
_LIMIT: Final = 1 << 16
_SSL_OF_OBJECT: Final = 24
"""Offset of OpenSSL's ``SSL *`` in CPython's ``_ssl._SSLSocket``: behind the head of an object and one more pointer."""


class _Reader(asyncio.StreamReader):
    """Knows that the server has ended the connection before all that it said was read."""

    ended = False

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.ended = True
        super().set_exception(exc)


class Wire:
    """One connection. Whatever the server does to it raises ConnectionError, as a reset does."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing)

    @classmethod
    async def connect(cls, port: int, source: str, *, reads: bool = True, room: int = 0) -> Wire:
        """Connect from an address of loopback; who does not read lets answers pile up, after ``room`` bytes if that is given."""
        link = socket.socket()
        link.settimeout(0)
        if room:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        loop = asyncio.get_running_loop()
        try:
            link.bind((source, 0))
            await loop.sock_connect(link, ("127.0.0.1", port))
        except OSError:
            link.close()
            raise
        reader = _Reader(limit=_LIMIT if reads else _UNREAD)
        transport, protocol = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=link)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @property
    def is_open(self) -> bool:
        """True unless the server has ended it, as far as it was heard."""
        return not self.writer.is_closing() and not self.reader.ended

    def hello(self) -> bytes:
        """Return the first flight of a handshake."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise ConnectionError("the handshake needed no answer")

    async def shake(self) -> None:
        """Do the whole handshake, without a certificate."""
        self.send(self.hello())
        while True:
            data = await self.reader.read(1 << 16)
            if not data:
                raise ConnectionResetError("ended in the handshake")
            self._incoming.write(data)
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self.send(self._outgoing.read())
                continue
            except ssl.SSLError as error:
                raise ConnectionResetError(str(error)) from error
            self.send(self._outgoing.read())
            return

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    async def say(self, data: bytes) -> None:
        """Send bytes through TLS; returns when the socket has taken most of them."""
        self._object.write(data)
        self.send(self._outgoing.read())
        await self.writer.drain()

    async def hear(self) -> bytes:
        """Return what comes through TLS, nothing at the end."""
        while True:
            try:
                return self._object.read(1 << 16)
            except ssl.SSLWantReadError:
                data = await self.reader.read(1 << 16)
                if not data:
                    return b""
                self._incoming.write(data)
            except ssl.SSLError:
                return b""

    def ask_for_keys(self, times: int) -> bytes:
        """Return so many records that change our keys and ask the server to change its own (RFC 8446, section 4.6.3)."""
        library = ctypes.CDLL(_ssl.__file__)
        pointer = ctypes.c_void_p.from_address(id(getattr(self._object, "_sslobj")) + _SSL_OF_OBJECT)  # noqa: B009 - no public name
        for _ in range(times):
            library.SSL_key_update(pointer, 1)
            library.SSL_do_handshake(pointer)
        return self._outgoing.read()

    def abort(self) -> None:
        """Let go at once."""
        self.writer.transport.abort()
