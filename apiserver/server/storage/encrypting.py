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
from storage.port import Storage

logger = logging.getLogger(__name__)

LOCKS: Final = "claims"
"""Group of the uniqueness locks' keys; their values, names of keys, stay unencrypted."""


class Encryption:
    """The configuration file and the storage that it encrypts."""

    def __init__(self, plain: Storage, file: Path, root: str, reloads: Counter) -> None:
        """Read the file.

        Raises:
            OSError, Misconfigured: it is unusable.
        """
        self._file = file
        self._root = root
        self._reloads = reloads
        self._content = file.read_bytes()
        self.storage = EncryptedStorage(plain, chain_of(_rules(file, self._content), root))

    async def run(self, seconds: float) -> None:
        """Check the file every so many seconds until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self._reload()

    def _reload(self) -> None:
        """Apply a changed file. An unusable one changes nothing."""
        try:
            content = self._file.read_bytes()
            if content == self._content:
                return
            self._content = content  # report it once
            rules = _rules(self._file, content)
        except (OSError, Misconfigured) as error:
            self._reloads.increment("failure")
            logger.error("The encryption's configuration cannot be used; going on with the one before", extra={"error": str(error)})  # noqa: TRY400 - a traceback could show lines of it
            return
        self.storage.use(chain_of(rules, self._root))
        self._reloads.increment("success")
        logger.info("The encryption's configuration changed", extra={"file": str(self._file)})


def _rules(file: Path, content: bytes) -> Rules:
    try:
        return parse(content)
    except Misconfigured as error:
        raise Misconfigured(f"{file}: {error}") from None


def chain_of(rules: Rules, root: str) -> Callable[[str], Chain]:
    """Return the function from a key, ``ROOT/GROUP/RESOURCE/…``, to its chain."""
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
