"""Linearizable reads of the watch cache.

A read asks the store for its revision, and waits until the cache has reached it. Concurrent reads share one or two
header-only reads. Without changes under its prefix, the cache requests progress. While a question is unanswered beyond
its timeout, readers fail at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from typing import Final

from apiserver.apis.meta import errors
from storage.port import Storage, StorageError

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.001
ASK_AGAIN_SECONDS = 0.05  # etcd answers late, if a member lags or a watch catches up
# So that compaction never passes the watch, and bookmarks advance.
IDLE_SECONDS = 10.0

NOW: Final = -1
"""The store's current revision."""


class Freshness:
    """Waits until a watch cache has reached a revision, while ``run`` runs."""

    def __init__(self, storage: Storage, *, timeout_seconds: float, idle_seconds: float = IDLE_SECONDS) -> None:
        self._storage = storage
        self._timeout_seconds = timeout_seconds
        self._idle_seconds = idle_seconds
        self._reached = 0
        # One timer for all: a timeout per reader would cost more than its wait.
        self._askers: list[asyncio.Future[int]] = []
        self._asked = asyncio.Event()
        self._unanswered: set[asyncio.Future[int]] = set()
        """Without the store's revision."""
        self._open_since: float | None = None
        """Start of the open question to the store."""
        self._waiters: list[tuple[int, int, asyncio.Future[int]]] = []  # a heap by revision
        self._deadlines: deque[tuple[float, int, asyncio.Future[int]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._behind = asyncio.Event()
        self._order = itertools.count()
        self.reads = 0
        """From the store."""

    async def run(self) -> None:
        """Ask storage for revisions while readers wait, and for progress also when idle, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask_revision())
                tasks.create_task(self._ask_progress())
        finally:
            self._fail(self._askers, "the watch cache has stopped")
            if self._timer is not None:
                self._timer.cancel()

    def advance(self, revision: int) -> None:
        """Note that the cache reached ``revision``; wake readers that wait for it or less."""
        self._reached = revision
        while self._waiters and self._waiters[0][0] <= revision:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(revision)

    async def wait(self, revision: int | None = None) -> int:
        """Wait until the cache has reached ``revision`` (None: the store's); return the revision reached.

        Raises ServiceUnavailable if the store fails, Timeout if the cache is late.
        """
        if revision is not None and max(revision, 1) <= self._reached:
            return self._reached
        return await self._reaching(revision)

    def _reaching(self, revision: int | None) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        if revision is None and self._open_since is not None and loop.time() - self._open_since >= self._timeout_seconds:
            future.set_exception(_unanswered())
            return future
        self._watch_over(future, NOW if revision is None else revision, loop.time() + self._timeout_seconds)
        if revision is None:
            self._askers.append(future)
            self._unanswered.add(future)
            self._asked.set()
        else:
            self._await(max(revision, 1), future)
        return future

    def _await(self, revision: int, future: asyncio.Future[int]) -> None:
        heapq.heappush(self._waiters, (revision, next(self._order), future))
        self._behind.set()

    def _watch_over(self, future: asyncio.Future[int], wanted: int, until: float) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].done():
            deadlines.popleft()
        deadlines.append((until, wanted, future))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._deadlines:
            until, wanted, future = self._deadlines[0]
            if not future.done():
                if until > loop.time():
                    self._timer = loop.call_at(until, self._expire)
                    return
                future.set_exception(self._too_late(wanted, future))
            self._deadlines.popleft()

    def _too_late(self, wanted: int, future: asyncio.Future[int]) -> errors.StatusError:
        if future in self._unanswered:
            return _unanswered()
        if wanted == NOW:
            return errors.Timeout("the watch cache is behind the storage", errors.Details(retry_after_seconds=1))
        return too_large(wanted, self._reached)

    async def _ask_revision(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            askers, self._askers = self._askers, []
            self._open_since = asyncio.get_running_loop().time()
            try:
                self.reads += 1
                revision = await self._storage.revision()
            except StorageError as error:
                logger.warning("etcd did not respond", extra={"doing": "read its revision", "error": str(error)})
                self._fail(askers, "cannot read the storage")
            except asyncio.CancelledError:
                self._fail(askers, "the watch cache has stopped")
                raise
            else:
                self._answer(askers, revision)
            finally:
                self._open_since = None
                self._unanswered.difference_update(askers)

    def _answer(self, askers: list[asyncio.Future[int]], revision: int) -> None:
        for future in askers:
            if future.done():
                continue
            if revision <= self._reached:
                future.set_result(self._reached)
            else:
                self._await(revision, future)

    async def _ask_progress(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ASK_AGAIN_SECONDS if self._is_awaited() else self._idle_seconds):
                    await self._behind.wait()
            except TimeoutError:
                pass
            else:
                self._behind.clear()
                await asyncio.sleep(PATIENCE_SECONDS)
                if not self._is_awaited():
                    continue
            await self._request_progress()

    async def _request_progress(self) -> None:
        try:
            await self._storage.request_progress()
        except StorageError as error:
            logger.debug("Cannot request progress from the storage; retrying", extra={"error": str(error)})

    def _is_awaited(self) -> bool:
        while self._waiters and self._waiters[0][2].done():
            heapq.heappop(self._waiters)
        return bool(self._waiters)

    def _fail(self, askers: list[asyncio.Future[int]], message: str) -> None:
        for future in askers:
            if not future.done():
                future.set_exception(errors.ServiceUnavailable(message, errors.Details(retry_after_seconds=1)))


def _unanswered() -> errors.ServiceUnavailable:
    return errors.ServiceUnavailable("the storage does not respond", errors.Details(retry_after_seconds=1))


def too_large(wanted: int, current: int) -> errors.Timeout:
    """Return the error for a future revision, in Go's words."""
    cause = errors.Cause("ResourceVersionTooLarge", "Too large resource version")
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return errors.Timeout(message, errors.Details(causes=(cause,), retry_after_seconds=1))
