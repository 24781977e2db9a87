"""History is forgotten every five minutes, up to where it was five minutes before, by one server of all that share an etcd.

As in ``k8s.io/apiserver/pkg/storage/etcd3/compact.go``: whoever is first to write the key ``compact_rev_key`` in an interval compacts;
the others see that it changed and wait for another interval. So several replicas compact no more often than one, also beside a server
written in Go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from storage.port import Condition, Put, RevisionMismatch, Storage, StorageError

logger = logging.getLogger(__name__)

KEY: Final = "compact_rev_key"
"""Without prefix: its value is the revision of the last interval's end."""


class Compactor:
    """One server's part in it."""

    def __init__(self, storage: Storage) -> None:
        """Take the storage under whose keys ``KEY`` stands as it is."""
        self._storage = storage
        self._seen = 0
        """The revision at which the key was last seen to change; 0: it is not there yet."""
        self._revision = 0
        """The store's revision then."""
        self.compacted = 0
        """The last revision that this server compacted to."""

    async def run(self, interval_seconds: float) -> None:
        """Take part until cancelled."""
        while True:
            try:
                await self.turn()
            except StorageError as error:
                logger.warning("The history of storage was not compacted; trying again later", extra={"error": str(error)})
            await asyncio.sleep(interval_seconds)

    async def turn(self) -> bool:
        """Do what an interval asks for; return whether the compaction fell to this server.

        Raises:
            StorageError: storage did not answer.
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
