"""Socket options that detect a vanished peer, and errors without response.

``ExchangeFailed`` and TimeoutError are one request's errors.
"""

from __future__ import annotations

import asyncio
import socket


class TransportError(Exception):
    """No valid response: refused, reset, timed out, no TLS, or no JSON. The request may have been carried out."""


class ExchangeFailed(Exception):
    """A request got no usable response; the base class of such errors. A timeout raises TimeoutError instead."""


class Unreachable(ExchangeFailed):
    """A connection to the server could not be made; the request was not sent. A lost connection is ``Disconnected``."""

    def __init__(self, authority: str, cause: OSError) -> None:
        """Take an error of the system (``errno``), resolver (gaierror) or OpenSSL (SSLError)."""
        super().__init__(f"cannot connect to {authority}: {cause.strerror or str(cause) or type(cause).__name__}")
        self.cause = cause


class Disconnected(ExchangeFailed):
    """The connection was lost before the whole response came; the request may have been carried out."""

    def __init__(self, cause: BaseException | None = None, *, is_answered: bool = False) -> None:
        """Take the system's error, and whether a part of the response came."""
        super().__init__(f"the connection broke: {cause}" if cause is not None else "the server closed the connection")
        self.cause = cause
        self.is_answered = is_answered


class NotTrusted(ExchangeFailed):
    """The caller does not trust the server's certificate, although it is valid; nothing was sent."""


class NotHTTP(ExchangeFailed):
    """The response is not HTTP/1.1, its head too long, or the request invalid."""


class TooLong(ExchangeFailed):
    """The response exceeds its reader's limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the response is longer than {limit} bytes")


def transport_error(method: str, path: str, error: Exception) -> TransportError:
    """Return a failed request's TransportError with its method and path."""
    return TransportError(f"{method} {path}: {str(error) or type(error).__name__}")


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Enable keepalive, which detects a vanished peer within half a minute."""
    connected: socket.socket = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
