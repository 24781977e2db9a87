"""The newest changes of a watch cache, and the watches that read them.

A watch has a position in the shared window instead of a buffer; it expires when the window moves past it, and blocks no
other. New events are pushed to watches that have read everything, found by key, namespace or field value. A full
receiver's watch reads the window once there is room.

Changes of one iteration of the event loop are dispatched together. After a dispatch to many watches, the window pauses
(``docs/decisions/api-server.md``).
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Final, Self

from apiserver.apis.meta import errors
from apiserver.registry.cacher.audiences import Audiences, Trigger
from apiserver.registry.cacher.changes import Event, EventBatch, EventType, Predicate, Receiver, Record, event_of


@dataclass(frozen=True, slots=True)
class Limits:
    """A window's batch sizes and pauses."""

    chunk: int = 256
    """Per step of a watch: bounds its memory and time."""
    pushed: int = 64
    """Before the receiver must confirm room."""
    dropped: int = 32
    """Changes that the window drops at once."""
    framed: int = 64
    """Changes with cached frames."""
    pause_seconds: float = 100e-6
    """Four times a dispatch's cost, per watch."""
    longest_pause_seconds: float = 0.05
    few: int = 20
    """Without a pause, because timers are imprecise."""


LIMITS: Final = Limits()
_revision_of = attrgetter("revision")


class _EventBatches:
    def __init__(self) -> None:
        self._of: dict[tuple[int, ...], EventBatch] = {}

    def of(self, events: Iterable[Event | None]) -> EventBatch | None:
        """Return the one batch for watches with these events; None without any."""
        found = [event for event in events if event is not None]
        if not found:
            return None
        identity = tuple(map(id, found))
        batch = self._of.get(identity)
        if batch is None:
            batch = self._of[identity] = EventBatch(found)
        return batch


