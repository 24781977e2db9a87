"""A fair, stingy work queue, with client-go's rules.

* fair: items are handed out in the order in which they were first added;
* stingy: an item is never handed to two workers at once, and an item added several times before it is taken is handed out once;
* an item added while it is processed is handed out again, but only afterwards;
* delayed: of several delays of an item the shortest counts; an item added without delay meanwhile keeps its delayed turn;
* rate-limited: each failure of an item doubles its next delay; :meth:`WorkQueue.forget` resets it;
* closing wakes all waiting workers, and then nothing is handed out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from apiserver.apis.meta.backoff import pause_seconds

T = TypeVar("T", bound=Hashable)

FIRST_RETRY_SECONDS: Final = 0.05
LONGEST_RETRY_SECONDS: Final = 60.0
"""To notice soon that the API server is back; client-go has 1000 s."""


class Closed(Exception):
    """The queue was closed: stop working."""


class WorkQueue(Generic[T]):
    """A queue for one event loop; items are keys, such as a NamespacedName."""

    def __init__(self, *, first_retry_seconds: float = FIRST_RETRY_SECONDS, longest_retry_seconds: float = LONGEST_RETRY_SECONDS) -> None:
        self._waiting: OrderedDict[T, None] = OrderedDict()
        self._processing: set[T] = set()
        self._dirty: OrderedDict[T, None] = OrderedDict()
        self._delayed: dict[T, asyncio.TimerHandle] = {}
        self._failures: dict[T, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._first_retry = first_retry_seconds
        self._longest_retry = longest_retry_seconds
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T) -> None:
        """Queue ``item`` unless it is queued; if in progress, at its :meth:`done`. Does nothing after :meth:`close`."""
        if self._closed:
            return
        if item in self._processing:
            self._dirty[item] = None
        elif item not in self._waiting:
            self._waiting[item] = None
            self._wake()

    def add_after(self, item: T, seconds: float) -> None:
        """Add ``item`` after a delay."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(item)
            return
        loop = asyncio.get_running_loop()
        planned = self._delayed.get(item)
        if planned is not None:
            if planned.when() <= loop.time() + seconds:
                return
            planned.cancel()
        self._delayed[item] = loop.call_later(seconds, self._due, item)

    def add_rate_limited(self, item: T) -> None:
        """Add ``item`` after a pause that doubles with each call until :meth:`forget`."""
        self._failures[item] = failures = self._failures.get(item, 0) + 1
        self.add_after(item, pause_seconds(failures, self._first_retry, self._longest_retry))

    def forget(self, item: T) -> None:
        """Reset the failures of ``item`` after a success."""
        self._failures.pop(item, None)

    def failures(self, item: T) -> int:
        """Return how often :meth:`add_rate_limited` was called for ``item`` since :meth:`forget`."""
        return self._failures.get(item, 0)

    async def get(self) -> T:
        """Take the next item; call :meth:`done` afterwards. Raises Closed."""
        while True:
            if self._closed:
                raise Closed
            if self._waiting:
                item, _ = self._waiting.popitem(last=False)
                self._processing.add(item)
                return item
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()
                else:
                    with suppress(ValueError):
                        self._getters.remove(getter)
                raise

    def done(self, item: T) -> None:
        """End the work on ``item``; it is ready again if it was added meanwhile."""
        self._processing.discard(item)
        if item in self._dirty:
            del self._dirty[item]
            self.add(item)

    def close(self) -> None:
        """Drop all items, also those added later; :meth:`get` raises Closed, also in waiting workers."""
        self._closed = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._waiting.clear()
        self._dirty.clear()
        while self._getters:
            self._wake()

    def _due(self, item: T) -> None:
        del self._delayed[item]
        self.add(item)

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
