"""Common parts of both sides of a relay: accept, end and number of connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Set
from typing import Final, Protocol

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 8
"""Per channel and migration: libvirt's, QEMU's, and their next attempt; one per copied disk."""
DRAIN_SECONDS: Final = 10.0
"""Twice ``program.FLUSH_SECONDS``."""
ACCEPT_AGAIN_SECONDS: Final = 1.0


async def accepted(listener: socket.socket) -> AsyncIterator[socket.socket]:
    """Yield each accepted connection. They wait while this process has no descriptors left."""
    while True:
        try:
            link, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            logger.warning("cannot accept a relay connection, retrying: %s", error)
            await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
        else:
            yield link


class Closable(Protocol):
    """A connection that :func:`drained` can close."""

    def close(self) -> None:
        """Begin to end the connection."""


async def drained(connections: Set[Closable]) -> None:
    """Close these connections, and wait for at most ``DRAIN_SECONDS`` until their tasks have removed them from the set."""
    for connection in list(connections):
        connection.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while connections:  # noqa: ASYNC110 - the set is emptied by tasks that take part in no group of ours
                await asyncio.sleep(0.01)
