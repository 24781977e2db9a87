"""Writes of this server that are under way: when storage tells of one, nothing need be decoded, and there is one item of it for all.

Storage mostly tells the watch of a write before it acknowledges it, so a write is known here from before it begins. It is known again by
its bytes: whoever wrote the same meant the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.registry.cacher.items import Item
from storage.port import Entry

MAX_WRITES: Final = 256
"""Writes that are remembered although storage has not told of them: it failed to write them, or tells late."""


class Write:
    """One object on its way to storage, as ``value``."""

    __slots__ = ("_item", "_make", "key", "value")

    def __init__(self, key: str, value: bytes, make: Callable[[int], Item]) -> None:
        """``make`` returns its item at a revision, and may be asked for several."""
        self.key = key
        self.value = value
        self._make = make
        self._item: Item | None = None

    def at(self, revision: int) -> Item:
        """Return its item, once it is known that it was stored at ``revision``."""
        if self._item is None or self._item.revision != revision:
            self._item = self._make(revision)
        return self._item


class Writes:
    """The writes of one watch cache, at most one a key: the last."""

    def __init__(self) -> None:
        self._by_key: dict[str, Write] = {}

    def begin(self, key: str, value: bytes, make: Callable[[int], Item]) -> Write:
        """Remember what is about to be written."""
        write = self._by_key[key] = Write(key, value, make)
        if len(self._by_key) > MAX_WRITES:
            del self._by_key[next(iter(self._by_key))]
        return write

    def forget(self, write: Write) -> None:
        """Forget what was not written."""
        if self._by_key.get(write.key) is write:
            del self._by_key[write.key]

    def find(self, entry: Entry) -> Item | None:
        """Return the item of what storage tells, if it is what was written here; then it is forgotten."""
        write = self._by_key.get(entry.key)
        if write is None or write.value != entry.value or entry.stale:
            return None
        del self._by_key[entry.key]
        return write.at(entry.mod_revision)
