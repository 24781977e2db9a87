"""Read changes older than the window back from storage, unless compacted.

The missing changes are read once for all clients, and put before
the window. If there are too many, a few watches may read storage's history themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Self

from apiserver.apis.meta import errors
from apiserver.registry.cacher.changes import Event, EventBatch, Predicate, Receiver, Record, event_of
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.window import Watch, Window
from storage.port import Batch, Compacted, Entry, Storage, StorageError

logger = logging.getLogger(__name__)

REPLAYS: Final = 16
"""Further watches get 429."""
TIMEOUT_SECONDS: Final = 10.0
_SECONDS: Final = 1

Read = Callable[[Entry], Item | None]
"""None if undecodable."""


def records_of(batch: Batch, read: Read) -> list[Record]:
    """Return a batch's changes as records; undecodable objects count as absent."""
    records = []
    for change in batch.changes:
        old = read(change.previous) if change.previous else None
        new = read(change.entry) if change.entry else None
        if old is not None or new is not None:
            records.append(Record(change.key, batch.revision, old, new))
    return records


class History:
    """Reads changes that the window lacks."""

    def __init__(
        self,
        storage: Storage,
        prefix: str,
        read: Read,
        window: Window,
        *,
        replays: int = REPLAYS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._storage = storage
        self._prefix = prefix
        self._read = read
        self._window = window
        self._reading = asyncio.Lock()
        self._too_deep = (0, 0)  # (epoch, revision) from which changes exceed the window
        self._max_replays = replays
        self._timeout_seconds = timeout_seconds
        self._replays = 0
        self.read_back = 0
        """Successful extensions of the window."""

    async def reach(self, after: int) -> bool:
        """Extend the window back to revision ``after``; return False if there are too many changes.

        Raises Expired after compaction, ServiceUnavailable.
        """
        async with self._reading:
            while after < self._window.oldest:
                epoch, depth = self._too_deep
                if epoch == self._window.epoch and after <= depth:
                    return False
                try:
                    async with asyncio.timeout(self._timeout_seconds):
                        await self._read_back(after)
                except Compacted:
                    raise self._window.expired(after) from None
                except (StorageError, TimeoutError) as error:
                    raise _unavailable(error) from error
        return True

    async def _read_back(self, after: int) -> None:
        window, epoch = self._window, self._window.epoch
        records: list[Record] = []
        async with self._storage.watch(self._prefix, after=after) as batches:
            await self._storage.request_progress()  # without a change
            async for batch in batches:
                if window.epoch != epoch:
                    return
                if batch.revision <= window.oldest:
                    records += records_of(batch, self._read)
                if batch.revision >= window.oldest:
                    # at once, because the window drops its oldest changes
                    window.prepend(records, after)
                    self.read_back += 1
                    return
                if len(records) > window.room:
                    self._too_deep = (epoch, after)
                    return

    def replay(self, watch: Callable[[int], Watch], prefix: str, after: int, predicate: Predicate | None, key: str) -> Replay:
        """Return a watch, to enter, of storage's history after ``after``; it goes on as ``watch(revision)`` once it can.

        Raises TooManyRequests if too many such watches are open.
        """
        if self._replays >= self._max_replays:
            raise errors.TooManyRequests("too many watches read old changes; try again later", errors.Details(retry_after_seconds=_SECONDS))
        self._replays += 1
        return Replay(self, watch, prefix, after, predicate, key)

    def open(self, prefix: str, after: int) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Return a context manager with an iterator over storage's batches of keys with ``prefix``, after revision ``after``."""
        return self._storage.watch(prefix, after=after)

    async def hasten(self) -> None:
        """Ask storage for a batch, even without changes."""
        await self._storage.request_progress()

    def records(self, batch: Batch) -> list[Record]:
        """Return a batch's changes as records; undecodable objects count as absent."""
        return records_of(batch, self._read)

    def is_near(self, revision: int) -> bool:
        """Return whether the window has all changes after ``revision``."""
        return revision >= self._window.oldest

    def expired(self, after: int) -> errors.Expired:
        """Return the error for a compacted revision."""
        return self._window.expired(after)

    def done(self) -> None:
        """Count one replay less."""
        self._replays -= 1


class Replay:
    """A :class:`~apiserver.registry.cacher.window.Watch` over history; a context manager. Sends bookmarks once live."""

    def __init__(
        self, history: History, watch: Callable[[int], Watch], prefix: str, after: int, predicate: Predicate | None, key: str
    ) -> None:  # fmt: skip
        self._history = history
        self._watch = watch
        self._prefix = key or prefix
        self._key = key
        self._predicate = predicate
        self._pending: deque[Event] = deque()
        self._handed_out = self._at = after
        self._stack = AsyncExitStack()
        self._batches: AsyncIterator[Batch] | None = None
        self._live: Watch | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            self._batches = await self._stack.enter_async_context(self._history.open(self._prefix, self._at))
            await self._history.hasten()
        except BaseException as error:
            await self._close()
            if isinstance(error, StorageError):
                raise _unavailable(error) from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def revision(self) -> int:
        """All events up to this revision were delivered."""
        if self._pending:
            return self._handed_out
        return self._live.revision if self._live is not None else self._at

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; end when the cache stops. Raises Expired after compaction."""
        while True:
            if self._pending:
                return self._pending.popleft()
            if self._live is not None:
                return await anext(self._live)
            await self._read_on()

    async def tell(self, receiver: Receiver) -> None:
        """Send all events as :meth:`Watch.tell`."""
        while self._live is None or self._pending:
            if self._pending:
                receiver.receive(EventBatch(self.take()))
                await receiver.room()
                continue
            try:
                await self._read_on()
            except StopAsyncIteration:
                return
        await self._live.tell(receiver)

    async def batch(self) -> list[Event]:
        """Wait for events as :meth:`Watch.batch`."""
        while not self._pending:
            if self._live is not None:
                return await self._live.batch()
            try:
                await self._read_on()
            except StopAsyncIteration:
                return []
        return self.take()

    def take(self) -> list[Event]:
        """Return the ready events as :meth:`Watch.take`."""
        taken = list(self._pending)
        self._pending.clear()
        if not taken and self._live is not None:
            return self._live.take()
        return taken

    async def _read_on(self) -> None:
        if self._batches is None:
            raise StopAsyncIteration
        try:
            batch = await anext(self._batches)
        except Compacted:
            raise self._history.expired(self._at) from None
        except StorageError:  # the server stops
            raise StopAsyncIteration from None
        for record in self._history.records(batch):
            if not self._key or record.key == self._key:
                event = event_of(record, self._predicate)
                if event is not None:
                    self._pending.append(event)
        self._handed_out, self._at = self._at, batch.revision
        if self._history.is_near(batch.revision):
            self._live = self._watch(batch.revision)
            await self._close()

    async def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._history.done()
            self._batches = None
            await self._stack.aclose()


def _unavailable(error: Exception) -> errors.ServiceUnavailable:
    logger.warning("etcd did not respond", extra={"doing": "read its history", "error": str(error) or type(error).__name__})
    return errors.ServiceUnavailable("cannot read etcd's history", errors.Details(retry_after_seconds=1))