class Window:
    """The changes after ``oldest`` up to ``revision``, at most about ``capacity``."""

    def __init__(self, capacity: int, limits: Limits = LIMITS) -> None:
        self._capacity = capacity
        self._limits = limits
        self._records: list[Record] = []
        self._base = 0  # sequence number of the first record
        self._framed = 0  # of the first record with frames
        self._audiences: Audiences[Watch] = Audiences()
        self._is_dispatching = False
        self._pause_until = 0.0
        self._dispatching: asyncio.Handle | None = None
        self.end = 0
        """The next record's sequence number."""
        self.told = 0
        """Sequence number of the first undispatched record."""
        self.told_revision = 0
        """Waiting watches got everything up to it."""
        self.epoch = 0
        self.oldest = 0
        self.revision = 0
        self.closed = False

    @property
    def room(self) -> int:
        """Number of records that :meth:`prepend` accepts."""
        return max(self._capacity - len(self._records), 0)

    def reset(self, revision: int) -> None:
        """End all watches, and restart at ``revision``, without earlier changes."""
        self._tell_all()
        self._stop_all()
        self._base = self._framed = self.end
        self._records = []
        self.epoch += 1
        self.oldest = self.revision = self.told_revision = revision

    def extend(self, records: Sequence[Record], revision: int) -> None:
        """Add the changes up to ``revision``, to dispatch soon; drop the oldest beyond the capacity."""
        self._records += records
        self.end += len(records)
        self.revision = revision
        self._tell_soon()
        if len(self._records) > self._capacity + self._limits.dropped:  # singly, all others would move each time
            self._tell_all()
            self._drop(len(self._records) - self._capacity)
        for position in range(max(self._framed, self._base), self.end - self._limits.framed):
            self._records[position - self._base].forget_frames()
        self._framed = max(self._framed, self.end - self._limits.framed)

    def prepend(self, records: Sequence[Record], after: int) -> None:
        """Put ``records``, all missing changes after ``after``, before the others."""
        self._records[:0] = records
        self._base -= len(records)
        self.oldest = after

    def close(self) -> None:
        """End every watch."""
        self._tell_all()
        self.closed = True
        self._stop_all()

    def position(self, after: int) -> int:
        """Return the sequence number of the first change after ``after``; raises Expired."""
        if after < self.oldest:
            raise self.expired(after)
        return self._base + bisect_right(self._records, after, key=_revision_of)

    def read(self, position: int) -> Sequence[Record] | None:
        """Return a chunk of dispatched records from ``position`` on; None if the first is gone."""
        if position < self._base:
            return None
        return self._records[position - self._base : min(position + self._limits.chunk, self.told) - self._base]

    def revision_before(self, position: int) -> int:
        """Return the revision that the records before ``position`` reach; 0 if they are gone."""
        if position >= self.end:
            return self.revision
        return self._records[position - self._base].revision - 1 if position >= self._base else 0

    def expired(self, after: int) -> errors.Expired:
        """Return the error for a revision that is gone, in Go's words."""
        return errors.Expired(f"too old resource version: {after} ({self.oldest})")

    def enter(self, watch: Watch) -> None:
        """Push future changes to ``watch``, which is up to date."""
        watch.is_idle = True
        self._audiences.enter(watch)

    def leave(self, watch: Watch) -> None:
        """Stop pushing to ``watch``; safe to repeat."""
        self._stop(watch, self.told, self.told_revision)

    def _drop(self, count: int) -> None:
        self.oldest = self._records[count - 1].revision
        del self._records[:count]
        self._base += count

    def _tell_soon(self) -> None:
        pause = self._pause_until - time.monotonic()
        if pause <= 0 and self._audiences.is_empty:
            self._tell_all()
        elif self._dispatching is None:
            loop = asyncio.get_running_loop()
            self._dispatching = loop.call_later(pause, self._tell_all) if pause > 0 else loop.call_soon(self._tell_all)

    def _tell_all(self) -> None:
        if self._dispatching is not None:
            self._dispatching.cancel()
            self._dispatching = None
        if self._is_dispatching:
            return  # the outer dispatch continues in order
        self._is_dispatching = True
        number = 0
        try:
            while self.told < self.end:
                number += self._tell(min(self.told + self._limits.pushed, self.end))
        finally:
            self._is_dispatching = False
        self.told_revision = self.revision
        if number > self._limits.few:
            pause = min(number * self._limits.pause_seconds, self._limits.longest_pause_seconds)
            self._pause_until = time.monotonic() + pause

    def _tell(self, end: int) -> int:
        records = self._records[self.told - self._base : end - self._base]
        revision = self.revision_before(end)
        batches, number = _EventBatches(), 0
        for audience, concerning in self._audiences.concerned(records):
            first, whole = concerning[0].revision, None
            for watch in tuple(audience.watches):  # full receivers leave
                if not watch.is_idle:
                    continue
                try:
                    if watch.every_after < first:
                        batch = whole = whole or batches.of(event_of(record, None) for record in concerning)
                    else:
                        batch = batches.of(watch.chosen(concerning))
                    if batch is None:
                        continue
                    number += 1
                    if not watch.receive(batch):
                        self._stop(watch, end, revision)
                except Exception as error:  # noqa: BLE001 - of a predicate or a receiver: its own watch raises it, the others go on
                    watch.failure = error
                    self._stop(watch, end, revision)
        for record in records:
            record.cool()
        self.told, self.told_revision = end, revision
        return number

    def _stop(self, watch: Watch, position: int, revision: int) -> None:
        if watch.is_idle:
            self._audiences.leave(watch)
            watch.stop(position, revision)

    def _stop_all(self) -> None:
        for watch in self._audiences.watches():
            self.leave(watch)


