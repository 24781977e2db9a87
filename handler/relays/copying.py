"""Copy bytes both ways between two connections until either side ends; what was read before the end is still delivered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Set
from typing import Final

CHUNK_BYTES: Final = 256 << 10
FLUSH_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 8
"""Of one migration at a time: libvirt's, QEMU's, and their next attempt."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Ended(Exception):
    """One direction is over, and with it the connection: TLS has no half-closed state that asyncio could use."""


async def both_ways(one: Connection, other: Connection) -> None:
    """Copy until either side ends, then close both."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(one[0], other[1]))
            tasks.create_task(_copy(other[0], one[1]))
    except* _Ended:
        pass
    finally:
        for _, writer in (one, other):
            writer.close()
    # Closing flushes what was written; without waiting, the end of the process or of the task could cut it off.
    for _, writer in (one, other):
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError as error:  # ssl.SSLError is one
        raise _Ended from error
    raise _Ended


async def drained(writers: Set[asyncio.StreamWriter]) -> None:
    """Close these connections and wait (a bounded while) until the tasks that carry them have taken them out of the set."""
    for writer in list(writers):
        writer.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * FLUSH_SECONDS):
            while writers:  # noqa: ASYNC110 - the set is emptied by tasks that asyncio keeps
                await asyncio.sleep(0.01)
