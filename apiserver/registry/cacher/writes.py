"""Running writes of this server: their watch events need no decoding.

Registered before they start, because the event usually comes first; matched by bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.registry.cacher.items import Item
from storage.port import Entry

MAX_WRITES: Final = 256
"""Without event: failed, or reported late."""


class Write:
    """An object on its way to storage, encoded as ``value``."""

    __slots__ = ("_item", "_make", "key", "value")

    def __init__(self, key: str, value: bytes, make: Callable[[int], Item]) -> None:
        """``make(revision)`` returns the item at that revision; may be called repeatedly."""
        self.key = key
        self.value = value
        self._make = make
        self._item: Item | None = None

    def at(self, revision: int) -> Item:
        """Return this object's item, as stored at ``revision``."""
        if self._item is None or self._item.revision != revision:
            self._item = self._make(revision)
        return self._item


class Writes:
    """This server's running writes to the objects of one watch cache, the last per key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Write] = {}

    def begin(self, key: str, value: bytes, make: Callable[[int], Item]) -> Write:
        """Remember and return a write to ``key``, before it is sent to storage."""
        write = self._by_key[key] = Write(key, value, make)
        if len(self._by_key) > MAX_WRITES:
            del self._by_key[next(iter(self._by_key))]
        return write

    def forget(self, write: Write) -> None:
        """Remove a failed write."""
        if self._by_key.get(write.key) is write:
            del self._by_key[write.key]

    def find(self, entry: Entry) -> Item | None:
        """Return and forget the item of the write that stored ``entry``; None if that write is not remembered."""
        write = self._by_key.get(entry.key)
        if write is None or write.value != entry.value or entry.stale:
            return None
        del self._by_key[entry.key]
        return write.at(entry.mod_revision)
