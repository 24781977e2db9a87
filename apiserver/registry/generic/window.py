"""The last changes of a watch cache, and the watches that read them.

A watch holds a position in the one window instead of a buffer of its own, and is cut off when the window moves past it, without anybody
waiting for it. One that waits is found by what it waits for (a key, a namespace, a field's value), so a change costs nothing for the
thousands that it does not concern; and it need not keep up with what passes meanwhile, for there was nothing for it.

Telling many watches takes a while, most of it for a record of TLS and a system call each. So whoever told many pauses before it tells the
next change, in proportion to their number, and what comes meanwhile goes out together. One change now and then is told at once.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Final, Self

from apiserver.apis.meta import errors
from apiserver.registry.generic import canonical
from apiserver.registry.generic.items import Item

CHUNK = 256  # changes a watch looks at before it hands them on: bounds what one watch holds and how long it keeps the loop
STROKE: Final = 32  # changes that the window drops at once
FRAMED: Final = 64  # changes whose encoded frames are kept: watches that keep up share them, those that do not encode again
PAUSE_SECONDS: Final = 100e-6  # for each watch that was told: some three times what telling it costs
LONGEST_PAUSE_SECONDS: Final = 0.01
FEW: Final = 20  # watches for whom no pause is made: a timer is not that exact

Predicate = Callable[[Item], bool]


@dataclass(frozen=True, slots=True)
class Trigger:
    """A predicate holds only for items of which ``read`` returns ``value``; ``field`` names what is read."""

    field: str
    value: str
    read: Callable[[Item], str]


class EventType(StrEnum):
    """Kubernetes' watch event types, ERROR aside: errors are raised."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Event:
    """One thing that watches tell; the same event for all that tell it.

    ``item`` is the object as it goes on the wire: for DELETED the last state with the revision of its end; None for BOOKMARK.
    ``previous`` is what it was before (None for ADDED of a new object, and for BOOKMARK).
    """

    __slots__ = ("_frames", "item", "previous", "revision", "type")

    def __init__(self, kind: EventType, item: Item | None, previous: Item | None, revision: int) -> None:
        self.type = kind
        self.item = item
        self.previous = previous
        self.revision = revision
        self._frames: dict[str, bytes] | None = None

    def framed(self, form: str, make: Callable[[Event], bytes]) -> bytes:
        """Return what ``make`` encodes of this event, made once for all watches of a ``form`` that are about as far."""
        frames = self._frames
        if frames is None:
            frames = self._frames = {}
        frame = frames.get(form)
        if frame is None:
            frame = frames[form] = make(self)
        return frame

    def forget_frames(self) -> None:
        """Free what ``framed`` keeps."""
        self._frames = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (self.type, self.item, self.previous, self.revision) == (other.type, other.item, other.previous, other.revision)

    def __hash__(self) -> int:
        return hash((self.type, self.revision, self.item))

    def __repr__(self) -> str:
        return f"Event({self.type.value}, {self.item!r}, {self.previous!r}, {self.revision})"


class Record:
    """One change of one object: ``old`` became ``new`` at ``revision`` (None: absent)."""

    __slots__ = ("_events", "key", "new", "old", "revision")

    def __init__(self, key: str, revision: int, old: Item | None, new: Item | None) -> None:
        self.key = key
        self.revision = revision
        self.old = old
        self.new = new
        self._events: dict[EventType, Event] | None = None

    def event(self, kind: EventType) -> Event:
        """Return the change as an event of this type; DELETED carries ``old`` with this change's revision in it."""
        events = self._events
        if events is None:
            events = self._events = {}
        event = events.get(kind)
        if event is None:
            item = self.new
            if kind is EventType.DELETED and self.old is not None:
                item = canonical.restamped(self.old, self.revision)
            event = events[kind] = Event(kind, item, self.old, self.revision)
        return event

    def forget_frames(self) -> None:
        """Free the encoded frames of its events."""
        for event in self._events.values() if self._events else ():
            event.forget_frames()


def event_of(record: Record, predicate: Predicate | None) -> Event | None:
    """Return what a watch with ``predicate`` tells of ``record``: an object that begins to match is ADDED, one that stops is DELETED."""
    old, new = record.old, record.new
    was = old is not None and (predicate is None or predicate(old))
    if new is not None and (predicate is None or predicate(new)):
        return record.event(EventType.MODIFIED if was else EventType.ADDED)
    return record.event(EventType.DELETED) if was else None


