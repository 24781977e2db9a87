"""Compare a watch cache with storage every few minutes.

Source: the consistency checker of ``k8s.io/apiserver/pkg/storage/cacher/delegator.go``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from apiserver.registry.cacher.items import Item
from storage.port import Storage

PAGE: Final = 100  # a millisecond of the event loop

Version = tuple[str, int]
"""A key and the revision of its last change."""


def versions(items: Iterable[Item], undecodable: Iterable[Version]) -> Iterator[Version]:
    """Yield (key, revision) of ``items`` and undecodable entries, sorted by key. ``items`` must be sorted already."""
    return heapq.merge(((item.key, item.revision) for item in items), sorted(undecodable))


async def difference(storage: Storage, prefix: str, revision: int, expected: Iterator[Version]) -> str:
    """Return the first key under ``prefix`` where storage at ``revision`` differs from ``expected``, or empty. Raises StorageError."""
    start = ""
    while True:
        page = await storage.range(prefix, start=start, limit=PAGE, revision=revision)
        for entry in page.entries:
            version = next(expected, None)
            if version != (entry.key, entry.mod_revision):
                return min(entry.key, version[0]) if version else entry.key
        if not page.more:
            break
        start = page.entries[-1].key + "\0"
    surplus = next(expected, None)
    return surplus[0] if surplus else ""
