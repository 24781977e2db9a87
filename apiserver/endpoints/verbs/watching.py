"""WATCH: a stream of frames, one JSON document per line.

It ends at its timeout, at shutdown, or with an ERROR frame, after which the client lists again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import orjson

from apiserver.apis.meta import fields
from apiserver.apis.meta.errors import BadRequest, Expired, Timeout
from apiserver.apis.meta.objects import Object
from apiserver.client.turns import Turn
from apiserver.endpoints import queries
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import PARTIAL, TABLE, Representation
from apiserver.endpoints.presenting import ONE, Include, include_of
from apiserver.endpoints.verbs.framing import frames_of
from apiserver.endpoints.verbs.reading import TURN_SECONDS
from apiserver.endpoints.verbs.served import Served
from apiserver.endpoints.watchmeters import WatchMeter, WatchMeters
from apiserver.metrics.instruments import Tally
from apiserver.registry.cacher.changes import Event, EventBatch, EventType
from apiserver.registry.cacher.history import Replay
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.window import Watch
from apiserver.registry.generic import selection
from apiserver.registry.generic.listing import parse_revision
from apiserver.registry.generic.selection import Selection

BOOKMARK_SECONDS: Final = 20.0
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_SHORTEST, _LONGEST = 1800, 3600
_SLICE: Final = 256
_GOODBYE_SECONDS: Final = 5.0


class Watches:
    """The open watches. A draining server ends them one by one, cleanly."""

    def __init__(self, meters: WatchMeters | None = None) -> None:
        self.meters = meters or WatchMeters()
        self.bookmark_seconds = BOOKMARK_SECONDS
        """Between bookmarks without events."""
        self._limits: set[asyncio.Timeout] = set()
        self._over = False

    def __len__(self) -> int:
        return len(self._limits)

    @asynccontextmanager
    async def limited(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the block after ``seconds``, or when :meth:`end_all` ends it, and raise TimeoutError."""
        async with asyncio.timeout(0 if self._over else seconds) as limit:
            self._limits.add(limit)
            try:
                yield limit
            finally:
                self._limits.discard(limit)

    def end_all(self, *, within: float) -> None:
        """Let every watch end at a random moment ``within`` these seconds, to spread the clients' return; new ones end at once."""
        self._over = True
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now + random.uniform(0, within))  # noqa: S311 - no secret


async def watch(served: Served, context: RequestContext, watches: Watches, *, name: str = "") -> Response:
    """Serve one watch of a collection, or of the object ``name`` in it."""
    representation = context.represent(*ONE, stream=True)
    options = queries.list_options(context.request.query, watch=True)
    resource = served.strategy.resource
    meter = watches.meters.watch(resource.group, resource.version, resource.plural)
    stream = _Stream(served, context, options, representation, name, meter, watches.bookmark_seconds)
    seconds = options.timeout_seconds or random.uniform(_SHORTEST, _LONGEST)  # noqa: S311 - no secret
    limit: asyncio.Timeout | None = None
    try:
        async with watches.limited(seconds) as limit:
            await stream.run()
    except TimeoutError:
        if limit is None or not limit.expired():
            raise
        stream.say_goodbye()
    return await stream.end()


@dataclass(frozen=True, slots=True)
class _Letter:
    data: bytes
    tally: Tally