class _Group:
    """The waiting watches of one scope: those that any change concerns, and the others by field and value."""

    __slots__ = ("by_field", "plain", "size")

    def __init__(self) -> None:
        self.plain: dict[Watch, None] = {}
        self.by_field: dict[str, tuple[Callable[[Item], str], dict[str, dict[Watch, None]]]] = {}
        self.size = 0

    def add(self, watch: Watch) -> None:
        self.size += 1
        if watch.trigger is None:
            self.plain[watch] = None
            return
        _, by_value = self.by_field.setdefault(watch.trigger.field, (watch.trigger.read, {}))
        by_value.setdefault(watch.trigger.value, {})[watch] = None

    def discard(self, watch: Watch) -> None:
        self.size -= 1
        trigger = watch.trigger
        if trigger is None:
            del self.plain[watch]
            return
        _, by_value = self.by_field[trigger.field]
        del by_value[trigger.value][watch]
        if not by_value[trigger.value]:
            del by_value[trigger.value]
        if not by_value:
            del self.by_field[trigger.field]

    def concerned(self, record: Record) -> Iterable[Watch]:
        yield from self.plain
        for read, by_value in self.by_field.values():
            values = {read(item) for item in (record.old, record.new) if item is not None}
            for value in values:
                yield from by_value.get(value, ())

    def watches(self) -> Iterable[Watch]:
        yield from self.plain
        for _, by_value in self.by_field.values():
            for watches in by_value.values():
                yield from watches


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_revision_of = attrgetter("revision")


