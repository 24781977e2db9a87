"""Connections of both sides of a relay: how they begin and end, and how many there may be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Set
from typing import Final, Protocol

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 8
"""Of one channel of one migration at a time: libvirt's, QEMU's, and their next attempt; one for each disk that is copied."""
DRAIN_SECONDS: Final = 10.0
"""Twice what the carrier takes to deliver what was read."""
ACCEPT_AGAIN_SECONDS: Final = 1.0


async def accepted(listener: socket.socket) -> AsyncIterator[socket.socket]:
    """Yield each connection that is made; while this process has no descriptors left, they wait."""
    while True:
        try:
            link, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            logger.warning("a relay cannot be accepted yet: %s", error)
            await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
        else:
            yield link


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Begin to end it."""


async def drained(connections: Set[Closable]) -> None:
    """Close these connections and wait (a bounded while) until the tasks that carry them have taken them out of the set."""
    for connection in list(connections):
        connection.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while connections:  # noqa: ASYNC110 - the set is emptied by tasks that take part in no group of ours
                await asyncio.sleep(0.01)
