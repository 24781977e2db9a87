"""The last changes of a watch cache, and the watches that read them.

A watch holds a position in the one window instead of a buffer of its own, and is cut off when the window moves past it, without anybody
waiting for it. One that has read everything waits, and what comes next is pushed to its receiver; it is found by what it waits for (a key,
a namespace, a field's value), so a change costs nothing for the thousands that it does not concern. Whatever many watches are told alike is
made once. A receiver that has no room is told no more: its watch reads the window once there is room again.

What comes in one turn of the event loop is told together, after it: no receiver runs inside of whoever feeds the window. Telling many
watches takes a while, most of it for a record of TLS and a system call each, however many events are in it. So whoever told many pauses
before it tells what comes next, 100 µs for each of them. With 100 watches under a storm of writes half as long a pause cost a fifth more
processor time, and half as long again none less, but more delay; with 1,000, pauses of up to 50 ms instead of 10 cost a fifth less and no
delay, for telling them takes as long. The number of watches is what counts, not how long telling them took, which would hold what else the
machine does, too. A change that comes alone, now and then, is told at once.
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
    """Sizes of what is done at once, and the pauses between."""

    chunk: int = 256
    """Changes that a watch looks at before it hands them on: bounds what one watch holds and how long it keeps the loop."""
    pushed: int = 64
    """Changes that are pushed before it is asked whether there is room for more."""
    dropped: int = 32
    """Changes that the window drops at once."""
    framed: int = 64
    """Changes whose encoded frames are kept: watches that keep up share them, those that do not encode again."""
    pause_seconds: float = 100e-6
    """For each watch that was told: some four times what telling it costs."""
    longest_pause_seconds: float = 0.05
    few: int = 20
    """Watches for whom no pause is made: a timer is not that exact."""


LIMITS: Final = Limits()
_revision_of = attrgetter("revision")


class _EventBatches:
    """The events dispatched at one moment: watches that are told the same events share them (:class:`EventBatch`)."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, ...], EventBatch] = {}

    def of(self, events: Iterable[Event | None]) -> EventBatch | None:
        """Return the events, the same for all that have the same; None if there are none."""
        found = [event for event in events if event is not None]
        if not found:
            return None
        identity = tuple(map(id, found))
        batch = self._of.get(identity)
        if batch is None:
            batch = self._of[identity] = EventBatch(found)
        return batch


