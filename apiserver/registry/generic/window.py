"""The last changes of a watch cache, and the watches that read them.

A watch holds a position in the one window instead of a buffer of its own: a thousand watches cost a thousand integers, and a
watch that reads too slowly is cut off when the window moves past it, without anybody waiting for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple, Self

from apiserver.apis.meta import errors
from apiserver.registry.generic.items import Item

CHUNK = 256  # changes a watch looks at before it hands them on: bounds what one watch holds and how long it keeps the loop

Predicate = Callable[[Item], bool]


class EventType(StrEnum):
    """Kubernetes' watch event types, ERROR aside: errors are raised."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Event(NamedTuple):
    """One thing that a watch tells.

    ``item`` is the object as it goes on the wire: for DELETED the last state with the revision of its end; None for BOOKMARK.
    ``previous`` is what it was before (None for ADDED of a new object, and for BOOKMARK).
    """

    type: EventType
    item: Item | None
    previous: Item | None
    revision: int


class Record:
    """One change of one object: ``old`` became ``new`` at ``revision`` (None: absent)."""

    __slots__ = ("_departed", "_restamp", "key", "new", "old", "revision")

    def __init__(self, key: str, revision: int, old: Item | None, new: Item | None, restamp: Callable[[], Item | None]) -> None:
        self.key = key
        self.revision = revision
        self.old = old
        self.new = new
        self._restamp: Callable[[], Item | None] | None = restamp
        self._departed: Item | None = None

    @property
    def departed(self) -> Item | None:
        """``old`` with this change's revision in it, made once for all watches."""
        if self._restamp is not None:
            self._departed = self._restamp() or self.old
            self._restamp = None
        return self._departed


def event_of(record: Record, predicate: Predicate | None) -> Event | None:
    """Return what a watch with ``predicate`` tells of ``record``: an object that begins to match is ADDED, one that stops is DELETED."""
    was = record.old is not None and (predicate is None or predicate(record.old))
    new = record.new
    if new is not None and (predicate is None or predicate(new)):
        return Event(EventType.MODIFIED if was else EventType.ADDED, new, record.old, record.revision)
    if was:
        return Event(EventType.DELETED, record.departed, record.old, record.revision)
    return None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_revision_of = attrgetter("revision")


class Window:
    """The changes after ``oldest`` up to ``revision``, at most about ``capacity`` of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._records: list[Record] = []
        self._base = 0  # sequence number of the first record; only grows
        self._waiting: dict[Watch, asyncio.Future[None]] = {}
        self.epoch = 0
        """Grows when the window begins anew."""
        self.oldest = 0
        self.revision = 0
        self.closed = False

    @property
    def end(self) -> int:
        """The sequence number that the next record gets."""
        return self._base + len(self._records)

    def reset(self, revision: int) -> None:
        """Begin anew at ``revision``: what happened up to it is not known any more."""
        self._base = self.end
        self._records = []
        self.epoch += 1
        self.oldest = self.revision = revision
        self._wake_all()

    def extend(self, records: Sequence[Record], revision: int) -> None:
        """Add what happened up to ``revision``."""
        self._records += records
        self.revision = revision
        if len(self._records) > self._capacity + self._capacity // 4:  # in strokes: dropping one at a time would move all of them
            drop = len(self._records) - self._capacity
            self.oldest = self._records[drop - 1].revision
            del self._records[:drop]
            self._base += drop
        for watch, future in self._waiting.items():
            if not future.done() and watch.is_concerned(records, self.end):
                future.set_result(None)

    def close(self) -> None:
        """End every watch."""
        self.closed = True
        self._wake_all()

    def position(self, after: int) -> int:
        """Return the sequence number of the first change above revision ``after``.

        Raises:
            Expired: changes above ``after`` are gone.
        """
        if after < self.oldest:
            raise self.expired(after)
        return self._base + bisect_right(self._records, after, key=_revision_of)

    def read(self, position: int) -> Sequence[Record] | None:
        """Return at most CHUNK records from ``position`` on; None when some of them are gone."""
        if position < self._base:
            return None
        return self._records[position - self._base : position - self._base + CHUNK]

    def expired(self, after: int) -> errors.Expired:
        """Return the error for a position that is gone, in Go's words."""
        return errors.Expired(f"too old resource version: {after} ({self.oldest})")

    async def wait(self, watch: Watch, until: float | None) -> None:
        """Return when something happened that concerns ``watch``, or at loop time ``until``."""
        loop = asyncio.get_running_loop()
        future = self._waiting[watch] = loop.create_future()
        timer = (
            loop.call_at(until, _wake, future) if until is not None else None
        )  # asyncio.timeout_at costs more, for each event of each watch
        try:
            await future
        finally:
            if timer:
                timer.cancel()
            del self._waiting[watch]

    def _wake_all(self) -> None:
        for future in self._waiting.values():
            _wake(future)


class Watch:
    """An iterator over the events of one watch. One reader at a time; cancelling a wait loses nothing."""

    def __init__(self, window: Window, prefix: str, after: int, predicate: Predicate | None, bookmark_seconds: float | None) -> None:
        self._window = window
        self._prefix = prefix
        self._after = after
        self._predicate = predicate
        self._position = window.position(after)
        self._epoch = window.epoch
        self._pending: deque[Event] = deque()
        self._bookmark_seconds = bookmark_seconds
        self._bookmark_at = asyncio.get_running_loop().time() + bookmark_seconds if bookmark_seconds else None
        self.revision = max(after, window.revision if self._position == window.end else after)
        """Every event at or below it was handed out: what a bookmark may say."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; ends when the cache stops.

        Raises:
            Expired: the watch read too slowly, or the cache lost its place; list again.
        """
        while True:
            if self._pending or self._fill():
                return self._pending.popleft()
            if self._window.closed:
                raise StopAsyncIteration
            if self._position < self._window.end:
                await asyncio.sleep(0)  # nothing of that chunk passed the selector: let others run before the next
                continue
            if bookmark := self._bookmark():
                return bookmark
            await self._window.wait(self, self._bookmark_at)

    def take(self) -> list[Event]:
        """Return the events that are at hand, for writing them in one go; waits for nothing.

        Raises:
            Expired: as in iteration.
        """
        if not self._pending:
            self._fill()
        taken = list(self._pending)
        self._pending.clear()
        return taken

    def is_concerned(self, records: Sequence[Record], end: int) -> bool:
        """Say whether to wake for ``records``, which end at position ``end``; if not, move past them: who waits has read all before."""
        for record in records:
            if record.key.startswith(self._prefix):
                return True
        self._position = end
        self.revision = max(self._after, self._window.revision)
        return False

    def _fill(self) -> bool:
        window = self._window
        if self._epoch != window.epoch:
            self._position = window.position(self.revision)
            self._epoch = window.epoch
        if self._position < window.end:
            records = window.read(self._position)
            if records is None:
                raise window.expired(self.revision)
            self._position += len(records)
            for record in records:
                if record.revision > self._after and record.key.startswith(self._prefix):
                    event = event_of(record, self._predicate)
                    if event is not None:
                        self._pending.append(event)
        if self._position == window.end and not self._pending:
            self.revision = max(self._after, window.revision)
        return bool(self._pending)

    def _bookmark(self) -> Event | None:
        now = asyncio.get_running_loop().time()
        if self._bookmark_at is None or self._bookmark_seconds is None or now < self._bookmark_at:
            return None
        self._bookmark_at = now + self._bookmark_seconds
        if self._window.revision < self._after:
            return None  # a watch of the future stays silent until then
        return Event(EventType.BOOKMARK, None, None, self.revision)
