"""A bounded cache whose entries expire."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def loop_time() -> float:
    """Return the running loop's time, in seconds."""
    return asyncio.get_running_loop().time()


class Expiring(Generic[Key, Value]):
    """Keeps at most ``size`` values until they expire, evicting the least recently used (Go: ``LRUExpireCache``)."""

    def __init__(self, size: int, now: Callable[[], float] = loop_time) -> None:
        """``size``: most entries; ``now``: a clock in seconds."""
        self._size = size
        self._now = now
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value; None if missing or expired."""
        found = self._entries.get(key)
        if found is None or found[0] <= self._now():
            return None
        self._entries.move_to_end(key)
        return found[1]

    def put(self, key: Key, value: Value, seconds: float) -> None:
        """Keep a value for this many seconds."""
        self._entries.pop(key, None)
        while len(self._entries) >= self._size:
            self._entries.popitem(last=False)
        self._entries[key] = (self._now() + seconds, value)