class Window:
    """The changes after ``oldest`` up to ``revision``, at most about ``capacity`` of them."""

    def __init__(self, capacity: int, limits: Limits = LIMITS) -> None:
        self._capacity = capacity
        self._limits = limits
        self._records: list[Record] = []
        self._base = 0  # sequence number of the first record
        self._framed = 0  # sequence number of the first record that may hold frames
        self._audiences: Audiences[Watch] = Audiences()
        self._is_dispatching = False
        self._pause_until = 0.0
        self._dispatching: asyncio.Handle | None = None  # when it is due
        self.end = 0
        """The sequence number that the next record gets."""
        self.told = 0
        """The sequence number of the first record of which watches that wait were not told yet."""
        self.told_revision = 0
        """Of everything at or below it they were told."""
        self.epoch = 0
        """Grows when the window begins anew."""
        self.oldest = 0
        self.revision = 0
        self.closed = False

    @property
    def room(self) -> int:
        """Number of records that :meth:`prepend` takes."""
        return max(self._capacity - len(self._records), 0)

    def reset(self, revision: int) -> None:
        """Begin anew at ``revision``: what happened up to it is not known any more."""
        self._tell_all()
        self._stop_all()
        self._base = self._framed = self.end
        self._records = []
        self.epoch += 1
        self.oldest = self.revision = self.told_revision = revision

    def extend(self, records: Sequence[Record], revision: int) -> None:
        """Add what happened up to ``revision``."""
        self._records += records
        self.end += len(records)
        self.revision = revision
        self._tell_soon()
        if len(self._records) > self._capacity + self._limits.dropped:  # dropping one at a time would move all of them
            self._tell_all()
            self._drop(len(self._records) - self._capacity)
        for position in range(max(self._framed, self._base), self.end - self._limits.framed):
            self._records[position - self._base].forget_frames()
        self._framed = max(self._framed, self.end - self._limits.framed)

    def prepend(self, records: Sequence[Record], after: int) -> None:
        """Reach further back: ``records`` are all that happened after ``after``, up to ``oldest``."""
        self._records[:0] = records
        self._base -= len(records)
        self.oldest = after

    def close(self) -> None:
        """End every watch."""
        self._tell_all()
        self.closed = True
        self._stop_all()

    def position(self, after: int) -> int:
        """Return the sequence number of the first change above revision ``after``.

        Raises:
            Expired: changes above ``after`` are gone.
        """
        if after < self.oldest:
            raise self.expired(after)
        return self._base + bisect_right(self._records, after, key=_revision_of)

    def read(self, position: int) -> Sequence[Record] | None:
        """Return a chunk of records from ``position`` on, as far as watches were told; None when some of them are gone."""
        if position < self._base:
            return None
        return self._records[position - self._base : min(position + self._limits.chunk, self.told) - self._base]

    def revision_before(self, position: int) -> int:
        """Return the revision to which everything lies before ``position``; 0 when that is gone."""
        if position >= self.end:
            return self.revision
        return self._records[position - self._base].revision - 1 if position >= self._base else 0

    def expired(self, after: int) -> errors.Expired:
        """Return the error for a position that is gone, in Go's words."""
        return errors.Expired(f"too old resource version: {after} ({self.oldest})")

    def enter(self, watch: Watch) -> None:
        """Push to ``watch`` what concerns it from now on; it has read all that watches were told."""
        watch.is_idle = True
        self._audiences.enter(watch)

    def leave(self, watch: Watch) -> None:
        """Push nothing more to ``watch``. Leaving twice does no harm."""
        self._stop(watch, self.told, self.told_revision)

    def _drop(self, count: int) -> None:
        self.oldest = self._records[count - 1].revision
        del self._records[:count]
        self._base += count

    def _tell_soon(self) -> None:
        """Tell the watches once this turn of the loop or the pause is over: what comes until then goes out together."""
        pause = self._pause_until - time.monotonic()
        if pause <= 0 and self._audiences.is_empty:
            self._tell_all()
        elif self._dispatching is None:
            loop = asyncio.get_running_loop()
            self._dispatching = loop.call_later(pause, self._tell_all) if pause > 0 else loop.call_soon(self._tell_all)

    def _tell_all(self) -> None:
        """Tell the watches that wait of everything that they were not told yet; then pause, if they were many."""
        if self._dispatching is not None:
            self._dispatching.cancel()
            self._dispatching = None
        if self._is_dispatching:
            return  # a receiver brought us here: who tells goes on until all is told, in order
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
        """Tell the watches that wait of what is before position ``end``; return how many heard something."""
        records = self._records[self.told - self._base : end - self._base]
        revision = self.revision_before(end)
        batches, number = _EventBatches(), 0
        for audience, concerning in self._audiences.concerned(records):
            first, whole = concerning[0].revision, None
            for watch in tuple(audience.watches):  # receivers without room leave it
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
    """The events of one watch, told to a receiver or iterated over. One reader at a time; cancelling a wait loses nothing."""

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
        """Watch the keys that begin with ``prefix``, or the one ``key``; ``trigger`` is implied by ``predicate``."""
        self.prefix = prefix
        self.key = key
        self.trigger = trigger
        self.every_after = after if predicate is None else inf
        """It tells every change above this revision, without looking at it."""
        self.is_idle = False
        """It waits: whatever watches were told was for others, or its receiver has it."""
        self.receive: Callable[[EventBatch], bool] = self._keep
        """Takes what is told while it waits."""
        self.failure: Exception | None = None
        """Exception that its predicate or its receiver raised while it waited."""
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
        """Every event at or below it was handed out, and none above it: what a bookmark may say."""
        if self._pending:
            return self._pending[0].revision - 1
        return max(self._revision, self._window.told_revision) if self.is_idle else self._revision

    async def tell(self, receiver: Receiver) -> None:
        """Tell ``receiver`` everything, bookmarks among it, until the cache stops.

        Raises:
            Expired: the receiver had no room for too long, or the cache lost its place; list again.
            Exception: whatever the predicate or the receiver raised.
        """
        while (events := await self._step(receiver.receive)) is not None:
            if events:
                receiver.receive(EventBatch(events))
            await receiver.room()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; ends when the cache stops.

        Raises:
            Expired: the watch read too slowly, or the cache lost its place; list again.
        """
        if not self._pending:
            self._pending += await self.batch()
            if not self._pending:
                raise StopAsyncIteration
        return self._pending.popleft()

    async def batch(self) -> list[Event]:
        """Wait for an event; return all that are at hand, none when the cache stops.

        Raises:
            Expired: as in iteration.
        """
        while (events := await self._step(self._keep)) is not None:
            if events:
                return events
        return []

    def take(self) -> list[Event]:
        """Return the events that are at hand, for writing them in one go; waits for nothing.

        Raises:
            Expired: as in iteration.
        """
        if self._pending:
            taken = list(self._pending)
            self._pending.clear()
            return taken
        window = self._window
        if self._position >= window.told and self._epoch == window.epoch:
            return []  # what is in the window already is not to be told yet
        return self._read()

    def chosen(self, records: Iterable[Record]) -> list[Event]:
        """Return what it tells of records in its prefix, or of its key."""
        events = (event_of(record, self._predicate) for record in records if record.revision > self._after)
        return [event for event in events if event is not None]

    def stop(self, position: int, revision: int) -> None:
        """Wait no more, everything before ``position`` and up to ``revision`` being told."""
        self.is_idle = False
        self._position = max(self._position, position)
        self._revision = max(self._revision, revision)
        _wake(self._waiter)

    async def _step(self, receive: Callable[[EventBatch], bool]) -> list[Event] | None:
        """Return what is at hand; if nothing is, wait, what happens going to ``receive``, and return nothing. None: the cache stopped."""
        window = self._window
        if events := self.take():
            return events
        if window.closed:
            return None
        if self._position < window.told:
            await asyncio.sleep(0)  # nothing of that chunk passed the selector: let others run before the next
        elif self._bookmark_at is not None and (bookmark := self._bookmark()):
            return [bookmark]
        else:
            await self._wait(receive)
        return []

    async def _wait(self, receive: Callable[[EventBatch], bool]) -> None:
        """Wait until ``receive`` takes no more or raises, the window begins anew or closes, or a bookmark is due."""
        self._waiter = waiter = self._loop.create_future()
        # asyncio.timeout_at costs more
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
        """Keep what is told for whoever iterates."""
        self._pending += batch.events
        return False

    def _read(self) -> list[Event]:
        """Return the events of the next chunk of the window."""
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
            return None  # a watch of the future stays silent until then
        self._revision = max(self._revision, self._window.told_revision)  # it has read everything
        return Event(EventType.BOOKMARK, None, None, self._revision)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
