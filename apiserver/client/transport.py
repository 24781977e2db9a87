"""What stands below HTTP: the error when no answer came, and sockets that notice a vanished peer."""

from __future__ import annotations

import socket
from typing import Any


class TransportError(Exception):
    """No answer came: refused, reset, timed out, no TLS, or no JSON. The request may or may not have been carried out."""


def transport_error(method: str, path: str, error: Exception) -> TransportError:
    """Return the error that says what was asked when the connection failed."""
    return TransportError(f"{method} {path}: {str(error) or type(error).__name__}")


def keepalive_socket(info: tuple[Any, ...]) -> socket.socket:
    """Return a socket whose silence ends: a peer that vanished (its node is gone) breaks it after half a minute, in a quiet watch, too."""
    family, kind, protocol = info[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return made
