"""The kernel's buffers of a connection, megabytes of the pod's memory by default."""

from __future__ import annotations

import asyncio
import socket


def narrow(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Limit a socket's buffers to ``size`` bytes each way (Linux doubles it, socket(7)); do nothing without a socket."""
    connection: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
    if connection is not None:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, size)
