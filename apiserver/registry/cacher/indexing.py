"""Indexes of objects by label or field value, built on first use."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.items import Item, SortedItems

FIELDS: Final = 8
"""The least recently used goes first. Each costs about 1 µs per write."""
_SLICE: Final = 128
_RARE: Final = 8
"""If more than one in so many objects match, a scan is as fast."""


class _Index:
    def __init__(self, read: Callable[[Item], str]) -> None:
        self._read = read
        self._values: dict[str, str] = {}
        self._keys: dict[str, set[str]] = {}
        self.ready = asyncio.Event()

    def put(self, item: Item) -> None:
        value = self._read(item)
        old = self._values.get(item.key, "")
        if value != old:
            self.remove(item.key)
            if value:
                keys = self._keys.get(value)
                if keys is None:
                    keys = self._keys[value] = set()
                self._values[item.key] = value
                keys.add(item.key)

    def remove(self, key: str) -> None:
        value = self._values.pop(key, "")
        if value:
            keys = self._keys[value]
            keys.discard(key)
            if not keys:
                del self._keys[value]

    def keys(self, value: str) -> set[str]:
        return self._keys.get(value, set())

    def among(self, items: Sequence[Item], value: str) -> list[Item]:
        values = self._values
        return [item for item in items if values.get(item.key) == value]


class Indices:
    """One cache's indexes."""

    def __init__(self) -> None:
        self._by_field: OrderedDict[str, _Index] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_field)

    def clear(self) -> None:
        """Drop all indexes: all objects were replaced."""
        for index in self._by_field.values():
            index.ready.set()  # its readers scan
        self._by_field = OrderedDict()

    def changed(self, key: str, new: Item | None) -> None:
        """Put ``new`` into each index; None: remove ``key``."""
        for index in self._by_field.values():
            if new is not None:
                index.put(new)
            else:
                index.remove(key)

    async def prepare(self, trigger: Trigger, items: SortedItems) -> None:
        """Build an index for the trigger's field, or wait for it."""
        index = self._by_field.get(trigger.field)
        if index is not None:
            self._by_field.move_to_end(trigger.field)
            await index.ready.wait()
            return
        index = self._by_field[trigger.field] = _Index(trigger.read)
        if len(self._by_field) > FIELDS:
            self._by_field.popitem(last=False)[1].ready.set()
        try:
            snapshot, _ = items.slice("")
            for start in range(0, len(snapshot), _SLICE):
                for item in snapshot[start : start + _SLICE]:
                    if items.get(item.key) is item:  # else the index has a newer one
                        index.put(item)
                await asyncio.sleep(0)
        except BaseException:
            if self._by_field.get(trigger.field) is index:
                del self._by_field[trigger.field]
            raise
        finally:
            index.ready.set()

    def find(self, trigger: Trigger, prefix: str, start: str, items: SortedItems) -> Sequence[Item] | None:
        """Return the trigger's items under ``prefix``, from key ``start`` on; None without a ready index."""
        index = self._by_field.get(trigger.field)
        if index is None or not index.ready.is_set():
            return None
        keys = index.keys(trigger.value)
        if len(keys) * _RARE > len(items):
            return index.among(items.slice(prefix, start=start)[0], trigger.value)
        found = sorted(key for key in keys if key.startswith(prefix) and key >= start)
        return [item for key in found if (item := items.get(key)) is not None]
