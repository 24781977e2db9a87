"""Sockets that notice a vanished peer, and the errors when no answer came.

``ExchangeFailed`` is the family of what can go wrong with one request and its answer, beside TimeoutError::

    ExchangeFailed
    ├── Unreachable     there is no connection: no such name, refused, a certificate that does not convince
    ├── Disconnected    the connection ended before the answer did
    ├── NotHTTP         one side said what the other cannot read
    └── TooLong         the answer is longer than its reader takes

:class:`~apiserver.client.rest.Client` says what was asked along with it: that is its ``TransportError``.
"""

from __future__ import annotations

import asyncio
import socket


class TransportError(Exception):
    """No answer came: refused, reset, timed out, no TLS, or no JSON. The request may or may not have been carried out."""


class ExchangeFailed(Exception):
    """There is no answer, or not all of it."""


class Unreachable(ExchangeFailed):
    """There is no connection to the server."""

    def __init__(self, authority: str, cause: OSError) -> None:
        """Take what the system (``errno``), the resolver (gaierror) or OpenSSL (SSLError) said."""
        super().__init__(f"cannot connect to {authority}: {cause.strerror or str(cause) or type(cause).__name__}")
        self.cause = cause


class Disconnected(ExchangeFailed):
    """The connection ended before the answer did: a side closed it, or it broke, which has a cause."""

    def __init__(self, cause: BaseException | None = None, *, is_answered: bool = False) -> None:
        """Take what the system said, if anything, and whether some of the answer had come."""
        super().__init__(f"the connection broke: {cause}" if cause is not None else "the server closed the connection")
        self.cause = cause
        self.is_answered = is_answered


class NotHTTP(ExchangeFailed):
    """The answer is no HTTP/1.1, or its head is too long; or the request cannot be said in it."""


class TooLong(ExchangeFailed):
    """The answer is longer than its reader takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is longer than {limit} bytes")


def transport_error(method: str, path: str, error: Exception) -> TransportError:
    """Return the error that says what was asked when the connection failed."""
    return TransportError(f"{method} {path}: {str(error) or type(error).__name__}")


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let its silence end: a peer that vanished (its node is gone) breaks the connection after half a minute, in a quiet watch, too."""
    connected: socket.socket = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
