"""A local copy of one resource that follows the API server: client-go's reflector and shared informer.

Guarantees (tests: ``tests/component/client/test_informer.py`` and ``tests/unit/apiserver/client/test_store.py``):

1. ``synced`` is set once the copy has everything that existed at some moment after the start, and stays set.
2. Every object eventually matches the server. Its states come in order, possibly with gaps; there is no order across
   objects.
3. Every deletion is reported, even while disconnected; so is a changed uid under the same name.
4. Only cancellation ends :meth:`Informer.run`. While the server is unreachable, refuses or lacks the resource, the copy
   stays.
5. Memory is bounded by the server's objects: there is no event queue.
6. Objects without a name are skipped, and exceptions of ``trim``, indexers and callbacks logged; :attr:`Informer.faults` counts both.

Callbacks run in the event loop between events: add a key to a work queue and return.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, annotations_of, namespace_of, resource_version_of
from apiserver.apis.meta.resources import Resource
from apiserver.client import watching
from apiserver.client.backoff import Backoff
from apiserver.client.rest import Client, TransportError
from apiserver.client.store import Callback, Indexer, Store
from apiserver.client.turns import Turn

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 300
"""Watches last one to two times this long, as in client-go, to move load to new replicas."""
INITIAL_IDLE_SECONDS: Final = 30.0
"""Without anything, list: the server ignores ``sendInitialEvents``."""
SHORT_WATCH_SECONDS: Final = 1.0
TURN_SECONDS: Final = 0.01
"""For a batch of objects before other tasks run."""
_CHANGES: Final = (watching.ADDED, watching.MODIFIED, watching.DELETED)
_EXPIRED: Final = (errors.Expired, errors.Gone)
_NO_WATCH_LIST: Final = (errors.BadRequest, errors.Invalid, errors.MethodNotAllowed, errors.NotAcceptable)


class Informer:
    """A copy of one resource's objects, in one namespace or in all, filtered by selectors; :meth:`run` keeps it current.

    ``trim`` must keep at least name, namespace, uid and resourceVersion.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer] | None = None,
        trim: Callable[[Object], Object] | None = None,
        backoff: Backoff | None = None,
        initial_idle_seconds: float = INITIAL_IDLE_SECONDS,
        idle_seconds: float | None = None,
    ) -> None:
        """``idle_seconds``: watch again after so long without events and bookmarks; None: when TCP gives up."""
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._store = Store(indexers or {})
        self._trim = trim
        self._backoff = backoff or Backoff(0.25, 10)
        self._initial_idle_seconds = initial_idle_seconds
        self._idle_seconds = idle_seconds
        self._watch_list = True
        self._resource_version = ""
        self._said = ""
        self._faults = 0

    @property
    def faults(self) -> int:
        """Number of callbacks' and indexes' exceptions, and of skipped objects."""
        return self._faults + self._store.faults

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one read-only object, or None. ``namespace`` of a cluster-scoped one is empty."""
        return self._store.get(NamespacedName(namespace, name))

    def list(self, namespace: str | None = None) -> builtins.list[Object]:
        """Return all objects (``namespace``: only of this one), read-only, by a scan."""
        return [each for each in self._store.list() if namespace is None or namespace_of(each) == namespace]

    def by_index(self, name: str, value: Hashable, limit: int = 0) -> Iterable[Object]:
        """Return the objects with ``value`` in the index ``name``, sorted by namespace and name; with a ``limit``, those indexed first."""
        return self._store.by_index(name, value, limit)

    def __len__(self) -> int:
        return len(self._store)

    def subscribe(self, callback: Callback) -> None:
        """Call ``callback(None, object)`` now for every object, then ``callback(old, new)`` for each change; ``new`` is None if deleted."""
        self._store.subscribe(callback)

    def remember(self, obj: Object) -> None:
        """Put our own write's result into the copy before the watch does, unless it is outdated."""
        for each in self._sound([obj]):
            self._store.apply(each)

    async def run(self) -> None:
        """Follow the server until cancelled."""
        while True:
            began = time.monotonic()
            try:
                if self._resource_version:
                    await self._watch()
                elif self._watch_list:
                    await self._sync_by_watch()
                else:
                    await self._sync_by_list()
                if time.monotonic() - began >= SHORT_WATCH_SECONDS:
                    self._backoff.reset()
                    continue
            except _EXPIRED:
                self._resource_version = ""  # list again
                logger.info("resourceVersion expired, listing again", extra={"resource": self.resource.plural})
            except (errors.StatusError, TransportError) as error:
                if time.monotonic() - began >= SHORT_WATCH_SECONDS:
                    self._backoff.reset()
                self._say(error)
            await asyncio.sleep(self._backoff.next())

    def _say(self, error: Exception) -> None:
        routine = isinstance(error, TransportError) and self._resource_version
        new, self._said = str(error) != self._said, str(error)
        level = logging.WARNING if new and not routine else logging.DEBUG
        logger.log(level, "list or watch failed, retrying", extra={"resource": self.resource.plural, "error": self._said})

    async def _sync_by_watch(self) -> None:
        """Load and follow by a streaming list (KEP-3157)."""
        initial: builtins.list[Object] = []
        end: Object | None = None
        try:
            async with aclosing(self._open("", initial_events=True)) as events:
                async with asyncio.timeout(self._initial_idle_seconds) as limit:
                    async for event in events:
                        limit.reschedule(asyncio.get_running_loop().time() + self._initial_idle_seconds)
                        if event.type == watching.BOOKMARK and watching.INITIAL_EVENTS_END in annotations_of(event.object):
                            end = event.object
                            break
                        if event.type == watching.ADDED:
                            initial += self._sound([event.object])
                if end is not None:
                    await self._replace(initial, resource_version_of(end))
                    initial = []  # this frame lives as long as the watch
                    async for event in events:
                        self._apply(event)
        except _NO_WATCH_LIST as error:
            self._fall_back(str(error))
        except TimeoutError:
            self._fall_back("no bookmark came")

    def _fall_back(self, why: str) -> None:
        if not self._resource_version:
            self._watch_list = False
            logger.info("the server does not support streaming lists, using list", extra={"resource": self.resource.plural, "error": why})

    async def _sync_by_list(self) -> None:
        # Newest: the copy never goes back on another replica.
        listed = await self._client.list(
            self.resource, self._namespace, label_selector=self._label_selector, field_selector=self._field_selector
        )
        sound: builtins.list[Object] = []
        turn = Turn(TURN_SECONDS)
        for each in listed["items"]:
            sound += self._sound([each])
            await turn.rest()
        await self._replace(sound, resource_version_of(listed))
        await self._watch()

    async def _watch(self) -> None:
        async with aclosing(self._open(self._resource_version)) as events:
            async for event in events:
                self._apply(event)

    def _open(self, resource_version: str, *, initial_events: bool = False) -> AsyncGenerator[watching.WatchEvent, None]:
        seconds = int(random.uniform(1, 2) * WATCH_SECONDS)  # noqa: S311 - spreads load
        return self._client.watch(
            self.resource,
            self._namespace,
            resource_version=resource_version,
            timeout_seconds=seconds,
            initial_events=initial_events,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            idle_seconds=self._idle_seconds,
        )

    async def _replace(self, objects: builtins.list[Object], resource_version: str) -> None:
        turn = Turn(TURN_SECONDS)
        for each in objects:
            self._store.prepare(each)
            await turn.rest()
        for _ in self._store.replace_in_steps(objects, resource_version):
            await turn.rest()
        self._resource_version = resource_version
        self._backoff.reset()
        self._said = ""
        self.synced.set()

    def _apply(self, event: watching.WatchEvent) -> None:
        for each in self._sound([event.object]) if event.type in _CHANGES else ():
            if event.type == watching.DELETED:
                self._store.delete(each)
            else:
                self._store.apply(each)
        version = resource_version_of(event.object)
        self._resource_version = version if version and isinstance(version, str) else self._resource_version

    def _sound(self, objects: Iterable[Object]) -> builtins.list[Object]:
        found: builtins.list[Object] = []
        for each in objects:
            if not _has_identity(each):
                self._fault("ignored an object without name, namespace or uid", each)
                continue
            try:
                found.append(self._trim(each) if self._trim is not None else each)
            except Exception:
                logger.exception("cannot trim an object; keeping it whole", extra={"resource": self.resource.plural})
                self._faults += 1
                found.append(each)
        return found

    def _fault(self, what: str, obj: Object) -> None:
        self._faults += 1
        logger.error(what, extra={"resource": self.resource.plural, "metadata": ascii(obj.get("metadata"))[:200]})


def _has_identity(obj: Object) -> bool:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return False
    return all(isinstance(metadata.get(each) or "", str) for each in ("name", "namespace", "uid", "resourceVersion"))
