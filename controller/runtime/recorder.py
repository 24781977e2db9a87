"""Records Events of objects for users (``kubectl describe``).

Like client-go's correlator: a repeated event increases ``count`` of the first; more than ten events of an object within ten minutes that
differ only in their messages are combined into one; after a burst of 25, an object gets one more every five minutes. Failures to write them
are only logged.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from apiserver.apis.core.resources import EVENTS
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, dig, object_reference
from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import Clock
from controller.runtime.flowcontrol import TokenBucket

logger = logging.getLogger(__name__)

EventType: TypeAlias = Literal["Normal", "Warning"]

K = TypeVar("K")
V = TypeVar("V")

MAX_WAITING: Final = 1000
MAX_REMEMBERED: Final = 4096
MAX_MESSAGE: Final = 1024
"""kube-apiserver's limit."""
SIMILAR: Final = 10
SIMILAR_SECONDS: Final = 600.0
BURST: Final = 25.0
REFILL_PER_SECOND: Final = 1 / 300
TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event of an object."""

    reference: str
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CreateEvent:
    """Create an Event."""

    message: str


@dataclass(frozen=True, slots=True)
class PatchEvent:
    """Set count and message of a written Event."""

    name: str
    count: int
    message: str


class _Group(NamedTuple):
    """Occurrences that differ only in their messages."""

    reference: str
    type: EventType
    reason: str


@dataclass(slots=True)
class _Similar:
    since: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Written:
    """Name and count of an Event on the server."""

    name: str
    count: int


class Correlator:
    """Decides whether an occurrence gets a new Event or counts up an earlier one, and limits rates. Pure except for its memory."""

    def __init__(self) -> None:
        self._similar: OrderedDict[_Group, _Similar] = OrderedDict()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._written: OrderedDict[Occurrence, Written] = OrderedDict()

    def admits(self, reference: str, now: float) -> bool:
        """Return whether another event of this object is within its rate limit, and count it."""
        bucket = self._buckets.setdefault(reference, TokenBucket(BURST, REFILL_PER_SECOND, now))
        _bound(self._buckets, reference)
        return bucket.try_accept(now)

    def decide(self, occurrence: Occurrence, now: float) -> tuple[Occurrence, CreateEvent | PatchEvent]:
        """Return the key for :meth:`written`, and the Event to create or the patch of its count."""
        key = self._aggregated(occurrence, now)
        written = self._written.get(key)
        if written is None:
            return key, CreateEvent(key.message)
        return key, PatchEvent(written.name, written.count + 1, key.message)

    def written(self, key: Occurrence, name: str, count: int) -> None:
        """Record an Event on the server; later occurrences with this key increase its count."""
        self._written[key] = Written(name, count)
        _bound(self._written, key)

    def _aggregated(self, occurrence: Occurrence, now: float) -> Occurrence:
        group = _Group(occurrence.reference, occurrence.type, occurrence.reason)
        similar = self._similar.get(group)
        if similar is None or now - similar.since > SIMILAR_SECONDS:
            similar = self._similar[group] = _Similar(now)
        _bound(self._similar, group)
        if len(similar.messages) < SIMILAR or occurrence.message in similar.messages:
            similar.messages.add(occurrence.message)
            return occurrence
        # Without the newest message, so all further ones count up one Event.
        return Occurrence(
            occurrence.reference, occurrence.type, occurrence.reason, f"(combined from similar events): {min(similar.messages)}"
        )


def _bound(remembered: OrderedDict[K, V], key: K) -> None:
    remembered.move_to_end(key)
    if len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Waiting:
    reference: Object
    occurrence: Occurrence
    at: datetime
    sequence: int


class Recorder:
    """Queues events without waiting; :meth:`run` writes them. ``component`` is their source in ``kubectl describe``."""

    def __init__(self, client: Client, component: str, clock: Clock, *, host: str = "") -> None:
        self._client = client
        self._source = {"component": component} | ({"host": host} if host else {})
        self._clock = clock
        self._correlator = Correlator()
        self._sequence = itertools.count()
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(MAX_WAITING)

    def event(self, obj: Object, resource: Resource, type_: EventType, reason: str, message: str) -> None:
        """Record an event of ``obj``: ``reason`` in CamelCase for programs, ``message`` for users. Never fails or waits; drops too many."""
        reference = object_reference(obj, resource)
        identity = "/".join(str(reference[part]) for part in ("apiVersion", "kind", "namespace", "name", "uid"))
        occurrence, now = Occurrence(identity, type_, reason, message[:MAX_MESSAGE]), self._clock.now()
        if not self._correlator.admits(identity, now.timestamp()):
            return
        try:
            self._waiting.put_nowait(_Waiting(reference, occurrence, now, next(self._sequence)))
        except asyncio.QueueFull:
            logger.debug("dropped an Event: too many wait", extra={"reason": reason, "object": identity})

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            waiting = await self._waiting.get()
            try:
                await self._write(waiting)
            except Exception:  # one event's error must not end the process
                logger.exception(
                    "cannot write an Event", extra={"reason": waiting.occurrence.reason, "object": waiting.occurrence.reference}
                )

    async def _write(self, waiting: _Waiting) -> None:
        for tried in range(TRIES):
            try:
                async with asyncio.timeout(30):
                    await self._send(waiting)
            except (TransportError, TimeoutError, errors.ServiceUnavailable, errors.InternalError, errors.TooManyRequests):
                await asyncio.sleep(2**tried)
            except errors.StatusError as error:
                logger.debug("kube-apiserver refused an Event", extra={"reason": waiting.occurrence.reason, "error": str(error)})
                return
            else:
                return
        logger.warning("cannot write an Event", extra={"reason": waiting.occurrence.reason, "object": waiting.occurrence.reference})

    async def _send(self, waiting: _Waiting) -> None:
        key, decision = self._correlator.decide(waiting.occurrence, waiting.at.timestamp())
        namespace = waiting.reference["namespace"] or "default"
        now = times.to_rfc3339(waiting.at)
        if isinstance(decision, PatchEvent):
            patch = {"count": decision.count, "lastTimestamp": now, "message": decision.message}
            try:
                await self._client.patch(EVENTS, decision.name, patch, namespace)
            except errors.NotFound:  # events are deleted after an hour
                decision = CreateEvent(decision.message)
            else:
                self._correlator.written(key, decision.name, decision.count)
        if isinstance(decision, CreateEvent):
            written = await self._client.create(EVENTS, self._object(waiting, decision.message, namespace), namespace)
            self._correlator.written(key, dig(written, "metadata", "name"), 1)

    def _object(self, waiting: _Waiting, message: str, namespace: str) -> Object:
        now = times.to_rfc3339(waiting.at)
        # client-go's form. A repeated create makes no second Event.
        name = f"{waiting.reference['name']}.{int(waiting.at.timestamp() * 1_000_000):x}{waiting.sequence % 256:02x}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": waiting.reference,
            "type": waiting.occurrence.type,
            "reason": waiting.occurrence.reason,
            "message": message,
            "source": self._source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._source.get("host", ""),
        }
