"""TLS between a connection and its socket, with OpenSSL in memory (``docs/decisions/api-server.md``).

:class:`Tls` is the protocol of the socket's transport, and the transport of a
:class:`~apiserver.endpoints.http.connection.Connection`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from apiserver.endpoints.http.caps import origin
from apiserver.endpoints.http.connection import Connection
from apiserver.endpoints.http.hello import Hello, completeness
from apiserver.endpoints.http.turns import Turns

logger = logging.getLogger(__name__)

_RECORD: Final = 16 << 10
"""RFC 8446, section 5.1."""
FEW_ARRIVALS: Final = 16 << 10
"""Before a certificate: OpenSSL's buffer keeps its largest size."""
_MAX_HANDSHAKE: Final = 32 << 10
"""With certificates; Kubernetes' clients send about 3 KiB."""
_MAX_OWN: Final = 4 << 10
"""Bytes that OpenSSL may send alone: a client could request new keys (RFC 8446, section 4.6.3) without end."""


class Owner(Protocol):
    """Creates and counts connections, as their TLS sees it."""

    make: Callable[[], Connection]
    newest: Callable[[], ssl.SSLContext]
    """For the next connection."""
    arrivals: memoryview
    """Shared by all connections."""
    few_arrivals: memoryview
    """For connections without a certificate."""
    outgoing: ssl.MemoryBIO
    """Shared; empty before other code runs."""
    turns: Turns

    def began(self, tls: Tls) -> asyncio.TimerHandle:
        """Count a running handshake; return the timer that aborts it."""
        ...

    def shaken(self, tls: Tls, certificate: bytes | None) -> None:
        """After the handshake, count the connection by client certificate, or by address if None."""
        ...

    def ended(self, tls: Tls) -> None:
        """Remove a connection from all counts."""
        ...

    def failed(self) -> None:
        """Count a failed handshake."""
        ...


class Tls(asyncio.BufferedProtocol, asyncio.Transport):
    """The server's side of TLS on one connection."""

    __slots__ = (
        "_answered", "_arrivals", "_closing", "_connection", "_handshakes", "_hello", "_incoming", "_is_waiting", "_object", "_outgoing",
        "_said", "_timer", "_transport", "origin",
    )  # fmt: skip

    _incoming: ssl.MemoryBIO
    _object: ssl.SSLObject

    def __init__(self, handshakes: Owner) -> None:
        self._handshakes = handshakes
        self._arrivals = handshakes.few_arrivals
        self._outgoing = handshakes.outgoing
        self._hello: bytearray | None = bytearray()  # None: OpenSSL has it, and :attr:`_object` exists
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said = 0  # the client's handshake in bytes
        self._answered = 0  # sent by OpenSSL alone
        self._closing = False
        self._is_waiting = False
        self.origin = ""
        """Key of the client's address."""

    @property
    def is_busy(self) -> bool:
        """True if the client waits for us."""
        return self._is_waiting if self._connection is None else self._connection.is_busy

    # Callbacks of the socket's transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.origin = origin(str(address[0])) if address else ""
        self._timer = self._handshakes.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared receive buffer."""
        del sizehint
        return self._arrivals

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes to the handshake or the connection."""
        if self._hello is not None:
            self._begin(self._hello, nbytes)
            return
        self._incoming.write(self._arrivals[:nbytes])
        connection = self._connection
        if connection is None:
            if self._incoming.pending > FEW_ARRIVALS:
                self.pause_reading()
            self._wait()
            return
        try:
            self._read(connection)
        except ssl.SSLError as error:
            logger.debug("a connection failed", extra={"error": str(error)})
            self._end()

    def eof_received(self) -> bool:
        """Return False, to close."""
        return False

    def pause_writing(self) -> None:
        """Tell the connection that the client does not read."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection that the client reads again."""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting this connection; tell its protocol, if any."""
        self._transport = None
        self._closing = True
        self._handshakes.ended(self)
        if self._connection is None:
            self._shaken()
        else:
            self._connection.connection_lost(exc)

    def _begin(self, hello: bytearray, nbytes: int) -> None:
        """Pass the first record to OpenSSL once complete: it allocates 50 KiB at the first byte."""
        hello += self._arrivals[:nbytes]
        match completeness(hello):
            case Hello.PARTIAL:
                pass
            case Hello.TOO_LONG:
                self._handshakes.failed()
                self.abort()
            case Hello.WHOLE:
                self._hello = None
                self._incoming = ssl.MemoryBIO()
                self._object = self._handshakes.newest().wrap_bio(self._incoming, self._outgoing, server_side=True)
                self._incoming.write(hello)
                self._wait()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._handshakes.turns.wants(self.origin, self._go_on, goes_on=self._said > 0)

    def _go_on(self) -> bool:
        self._is_waiting = False
        if self.is_closing():
            return False
        try:
            connection = self._shake()
            if connection is not None:
                self._read(connection)
        except ssl.SSLError as error:
            logger.debug("a connection failed", extra={"error": str(error)})
            if self._connection is None:
                self._handshakes.failed()
            self._end()
        return True

    def _shake(self) -> Connection | None:
        paused = self._incoming.pending > FEW_ARRIVALS
        self._said += self._incoming.pending
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._said > _MAX_HANDSHAKE:
                raise ssl.SSLError("the client's handshake is too long") from None
            return None
        finally:
            self._flush()
            if paused:
                self.resume_reading()
        self._shaken()
        self._connection = connection = self._handshakes.make()
        connection.connection_made(self)
        if connection.certificate is not None:
            self._arrivals = self._handshakes.arrivals
        self._handshakes.shaken(self, connection.certificate)
        return connection

    def _read(self, connection: Connection) -> None:
        obj, incoming, outgoing = self._object, self._incoming, self._outgoing
        while not self._closing and (incoming.pending or obj.pending()):
            try:
                data = obj.read(_RECORD)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            finally:
                if outgoing.pending:
                    self._answered += outgoing.pending
                    self._flush()  # such as the answer to a key update
                    if self._answered > _MAX_OWN:
                        self.abort()
            if not data:
                self._end()
                return
            connection.data_received(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            if self._transport is not None:
                self._transport.write(data)

    def _shaken(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    # Interface for the connection.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's
        """Return ``ssl_object`` (:class:`ssl.SSLObject`), or the socket transport's information."""
        if name == "ssl_object":
            return default if self._hello is not None else self._object
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; discard them after the end."""
        if self._transport is None or self._closing:
            return
        try:
            self._object.write(data)
        except ssl.SSLError as error:  # the client broke the protocol
            logger.debug("a connection failed", extra={"error": str(error)})
            self._flush()
            self.abort()
        else:
            self._transport.write(self._outgoing.read())

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self._closing or self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Send ``close_notify`` and close after pending output."""
        if self._closing:
            return
        with suppress(ssl.SSLError):
            self._object.unwrap()
        self._flush()
        self._end()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Pause reading from the socket."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._transport is not None:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes not yet sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()
