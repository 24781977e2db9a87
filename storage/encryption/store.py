"""Encrypts the values of any other storage.

An undecryptable value is returned as stored, to keep listings working. It begins with ``ENCRYPTED``, so no reader takes it for an object,
and can be replaced or deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from storage.encryption.ciphers import Chain, Undecryptable
from storage.port import Batch, Change, Compacted, Condition, Delete, Entry, Page, Put, RevisionMismatch, Storage, Unavailable

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0

ChainOf = Callable[[str], Chain]


class EncryptedStorage:
    """Encrypts the values of another Storage; ``undecryptable`` counts those that it returned as stored."""

    def __init__(self, inner: Storage, chain_of: ChainOf, *, prefix: str = "", again_seconds: float = AGAIN_SECONDS) -> None:
        """Wrap ``inner``, which has ``prefix`` before its keys in etcd: the whole key is authenticated.

        ``chain_of`` returns a key's Chain; a watch fetches an unavailable remote key again after ``again_seconds``.
        """
        self._inner = inner
        self._chain_of = chain_of
        self._prefix = prefix
        self._again_seconds = again_seconds
        self._watches: set[asyncio.Timeout] = set()
        self.undecryptable = 0
        self._failed = False
        self._epoch = 0

    def use(self, chain_of: ChainOf) -> None:
        """Use other keys. If values were undecryptable, end watches (Compacted), so clients read again."""
        self._chain_of = chain_of
        if self._failed:
            self._failed = False
            self._epoch += 1
            for scope in self._watches:
                scope.reschedule(0)

    async def get(self, key: str) -> Entry | None:
        """Return the decrypted entry, or None."""
        entry = await self._inner.get(key)
        if entry is None:
            return None
        await self._fetch((entry,))
        return self._opened(entry)

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return a page as ``Storage.range``, decrypted."""
        page = await self._inner.range(prefix, start=start, limit=limit, revision=revision)
        await self._fetch(page.entries)
        return Page(tuple(map(self._opened, page.entries)), page.revision, page.more, page.count)

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Encrypt and apply the writes as ``Storage.commit``; errors have decrypted entries."""
        sealed = [
            Put(each.key, self._chain_of(each.key).seal(each.value, self._about(each.key))) if isinstance(each, Put) else each
            for each in writes
        ]
        try:
            return await self._inner.commit(conditions, sealed)
        except RevisionMismatch as mismatch:
            if mismatch.actual is None:
                raise
            await self._fetch((mismatch.actual,))
            raise RevisionMismatch(mismatch.key, self._opened(mismatch.actual)) from None

    @asynccontextmanager
    async def watch(self, prefix: str, *, after: int, previous: bool = True) -> AsyncIterator[AsyncIterator[Batch]]:
        """Watch as ``Storage.watch``, decrypted."""
        async with self._inner.watch(prefix, after=after, previous=previous) as batches, aclosing(self._follow(batches)) as opened:
            yield opened

    async def request_progress(self) -> None:
        """Make every watch yield a batch soon."""
        await self._inner.request_progress()

    async def revision(self) -> int:
        """Return the inner store's revision."""
        return await self._inner.revision()

    async def compact(self, revision: int) -> None:
        """Drop history below ``revision``."""
        await self._inner.compact(revision)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _fetch(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            chain = self._chain_of(entry.key)
            if chain.services:
                await chain.fetch(entry.value)

    async def _fetch_patiently(self, entries: Sequence[Entry]) -> None:
        while True:
            try:
                await self._fetch(entries)
            except Unavailable as error:
                logger.warning("A watch waits for the key of a changed object", extra={"error": str(error)})
                await asyncio.sleep(self._again_seconds)
            else:
                return

    def _about(self, key: str) -> bytes:
        return (self._prefix + key).encode(errors="surrogateescape")

    def _opened(self, entry: Entry) -> Entry:
        try:
            return self._unsealed(entry)
        except Undecryptable as error:
            self.undecryptable += 1
            self._failed = True
            logger.warning(
                "Cannot decrypt a stored value; it is skipped until its key is in the configuration again",
                extra={"key": entry.key, "revision": entry.mod_revision, "error": str(error)},
            )
            return entry

    def _unsealed(self, entry: Entry) -> Entry:
        key = entry.key
        value, stale = self._chain_of(key).unseal(entry.value, self._about(key))
        return Entry(key, value, entry.create_revision, entry.mod_revision, stale)

    async def _follow(self, batches: AsyncIterator[Batch]) -> AsyncGenerator[Batch, None]:
        epoch = self._epoch
        while True:
            if epoch != self._epoch:
                raise Compacted
            try:
                async with asyncio.timeout(None) as scope:
                    self._watches.add(scope)
                    try:
                        batch = await anext(batches)
                    finally:
                        self._watches.discard(scope)
            except TimeoutError:
                raise Compacted from None
            except StopAsyncIteration:
                return
            await self._fetch_patiently([each.entry for each in batch.changes if each.entry])
            yield Batch(batch.revision, tuple(map(self._change, batch.changes)))

    def _change(self, change: Change) -> Change:
        entry = self._opened(change.entry) if change.entry else None
        previous = change.previous
        with suppress(Undecryptable):  # reported when it was current
            previous = self._unsealed(previous) if previous else None
        return Change(change.key, entry, previous)
