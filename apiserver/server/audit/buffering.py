"""Buffer audit events for a file or a webhook, which may be slow.

A background task stores batches of 100 ms, so a busy server does ten writes per second instead of twenty thousand. Each
write wakes a thread, which wakes the loop: batches of 20 ms took about 2 % of the processor time at 600 writes per second,
and more with fewer. With ``blocking-strict``, which loses nothing when the process is killed, a batch has the events since
the previous one. The modes differ when the backend is slow:

===================== ===============================================================================================
``batch``             events beyond the buffer are lost, and counted in ``apiserver_audit_error_total``
``blocking``          requests wait, before any effect, until there is room in the buffer
``blocking-strict``   as blocking; each request also waits until its first event is stored, and fails if it cannot be
===================== ===============================================================================================

At the end of the process, all buffered events are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from apiserver.metrics.instruments import Cell

logger = logging.getLogger(__name__)

Mode = Literal["batch", "blocking", "blocking-strict"]
MODES: Final[tuple[Mode, ...]] = ("batch", "blocking", "blocking-strict")
STRICT: Final = "blocking-strict"
GATHER_SECONDS: Final = 0.1
FLUSH_SECONDS: Final = 10.0
"""Time to store the rest at the end of the process."""


@dataclass(frozen=True, slots=True)
class BufferOptions:
    """Size and mode of a buffer."""

    mode: Mode
    buffer: int = 10_000
    """In events."""
    batch: int = 4000
    """Most events stored at once."""
    wait_seconds: float = GATHER_SECONDS


class Buffer:
    """Buffers events for a slow backend, while ``run`` runs."""

    def __init__(self, name: str, store: Callable[[list[str]], object], buffering: BufferOptions, lost: Cell) -> None:
        """Create one backend's buffer.

        Args:
            name: the backend's name.
            store: stores a batch, optionally as a coroutine; raises OSError.
            buffering: size and mode.
            lost: counts lost events.
        """
        self.name = name
        self._store = store
        self._buffering = buffering
        self._lost = lost
        self._events: list[str] = []
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._taken = self._done = 0  # total events, and those stored or lost
        self._waiters: deque[tuple[int, asyncio.Future[bool]]] = deque()
        """Waits until ``_done`` reaches a number; result: whether the last event was stored."""
        self._failed = False
        self._closing = False
        self._strict = buffering.mode == STRICT

    @property
    def full(self) -> bool:
        """True if requests must await :meth:`room`."""
        return self._strict or (self._buffering.mode == "blocking" and len(self._events) >= self._buffering.buffer)

    def add(self, event: str) -> None:
        """Take an event."""
        events = self._events
        if len(events) >= self._buffering.buffer and self._buffering.mode == "batch":
            self._lost.value += 1
            return
        if not events:
            self._some.set()
        events.append(event)
        self._taken += 1

    async def room(self) -> None:
        """Wait for room; strict: until all earlier events are stored.

        Raises:
            OSError: strict, and storing failed.
        """
        if self._strict:
            if not await self._is_stored():
                raise OSError(f"the audit backend {self.name} does not store")
            return
        while len(self._events) >= self._buffering.buffer:
            self._room.clear()
            await self._room.wait()

    async def _is_stored(self) -> bool:
        """Wait for the last event; return whether it was stored."""
        if self._done == self._taken:
            return not self._failed
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._taken, stored))
        return await stored

    async def run(self) -> None:
        """Store events until closed and empty."""
        while not self._closing or self._events:
            await self._some.wait()
            if not self._strict and not self._closing:
                await asyncio.sleep(self._buffering.wait_seconds)
            await self._flush()

    def close(self) -> None:
        """End :meth:`run` once everything is stored."""
        self._closing = True
        self._some.set()

    async def _flush(self) -> None:
        batch = self._events[: self._buffering.batch]
        if not batch:
            return
        stored = False
        try:
            waiting = self._store(batch)
            if asyncio.iscoroutine(waiting):
                await waiting
            stored = True
        except OSError as error:
            self._lost.value += len(batch)
            logger.error("audit events were lost", extra={"backend": self.name, "events": len(batch), "error": str(error)})  # noqa: TRY400 - the message says it
        finally:
            self._failed = not stored
            del self._events[: len(batch)]
            if not self._events and not self._closing:
                self._some.clear()
            self._room.set()
            self._done += len(batch)
            while self._waiters and self._waiters[0][0] <= self._done:
                _, waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_result(stored)
