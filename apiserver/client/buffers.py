"""The kernel's buffers of a connection. They grow by themselves, to megabytes, and count as memory of the pod."""

from __future__ import annotations

import asyncio
import socket


def narrow(transport: asyncio.BaseTransport | None, size: int) -> None:
    """Let the kernel keep about so many bytes each way (Linux: twice as many, socket(7)); a transport without a socket is left alone.

    A peer that is a round trip of a millisecond away still gets ``size`` bytes each millisecond.
    """
    connection: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
    if connection is not None:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, size)
