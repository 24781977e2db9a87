"""Audit events on their way to a file or a webhook, which may be slow.

They are taken without waiting and stored in batches beside the event loop: a batch is whatever came within 100 ms, so that a busy
server makes ten writes a second and not twenty thousand. Each write wakes a thread, and the thread the loop: at 20 ms that was some 2 %
of the processor time of a server with 600 writes a second, and more with few. Whoever may not lose 100 ms when the process is killed takes
``blocking-strict``, where a batch is whatever came while the one before was stored. What differs is what happens when the other side is
slow:

===================== ===============================================================================================
``batch``             events beyond the buffer are lost, and counted in ``apiserver_audit_error_total``
``blocking``          requests wait, before anything is done, until there is room in the buffer again
``blocking-strict``   as blocking; and a request waits until its first event is stored, and is refused if it cannot be
===================== ===============================================================================================

At the end of the process everything that was taken is stored.
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
"""Seconds that the end of the process may wait for what is not stored."""


@dataclass(frozen=True, slots=True)
class BufferOptions:
    """Bounds of a buffer of events, and its way to go on beyond them."""

    mode: Mode
    buffer: int = 10_000
    """Events."""
    batch: int = 4000
    """The most that are stored at once."""
    wait_seconds: float = GATHER_SECONDS


class Buffer:
    """Events on their way to a place that is slow. ``run`` must run."""

    def __init__(self, name: str, store: Callable[[list[str]], object], buffering: BufferOptions, lost: Cell) -> None:
        """Make the buffer of one backend.

        Args:
            name: of the backend.
            store: stores a batch and returns nothing, or a coroutine to await; raises OSError when it cannot.
            buffering: the bounds.
            lost: counts events that were lost.
        """
        self.name = name
        self._store = store
        self._buffering = buffering
        self._lost = lost
        self._events: list[str] = []
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._taken = self._done = 0  # events, ever: those that came, and those that were stored or lost
        self._waiters: deque[tuple[int, asyncio.Future[bool]]] = deque()
        """Whoever waits until so many are done; told whether the last of them was stored."""
        self._failed = False
        self._closing = False
        self._strict = buffering.mode == STRICT

    @property
    def full(self) -> bool:
        """True if requests must wait for :meth:`room`."""
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
        """Wait for room; strict: until everything that came before is stored.

        Raises:
            OSError: strict, and it was not stored.
        """
        if self._strict:
            if not await self._is_stored():
                raise OSError(f"the audit backend {self.name} does not store")
            return
        while len(self._events) >= self._buffering.buffer:
            self._room.clear()
            await self._room.wait()

    async def _is_stored(self) -> bool:
        """Return whether the last event that came is stored, once that is known."""
        if self._done == self._taken:
            return not self._failed
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._taken, stored))
        return await stored

    async def run(self) -> None:
        """Store what comes until closed; returns when all is stored."""
        while not self._closing or self._events:
            await self._some.wait()
            if not self._strict and not self._closing:
                await asyncio.sleep(self._buffering.wait_seconds)
            await self._flush()

    def close(self) -> None:
        """Let :meth:`run` end once all is stored."""
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
