"""Changes of objects as watch events, built once for all watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from apiserver.registry.cacher import canonical
from apiserver.registry.cacher.items import Item

Predicate = Callable[[Item], bool]
T = TypeVar("T")


class EventType(StrEnum):
    """Kubernetes' watch event types except ERROR, which is raised."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Event:
    """A watch event, shared by watches.

    ``item`` is the object to send: DELETED's last state at the deletion's revision, None for BOOKMARK. ``previous`` is
    its earlier state.
    """

    __slots__ = ("_frames", "item", "previous", "revision", "type")

    def __init__(self, kind: EventType, item: Item | None, previous: Item | None, revision: int) -> None:
        self.type = kind
        self.item = item
        self.previous = previous
        self.revision = revision
        self._frames: dict[str, bytes] | None = None

    def framed(self, form: str, make: Callable[[Event], bytes]) -> bytes:
        """Return the event as bytes by ``make``, cached under ``form``."""
        frames = self._frames
        if frames is None:
            frames = self._frames = {}
        frame = frames.get(form)
        if frame is None:
            frame = frames[form] = make(self)
        return frame

    def forget_frames(self) -> None:
        """Free the cached frames."""
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
    """A change of one object at ``revision``, from ``old`` to ``new`` (None: absent)."""

    __slots__ = ("_events", "key", "new", "old", "revision")

    def __init__(self, key: str, revision: int, old: Item | None, new: Item | None) -> None:
        self.key = key
        self.revision = revision
        self.old = old
        self.new = new
        self._events: dict[EventType, Event] | None = None

    def event(self, kind: EventType) -> Event:
        """Return the change as this kind of event; DELETED carries ``old`` with this change's revision."""
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

    def cool(self) -> None:
        """Drop the decoded form of ``old``; a later use decodes again."""
        if self.old is not None:
            self.old.cool()

    def forget_frames(self) -> None:
        """Free the cached frames of its events."""
        for event in self._events.values() if self._events else ():
            event.forget_frames()


def event_of(record: Record, predicate: Predicate | None) -> Event | None:
    """Return the event for ``predicate``: ADDED when the object begins to match, DELETED when it stops; None if it never matches."""
    old, new = record.old, record.new
    was = old is not None and (predicate is None or predicate(old))
    if new is not None and (predicate is None or predicate(new)):
        return record.event(EventType.MODIFIED if was else EventType.ADDED)
    return record.event(EventType.DELETED) if was else None


class EventBatch:
    """Events dispatched together, in order; shared by watches."""

    __slots__ = ("_written", "events")

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._written: dict[str, Any] = {}

    def written(self, form: str, write: Callable[[Sequence[Event]], T]) -> T:
        """Return the result of ``write``, cached under ``form``."""
        found: T | None = self._written.get(form)
        if found is None:
            found = self._written[form] = write(self.events)
        return found


class Receiver(Protocol):
    """Receiver of a watch's events."""

    def receive(self, batch: EventBatch) -> bool:
        """Take all these events without blocking; return False if now full: send no more until :meth:`room` returns."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more."""
        ...