class Window:
    """The changes after ``oldest`` up to ``revision``, at most about ``capacity`` of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._records: list[Record] = []
        self._base = 0  # sequence number of the first record
        self._framed = 0  # sequence number of the first record that may hold frames
        self._of_prefix: dict[str, _Group] = {}
        self._of_key: dict[str, _Group] = {}
        self._lengths: Counter[int] = Counter()  # of the prefixes
        self._pause_until = 0.0
        self._pause: asyncio.TimerHandle | None = None
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
        """How many records :meth:`prepend` takes."""
        return max(self._capacity - len(self._records), 0)

    def reset(self, revision: int) -> None:
        """Begin anew at ``revision``: what happened up to it is not known any more."""
        self._tell_all()
        for watch in self._waiting():
            watch.settle()
        self._base = self._framed = self.end
        self._records = []
        self.epoch += 1
        self.oldest = self.revision = self.told_revision = revision
        self._wake_all()

    def extend(self, records: Sequence[Record], revision: int) -> None:
        """Add what happened up to ``revision``."""
        self._records += records
        self.end += len(records)
        self.revision = revision
        if time.monotonic() >= self._pause_until:
            self._tell_all()
        elif self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(self._pause_until - time.monotonic(), self._tell_all)
        if len(self._records) > self._capacity + STROKE:  # dropping one at a time would move all of them
            self._tell_all()
            self._drop(len(self._records) - self._capacity)
        for position in range(max(self._framed, self._base), self.end - FRAMED):
            self._records[position - self._base].forget_frames()
        self._framed = max(self._framed, self.end - FRAMED)

    def prepend(self, records: Sequence[Record], after: int) -> None:
        """Reach further back: ``records`` are all that happened after ``after``, up to ``oldest``."""
        self._records[:0] = records
        self._base -= len(records)
        self.oldest = after

    def close(self) -> None:
        """End every watch."""
        self._tell_all()
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

    def revision_before(self, position: int) -> int:
        """Return the revision to which everything lies before ``position``; 0 when that is gone."""
        if position >= self.end:
            return self.revision
        return self._records[position - self._base].revision - 1 if position >= self._base else 0

    def expired(self, after: int) -> errors.Expired:
        """Return the error for a position that is gone, in Go's words."""
        return errors.Expired(f"too old resource version: {after} ({self.oldest})")

    async def wait(self, watch: Watch, until: float | None) -> None:
        """Return when something happened that concerns ``watch``, or at loop time ``until``."""
        loop = watch.loop
        watch.waiter = future = loop.create_future()
        # asyncio.timeout_at costs more, for each event of each watch
        timer = loop.call_at(until, _wake, future) if until is not None else None
        watch.is_idle = True
        self._enter(watch)
        try:
            await future
        finally:
            if timer:
                timer.cancel()
            self._leave(watch)
            watch.settle()
            watch.waiter = None

    def _drop(self, count: int) -> None:
        self.oldest = self._records[count - 1].revision
        del self._records[:count]
        self._base += count

    def _tell_all(self) -> None:
        """Tell the watches that wait of everything that they were not told yet; then pause, if they were many."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        woken = 0
        for position in range(self.told, self.end):
            woken += self._tell(self._records[position - self._base], position)
        self.told, self.told_revision = self.end, self.revision
        if woken > FEW:
            self._pause_until = time.monotonic() + min(woken * PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    def _tell(self, record: Record, position: int) -> int:
        """Wake those that the change concerns; return how many they are."""
        key, woken = record.key, 0
        for length in self._lengths:
            if (group := self._of_prefix.get(key[:length])) is not None:
                for watch in group.concerned(record):
                    woken += watch.wake_at(position, record)
        if (group := self._of_key.get(key)) is not None:
            for watch in group.concerned(record):
                woken += watch.wake_at(position, record)
        return woken

    def _enter(self, watch: Watch) -> None:
        groups, scope = (self._of_key, watch.key) if watch.key else (self._of_prefix, watch.prefix)
        group = groups.get(scope)
        if group is None:
            group = groups[scope] = _Group()
            if not watch.key:
                self._lengths[len(scope)] += 1
        group.add(watch)

    def _leave(self, watch: Watch) -> None:
        groups, scope = (self._of_key, watch.key) if watch.key else (self._of_prefix, watch.prefix)
        group = groups[scope]
        group.discard(watch)
        if group.size:
            return
        del groups[scope]
        if not watch.key:
            self._lengths[len(scope)] -= 1
            if not self._lengths[len(scope)]:
                del self._lengths[len(scope)]

    def _waiting(self) -> list[Watch]:
        return [watch for groups in (self._of_prefix, self._of_key) for group in groups.values() for watch in group.watches()]

    def _wake_all(self) -> None:
        for watch in self._waiting():
            if watch.waiter is not None:
                _wake(watch.waiter)


class Watch:
    """An iterator over the events of one watch. One reader at a time; cancelling a wait loses nothing."""

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
        self.waiter: asyncio.Future[None] | None = None
        self.is_idle = False
        """It waits, and nothing concerned it since."""
        self._window = window
        self._after = after
        self._predicate = predicate
        self._position = window.position(after)
        self._epoch = window.epoch
        self._pending: deque[Event] = deque()
        self._bookmark_seconds = bookmark_seconds
        self.loop = asyncio.get_running_loop()
        self._bookmark_at = self.loop.time() + bookmark_seconds if bookmark_seconds else None
        self._revision = self._before = max(after, window.revision if self._position == window.end else after)

    @property
    def revision(self) -> int:
        """Every event at or below it was handed out, and none above it: what a bookmark may say."""
        if self.is_idle:
            return max(self._revision, self._window.told_revision)
        return self._before if self._pending else self._revision

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
        window = self._window
        while True:
            if events := self.take():
                return events
            if window.closed:
                return []
            if self._position < window.told:
                await asyncio.sleep(0)  # nothing of that chunk passed the selector: let others run before the next
            elif self._bookmark_at is not None and (bookmark := self._bookmark()):
                return [bookmark]
            else:
                await window.wait(self, self._bookmark_at)

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
            return []  # what it would find already is not to be told yet
        return self._read()

    def wake_at(self, position: int, record: Record) -> bool:
        """Wake for ``record``, which stands at ``position``, unless it was read: what else came in the meantime was not for this watch."""
        if not self.is_idle or position < self._position:
            return False
        self.is_idle = False
        self._position = position
        self._revision = max(self._revision, record.revision - 1)
        if self.waiter is not None:
            _wake(self.waiter)
        return True

    def settle(self) -> None:
        """Move to what watches were told, if nothing of it was for this one while it waited."""
        if self.is_idle:
            self.is_idle = False
            self._position = max(self._position, self._window.told)
            self._revision = max(self._revision, self._window.told_revision)

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
        events = []
        for record in records:
            if record.revision > self._after and self._is_about(record.key):
                event = event_of(record, self._predicate)
                if event is not None:
                    events.append(event)
        self._before, self._revision = self._revision, max(self._after, window.revision_before(self._position))
        return events

    def _is_about(self, key: str) -> bool:
        return key == self.key if self.key else key.startswith(self.prefix)

    def _bookmark(self) -> Event | None:
        now = self.loop.time()
        if self._bookmark_at is None or self._bookmark_seconds is None or now < self._bookmark_at:
            return None
        self._bookmark_at = now + self._bookmark_seconds
        if self._window.told_revision < self._after:
            return None  # a watch of the future stays silent until then
        self._revision = max(self._revision, self._window.told_revision)  # it has read everything
        return Event(EventType.BOOKMARK, None, None, self._revision)