class Watch:
    """The events of one watch, for a receiver or iteration by one reader. Cancelling a wait loses none."""

    __slots__ = (
        "_after", "_bookmark_at", "_bookmark_seconds", "_epoch", "_loop", "_pending", "_position", "_predicate", "_revision", "_waiter",
        "_window", "every_after", "failure", "is_idle", "key", "prefix", "receive", "trigger",
    )  # fmt: skip

    def __init__(
        self,
        window: Window,
        prefix: str,
        after: int,
        predicate: Predicate | None = None,
        bookmark_seconds: float | None = None,
        *,
        key: str = "",
        trigger: Trigger | None = None,
    ) -> None:
        """Watch the keys with ``prefix``, or the single ``key``. All objects that ``predicate`` selects must match ``trigger``."""
        self.prefix = prefix
        self.key = key
        self.trigger = trigger
        self.every_after = after if predicate is None else inf
        """Above it, changes are events without a check."""
        self.is_idle = False
        """Waits, with all dispatched events delivered."""
        self.receive: Callable[[EventBatch], bool] = self._keep
        """Takes dispatched events while it waits."""
        self.failure: Exception | None = None
        """Of predicate or receiver."""
        self._window = window
        self._after = after
        self._predicate = predicate
        self._position = window.position(after)
        self._epoch = window.epoch
        self._pending: deque[Event] = deque()
        self._bookmark_seconds = bookmark_seconds
        self._loop = asyncio.get_running_loop()
        self._bookmark_at = self._loop.time() + bookmark_seconds if bookmark_seconds else None
        self._revision = max(after, window.revision if self._position == window.end else after)
        self._waiter: asyncio.Future[None] | None = None

    @property
    def revision(self) -> int:
        """All events up to exactly this revision were delivered."""
        if self._pending:
            return self._pending[0].revision - 1
        return max(self._revision, self._window.told_revision) if self.is_idle else self._revision

    async def tell(self, receiver: Receiver) -> None:
        """Send all events and bookmarks to ``receiver``; return when the cache stops.

        Raises Expired, also for a receiver full too long; errors of predicate and receiver.
        """
        while (events := await self._step(receiver.receive)) is not None:
            if events:
                receiver.receive(EventBatch(events))
            await receiver.room()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; end when the cache stops. Raises Expired if too slow, or cut off by the cache."""
        if not self._pending:
            self._pending += await self.batch()
            if not self._pending:
                raise StopAsyncIteration
        return self._pending.popleft()

    async def batch(self) -> list[Event]:
        """Wait for events, and return all ready ones; empty: the cache stopped. Raises Expired."""
        while (events := await self._step(self._keep)) is not None:
            if events:
                return events
        return []

    def take(self) -> list[Event]:
        """Return the ready events without waiting, possibly none. Raises Expired."""
        if self._pending:
            taken = list(self._pending)
            self._pending.clear()
            return taken
        window = self._window
        if self._position >= window.told and self._epoch == window.epoch:
            return []
        return self._read()

    def chosen(self, records: Iterable[Record]) -> list[Event]:
        """Return this watch's events in the records."""
        events = (event_of(record, self._predicate) for record in records if record.revision > self._after)
        return [event for event in events if event is not None]

    def stop(self, position: int, revision: int) -> None:
        """End the idle state: everything before ``position``, up to ``revision``, was delivered."""
        self.is_idle = False
        self._position = max(self._position, position)
        self._revision = max(self._revision, revision)
        _wake(self._waiter)

    async def _step(self, receive: Callable[[EventBatch], bool]) -> list[Event] | None:
        window = self._window
        if events := self.take():
            return events
        if window.closed:
            return None
        if self._position < window.told:
            await asyncio.sleep(0)
        elif self._bookmark_at is not None and (bookmark := self._bookmark()):
            return [bookmark]
        else:
            await self._wait(receive)
        return []

    async def _wait(self, receive: Callable[[EventBatch], bool]) -> None:
        self._waiter = waiter = self._loop.create_future()
        # cheaper than asyncio.timeout_at
        timer = self._loop.call_at(self._bookmark_at, _wake, waiter) if self._bookmark_at is not None else None
        self.receive, self.failure = receive, None
        self._window.enter(self)
        try:
            await waiter
        finally:
            if timer:
                timer.cancel()
            self._waiter = None
            self._window.leave(self)
        if self.failure is not None:
            raise self.failure

    def _keep(self, batch: EventBatch) -> bool:
        self._pending += batch.events
        return False

    def _read(self) -> list[Event]:
        window = self._window
        if self._epoch != window.epoch:
            self._position = window.position(self._revision)
            self._epoch = window.epoch
        records = window.read(self._position)
        if records is None:
            raise window.expired(self._revision)
        self._position += len(records)
        events = self.chosen(record for record in records if self._is_about(record.key))
        self._revision = max(self._after, window.revision_before(self._position))
        return events

    def _is_about(self, key: str) -> bool:
        return key == self.key if self.key else key.startswith(self.prefix)

    def _bookmark(self) -> Event | None:
        now = self._loop.time()
        if self._bookmark_at is None or self._bookmark_seconds is None or now < self._bookmark_at:
            return None
        self._bookmark_at = now + self._bookmark_seconds
        if self._window.told_revision < self._after:
            return None  # silent until its future revision
        self._revision = max(self._revision, self._window.told_revision)
        return Event(EventType.BOOKMARK, None, None, self._revision)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
