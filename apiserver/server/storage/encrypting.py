"""Encryption at rest: follow its configuration file and encrypt the storage. Imported only if used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from apiserver.metrics.instruments import Counter
from storage.encryption.ciphers import PLAIN, Chain
from storage.encryption.configuration import Misconfigured, Rules, parse
from storage.encryption.store import EncryptedStorage
from storage.port import Storage, StorageError

logger = logging.getLogger(__name__)

LOCKS: Final = "claims"
"""Their values, names of keys, stay unencrypted."""


class Encryption:
    """Encrypts a storage as a configuration file says."""

    def __init__(
        self, plain: Storage, file: Path, root: str, reloads: Counter, seconds: float | None, kms_seconds: tuple[float, float]
    ) -> None:
        """Read the encryption configuration ``file``; :meth:`run` repeats this every ``seconds``; None: never.

        ``kms_seconds``: intervals of checks of key management services, after success and failure. Raises OSError, Misconfigured.
        """
        self._file = file
        self._root = root
        self._reloads = reloads
        self._seconds = seconds
        self._kms_seconds = kms_seconds
        self._content = file.read_bytes()
        self._rules = _rules(file, self._content)
        self.storage = EncryptedStorage(plain, chain_of(self._rules, root))

    @property
    def is_well(self) -> bool:
        """True if every key management service could encrypt at its last check."""
        return all(each.is_well for each in self._rules.services)

    async def run(self) -> None:
        """Check the key management services, and the file if ``seconds`` is set, until cancelled; return at once without both."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run(*self._kms_seconds)) for each in self._rules.services]
            while self._seconds is not None:
                await asyncio.sleep(self._seconds)
                if await self._reloaded():
                    for each in running:
                        each.cancel()
                    running = [tasks.create_task(each.run(*self._kms_seconds)) for each in self._rules.services]

    async def _reloaded(self) -> bool:
        try:
            content = self._file.read_bytes()
            if content == self._content:
                return False
            rules = await self._readied(content)
        except (OSError, Misconfigured) as error:
            self._reloads.increment("failure")
            logger.error("Cannot use the encryption configuration; keeping the previous one", extra={"error": str(error)})  # noqa: TRY400 - a traceback could show lines of it
            return False
        if rules is None:
            return False
        self._rules = rules
        self.storage.use(chain_of(rules, self._root))
        self._reloads.increment("success")
        logger.info("Using the changed encryption configuration", extra={"file": str(self._file)})
        return True

    async def _readied(self, content: bytes) -> Rules | None:
        """Return the rules in the file's ``content`` if its services answer; None: retry later. Raises Misconfigured."""
        try:
            rules = _rules(self._file, content)
        except Misconfigured:
            self._content = content
            raise
        try:
            for each in rules.services:
                await each.look()
        except (StorageError, ValueError) as error:
            logger.warning("A new key management service is unhealthy; keeping the previous configuration", extra={"error": str(error)})
            for each in rules.services:
                each.service.close()
            return None
        self._content = content
        return rules


def _rules(file: Path, content: bytes) -> Rules:
    try:
        return parse(content)
    except Misconfigured as error:
        raise Misconfigured(f"{file}: {error}") from None


def chain_of(rules: Rules, root: str) -> Callable[[str], Chain]:
    """Return a function from a key, ``ROOT/GROUP/RESOURCE/…``, to its chain of encryption providers.

    It is ``PLAIN`` outside of ``root``, and for locks.
    """
    begin = f"{root.rstrip('/')}/"
    known: dict[tuple[str, str], Chain] = {}

    def find(key: str) -> Chain:
        if not key.startswith(begin):
            return PLAIN
        group, _, rest = key[len(begin) :].partition("/")
        resource = rest.partition("/")[0]
        chain = known.get((group, resource))
        if chain is None:
            chain = known[group, resource] = PLAIN if group == LOCKS else rules.chain(group, resource)
        return chain

    return find
