"""A bounded cache whose entries expire."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Expiring(Generic[Key, Value]):
    """Keeps values for ``seconds`` of loop time, at most ``size`` of them; the oldest goes first."""

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._size = size
        self._entries: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        """Return the value that was put less than ``seconds`` ago."""
        found = self._entries.get(key)
        if found is None or found[0] <= asyncio.get_running_loop().time():
            return None
        return found[1]

    def put(self, key: Key, value: Value) -> None:
        """Keep a value."""
        self._entries.pop(key, None)
        while len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (asyncio.get_running_loop().time() + self._seconds, value)
