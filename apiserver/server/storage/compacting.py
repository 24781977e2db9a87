"""Compact history every five minutes to its state five minutes earlier, by one of the servers on an etcd.

As in ``k8s.io/apiserver/pkg/storage/etcd3/compact.go``: the first server to write the key ``compact_rev_key`` in an
interval compacts, so any number of replicas compact as often as one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from storage.port import Condition, Put, RevisionMismatch, Storage, StorageError

logger = logging.getLogger(__name__)

KEY: Final = "compact_rev_key"
"""Unprefixed; its value is the last interval's end."""


class Compactor:
    """Compacts history, in turns with the other servers."""

    def __init__(self, storage: Storage) -> None:
        """Take the storage of all keys, unprefixed."""
        self._storage = storage
        self._seen = 0
        """The key's last change; 0: absent."""
        self._revision = 0
        """The store's, at that time."""
        self.compacted = 0
        """The last revision that this server compacted to."""

    async def run(self, interval_seconds: float) -> None:
        """Take a turn every ``interval_seconds`` until cancelled; log failures."""
        while True:
            try:
                await self.turn()
            except StorageError as error:
                logger.warning("The history of storage was not compacted; trying again later", extra={"error": str(error)})
            await asyncio.sleep(interval_seconds)

    async def turn(self) -> bool:
        """Compact to the revision of the turn before, and return True; the first turn compacts nothing.

        False: another server took this turn. Raises StorageError.
        """
        try:
            revision = await self._storage.commit([Condition(KEY, self._seen)], [Put(KEY, str(self._revision).encode())])
        except RevisionMismatch as mismatch:
            self._seen = mismatch.actual.mod_revision if mismatch.actual else 0
            self._revision = await self._storage.revision()
            return False
        wanted, self._seen, self._revision = self._revision, revision, revision
        if wanted:
            await self._storage.compact(wanted)
            self.compacted = wanted
            logger.debug("Compacted the history of storage", extra={"revision": wanted})
        return True
