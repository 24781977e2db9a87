"""A client's side of TLS, which can send, withhold or ignore every byte."""

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
"""Offset of OpenSSL's ``SSL *`` in CPython's ``_ssl._SSLSocket``: after the object head and one pointer."""


class _Reader(asyncio.StreamReader):
    """Detects that the server closed the connection, even with unread data."""

    ended = False

    def feed_eof(self) -> None:
        self.ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.ended = True
        super().set_exception(exc)


class Wire:
    """An attacker's connection. Sending raises ConnectionError after the server closed it."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing)

    @classmethod
    async def connect(cls, port: int, source: str, *, reads: bool = True, room: int = 0) -> Wire:
        """Return a connection from the loopback address ``source`` to ``port``. Raises OSError.

        ``room``: receive buffer in bytes; if not ``reads``, it fills up.
        """
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
        """Return False if the connection is known to be closed."""
        return not self.writer.is_closing() and not self.reader.ended

    def hello(self) -> bytes:
        """Return the first bytes of a client's TLS handshake; the caller sends them."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise ConnectionError("the handshake needed no answer")

    async def shake(self) -> None:
        """Complete the TLS handshake without a client certificate. Raises ConnectionError."""
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
        """Send raw bytes without waiting."""
        self.writer.write(data)

    async def say(self, data: bytes) -> None:
        """Send bytes through TLS; return when the socket has accepted most of them."""
        self._object.write(data)
        self.send(self._outgoing.read())
        await self.writer.drain()

    async def hear(self) -> bytes:
        """Wait for data of the server and return it, decrypted; empty after its end or a TLS error."""
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
        """Return records that change our keys and request the server's new ones, ``times`` times (RFC 8446)."""
        library = ctypes.CDLL(_ssl.__file__)
        pointer = ctypes.c_void_p.from_address(id(getattr(self._object, "_sslobj")) + _SSL_OF_OBJECT)  # noqa: B009 - no public name
        for _ in range(times):
            library.SSL_key_update(pointer, 1)
            library.SSL_do_handshake(pointer)
        return self._outgoing.read()

    def abort(self) -> None:
        """Close at once."""
        self.writer.transport.abort()
