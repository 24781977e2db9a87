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
from typing import Any, Final, cast

logger = logging.getLogger(__name__)

_RECORD: Final = 16 << 10
"""The most that one record holds (RFC 8446, section 5.1)."""
_ARRIVALS: Final = 64 << 10


class Tls(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection's TLS, of the server's side."""

    __slots__ = ("_closing", "_connection", "_handshakes", "_incoming", "_object", "_outgoing", "_timer", "_transport")

    def __init__(self, handshakes: Handshakes, context: ssl.SSLContext) -> None:
        self._handshakes = handshakes
        self._incoming = ssl.MemoryBIO()
        self._outgoing = handshakes.outgoing
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connection: asyncio.Protocol | None = None  # None: the handshake is under way
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    # What the socket's transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._handshakes.began(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: one place for all connections, for they are taken from there at once."""
        del sizehint
        return self._handshakes.arrivals

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the client."""
        self._incoming.write(self._handshakes.arrivals[:nbytes])
        try:
            connection = self._connection or self._shake()
            if connection is not None:
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
        if self._connection is None:
            self._shaken()
        else:
            self._connection.connection_lost(exc)

    def _shake(self) -> asyncio.Protocol | None:
        """Go on with the handshake; return the connection, once it is over."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return None
        finally:
            self._flush()
        self._shaken()
        self._connection = connection = self._handshakes.make()
        connection.connection_made(self)
        return connection

    def _read(self, connection: asyncio.Protocol) -> None:
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
                    self._flush()  # OpenSSL's own answer: to a change of keys, say
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
        self._handshakes.ended(self)
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
            return self._object
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
        """Whether the end has begun."""
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


class Handshakes:
    """Makes the TLS of new connections: pass it to ``loop.create_server``, without ``ssl``."""

    def __init__(self, newest: Callable[[], ssl.SSLContext], make: Callable[[], asyncio.Protocol], seconds: float) -> None:
        """Take what returns the context for one more connection, what makes its protocol, and how long a handshake may take."""
        self.make = make
        self.arrivals = memoryview(bytearray(_ARRIVALS))
        """Where the bytes of all connections arrive."""
        self.outgoing = ssl.MemoryBIO()
        """What OpenSSL wrote, of whichever connection it worked for last: empty whenever it does not work."""
        self._newest = newest
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._under_way: set[Tls] = set()

    def __call__(self) -> Tls:
        """Return the protocol of a new socket."""
        return Tls(self, self._newest())

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    def began(self, tls: Tls) -> asyncio.TimerHandle:
        """Take note of a handshake; return what ends it when it takes too long."""
        self._under_way.add(tls)
        return self._loop.call_later(self._seconds, tls.abort)

    def ended(self, tls: Tls) -> None:
        """Forget a handshake."""
        self._under_way.discard(tls)

    def abort(self) -> None:
        """End all that are under way."""
        for each in list(self._under_way):
            each.abort()