class _Stream:
    __slots__ = (
        "_began",
        "_bookmark_seconds",
        "_coded_form",
        "_columns",
        "_context",
        "_events",
        "_form",
        "_has_begun",
        "_include",
        "_is_shared",
        "_meter",
        "_options",
        "_representation",
        "_selection",
        "_send",
        "_served",
        "_since",
        "_sink",
    )  # fmt: skip

    def __init__(
        self,
        served: Served,
        context: RequestContext,
        options: queries.ListOptions,
        representation: Representation,
        name: str,
        meter: WatchMeter,
        bookmark_seconds: float,
    ) -> None:
        self._served = served
        self._context = context
        self._options = options
        self._bookmark_seconds = bookmark_seconds if options.bookmarks else None
        self._representation = representation
        self._include: Include = include_of(context.request.query.get("includeObject"))
        field_selector = options.field_selector or (str(fields.Term("metadata.name", name)) if name else "")
        self._selection: Selection = selection.parse(served.strategy, options.label_selector, field_selector)
        if name and self._selection.name != name:
            raise BadRequest("fieldSelector metadata.name doesn't match requested name")
        self._since = parse_revision(options.resource_version)
        self._columns = True
        self._form = f"{served.store.resource.api_version} {representation.transform} {representation.version}"
        self._is_shared = representation.transform != TABLE  # a Table depends on its time
        self._sink = sink = frames_of(context)
        self._send = sink.send
        self._coded_form = f"{sink.coding} {self._form}"
        self._has_begun = False
        self._events: Watch | Replay | None = None
        self._meter = meter
        self._began = time.perf_counter()

    async def run(self) -> None:
        try:
            await self._serve()
        except (Expired, Timeout) as error:
            if self._revision and isinstance(error, Expired):
                self._meter.cut()
            # Kubernetes sends these two inside the stream, even first.
            await self._write([_frame("ERROR", orjson.dumps(error.to_json()))])

    def say_goodbye(self) -> None:
        if self._options.bookmarks and self._revision:
            self._post([self._bookmark(self._revision)])

    async def end(self) -> Response:
        await self._begin()
        await self._bounded(self._sink.end())
        return self._sink.response

    @staticmethod
    async def _bounded(writing: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await writing
        except TimeoutError:
            pass

    async def _serve(self) -> None:
        store = self._served.store
        initial, after = await self._beginning()
        prefix = store.objects.prefix(self._context.info.namespace)
        namespace, name, trigger = self._context.info.namespace, self._selection.name, self._selection.trigger
        key = store.objects.key(namespace, name) if namespace and name else ""
        snapshot: Sequence[Item] = ()
        if initial:
            if trigger is not None:
                await store.cache.prepare(trigger)
            picture = store.cache.list(prefix, trigger=trigger) if not key else store.cache.list(key, limit=1)
            after = picture.revision
            snapshot = picture.items
        async with store.cache.watch(
            prefix, after=after, predicate=self._predicate(), bookmark_seconds=self._bookmark_seconds, key=key, trigger=trigger
        ) as events:
            await self._begin()
            await self._write_all(snapshot)
            if initial and self._options.bookmarks:
                await self._write([self._bookmark(after, {INITIAL_EVENTS_END: "true"})])
            if self._options.send_initial_events:
                self._meter.listed(time.perf_counter() - self._began, self._context.info.scope)
            del snapshot
            self._events = events
            await events.tell(self)

    # The watch cache's interface (changes.Receiver).

    def receive(self, batch: EventBatch) -> bool:
        """Send events, encoded once for watches with the same form and batch; return whether there is room."""
        letter = batch.written(self._coded_form, self._letter_of) if self._is_shared else self._letter_of(batch.events)
        self._meter.sent(letter.tally)
        return self._send(letter.data)

    async def room(self) -> None:
        await self._sink.room()

    def _letter_of(self, events: Sequence[Event]) -> _Letter:
        return self._letter([self._event(each) for each in events])

    @property
    def _revision(self) -> int:
        return self._events.revision if self._events is not None else 0

    async def _beginning(self) -> tuple[bool, int]:
        """Return whether existing objects come first, and after which revision changes follow.

        ===================== ================== ====================== ========================
        ``sendInitialEvents`` no revision        ``0``                  N
        ===================== ================== ====================== ========================
        absent                objects as of now  objects in the cache   changes after N
        true                  objects as of now  objects in the cache   objects not older than N
        false                 changes after now  changes after now      changes after N
        ===================== ================== ====================== ========================
        """
        cache, asked = self._served.store.cache, self._options.send_initial_events
        if self._since and not asked:
            return False, self._since
        reached = await cache.wait_fresh(self._since if self._options.resource_version else None)
        return asked is not False, reached

    def _predicate(self) -> Selection | None:
        return None if self._selection.is_everything else self._selection

    def _event(self, event: Event) -> bytes:
        if event.type is EventType.BOOKMARK or event.item is None:
            return self._bookmark(event.revision)
        return event.framed(self._form, self._encode) if self._is_shared else self._encode(event)

    def _encode(self, event: Event) -> bytes:
        return b"" if event.item is None else self._object(event.type.value, event.item)

    def _object(self, kind: str, item: Item) -> bytes:
        if not self._representation.transform:
            return _frame(kind, self._served.store.shown_bytes(item))
        shown = self._served.presenter.one(self._served.store.shown(item), self._representation, self._include, columns=self._columns)
        self._columns = False
        return _frame(kind, orjson.dumps(shown))

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        resource = self._served.strategy.resource
        obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {"resourceVersion": str(revision)}}
        if self._representation.transform == PARTIAL:
            obj |= {"kind": PARTIAL, "apiVersion": f"meta.k8s.io/{self._representation.version}"}
        if annotations:
            obj["metadata"]["annotations"] = annotations
        if self._representation.transform == TABLE:
            obj = self._table_bookmark(obj)
        return _frame("BOOKMARK", orjson.dumps(obj))

    def _table_bookmark(self, obj: Object) -> Object:
        """Return a bookmark as a Table's row, because a Table's metadata has no annotations."""
        version = self._representation.version
        row = {"cells": [], "object": {**obj, "kind": PARTIAL, "apiVersion": f"meta.k8s.io/{version}"}}
        return {
            "kind": TABLE,
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "columnDefinitions": None,
            "rows": [row],
        }

    async def _write_all(self, snapshot: Sequence[Item]) -> None:
        turn, frames = Turn(TURN_SECONDS, most=_SLICE), list[bytes]()
        for item in snapshot:
            if turn.is_over():
                await self._write(frames)
                await turn.another()
                frames = []
            if self._selection(item):
                frames.append(self._object("ADDED", item))
        await self._write(frames)

    async def _write(self, frames: Sequence[bytes]) -> None:
        if frames:
            await self._begin()
            self._post(frames)
            await self.room()

    def _letter(self, frames: Sequence[bytes]) -> _Letter:
        return _Letter(self._sink.encode(frames), self._meter.tally(frames))

    def _post(self, frames: Sequence[bytes]) -> None:
        letter = self._letter(frames)
        self._meter.sent(letter.tally)
        self._send(letter.data)

    async def _begin(self) -> None:
        if not self._has_begun:
            await self._sink.begin()
            self._has_begun = True


def _frame(kind: str, data: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), data)
