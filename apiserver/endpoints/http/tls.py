"""TLS between a connection and its socket: OpenSSL over memory, with nothing in between.

The event loop could do it, but its transport for TLS does for each record what only the rarest ones need, some 4 µs for a request and as
much for each event of each watch; and it is bound to one context, where a new connection should get the newest certificate.

A :class:`Tls` is the protocol of the socket's transport and the transport of a :class:`~apiserver.endpoints.http.connection.Connection`.
What OpenSSL writes goes to the socket at once, so backpressure is that of the socket's transport, and one place between the two serves
all connections: whoever lets OpenSSL work empties it before anything else runs. A place for each would keep the size of the most that was
ever written at once, 128 KiB for a client that listed before it watches.
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
"""The most that one record holds (RFC 8446, section 5.1)."""
FEW_ARRIVALS: Final = 16 << 10
"""Bytes taken at once of who has shown no certificate: OpenSSL's buffer keeps the size of the most that came."""
_MAX_HANDSHAKE: Final = 32 << 10
"""All that a client says in its handshake, certificates and all; those of Kubernetes say some 3 KiB."""
_MAX_OWN: Final = 4 << 10
"""Bytes that OpenSSL answers a client by itself: one that asks for new keys (RFC 8446, section 4.6.3) without end could leave the answers
unread, and they would fill our memory. Clients of Kubernetes never ask; an answer has some 30 bytes."""


class Owner(Protocol):
    """The maker of new connections' TLS, as each of them sees it."""

    make: Callable[[], Connection]
    newest: Callable[[], ssl.SSLContext]
    """Returns the context for one more connection."""
    arrivals: memoryview
    """The buffer in which the bytes of all connections arrive."""
    few_arrivals: memoryview
    """The same, for those that have shown no certificate."""
    outgoing: ssl.MemoryBIO
    """Bytes that OpenSSL wrote, for whichever connection it worked last: empty whenever it does not work."""
    turns: Turns

    def began(self, tls: Tls) -> asyncio.TimerHandle:
        """Take note of a handshake; return what ends it when it takes too long."""
        ...

    def shaken(self, tls: Tls, certificate: bytes | None) -> None:
        """Count a connection by what its handshake has shown."""
        ...

    def ended(self, tls: Tls) -> None:
        """Forget a connection, wherever it was counted."""
        ...

    def failed(self) -> None:
        """Count a handshake that failed."""
        ...


class Tls(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection's TLS, of the server's side."""

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
        self._hello: bytearray | None = bytearray()  # None: OpenSSL has it, and :attr:`_object` is there
        self._connection: Connection | None = None  # None: the handshake is under way
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said = 0  # bytes of the handshake
        self._answered = 0  # bytes of OpenSSL's own
        self._closing = False
        self._is_waiting = False  # the handshake, for its turn
        self.origin = ""
        """By what connections of the client's address are counted."""

    @property
    def is_busy(self) -> bool:
        """True while the client waits for us."""
        return self._is_waiting if self._connection is None else self._connection.is_busy

    # What the socket's transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.origin = origin(str(address[0])) if address else ""
        self._timer = self._handshakes.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: one place for all connections, for they are taken from there at once."""
        del sizehint
        return self._arrivals

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the client."""
        if self._hello is not None:
            self._begin(self._hello, nbytes)
            return
        self._incoming.write(self._arrivals[:nbytes])
        connection = self._connection
        if connection is None:
            if self._incoming.pending > FEW_ARRIVALS:
                self.pause_reading()  # until its turn has come
            self._wait()
            return
        try:
            self._read(connection)
        except ssl.SSLError as error:
            logger.debug("a connection failed", extra={"error": str(error)})
            self._end()

    def eof_received(self) -> bool:
        """Let the transport close: who sends no more, reads no more."""
        return False

    def pause_writing(self) -> None:
        """Tell the connection that the client does not read."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection that there is room again."""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection, if there was one."""
        self._transport = None
        self._closing = True
        self._handshakes.ended(self)
        if self._connection is None:
            self._shaken()
        else:
            self._connection.connection_lost(exc)

    def _begin(self, hello: bytearray, nbytes: int) -> None:
        """Give OpenSSL what came once the whole first record is there: it makes 50 KiB of room as soon as it sees any of it."""
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
        """Let the handshake go on when its turn comes."""
        if not self._is_waiting:
            self._is_waiting = True
            self._handshakes.turns.wants(self.origin, self._go_on, goes_on=self._said > 0)

    def _go_on(self) -> bool:
        """Go on with the handshake, and with what was sent behind it; return whether the client is still there."""
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
        """Go on with the handshake; return the connection, once it is over."""
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
        """Hand on what was deciphered."""
        obj, incoming, outgoing = self._object, self._incoming, self._outgoing
        while not self._closing and (incoming.pending or obj.pending()):
            try:
                data = obj.read(_RECORD)
            except ssl.SSLWantReadError:
                break  # half a record
            except ssl.SSLZeroReturnError:
                data = b""
            finally:
                if outgoing.pending:
                    self._answered += outgoing.pending
                    self._flush()  # OpenSSL's own answer: to a change of keys, say
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
        """Close the socket, once what was written is sent."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    # What the connection calls.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's
        """Return ``ssl_object`` (:class:`ssl.SSLObject`), or what the socket's transport knows."""
        if name == "ssl_object":
            return default if self._hello is not None else self._object
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; after the end they are lost."""
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
        """Return whether the end has begun."""
        return self._closing or self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Say goodbye (``close_notify``) and close, once what was written is sent."""
        if self._closing:
            return
        with suppress(ssl.SSLError):  # the client has not said goodbye, and need not
            self._object.unwrap()
        self._flush()
        self._end()

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Read no more from the socket."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()
