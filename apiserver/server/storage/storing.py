"""One server's storage: etcd or memory, encrypted or not, and its background tasks."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apiserver.apis.meta import flags
from apiserver.metrics.instruments import Counter, Gauge, Read, Registry
from apiserver.server.storage.compacting import Compactor
from storage.etcd.store import EtcdStorage
from storage.port import Storage, StorageError

if TYPE_CHECKING:
    from apiserver.server.storage.encrypting import Encryption

logger = logging.getLogger(__name__)

_CLUSTER: Final = "etcd-0"
"""As in Go's metrics."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Flags about storage, with Go's names and defaults."""

    encryption_provider_config: Path | None = None
    encryption_provider_config_automatic_reload: bool = False
    etcd_compaction_interval: float = 300.0
    etcd_healthcheck_timeout: float = 2.0
    etcd_readycheck_timeout: float = 2.0
    etcd_db_metric_poll_interval: float = 30.0

    @classmethod
    def of(cls, given: argparse.Namespace) -> StorageOptions:
        """Return the options in parsed flags."""
        return cls(**{each.name: getattr(given, each.name) for each in fields(cls)})


def add_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of :class:`StorageOptions`."""
    defaults = StorageOptions()

    def add(name: str, about: str, **more: Any) -> None:  # noqa: ANN401 - argparse's own
        group.add_argument(f"--{name}", default=getattr(defaults, name.replace("-", "_")), help=about, **more)

    add("encryption-provider-config", "EncryptionConfiguration: which resources are encrypted in etcd", metavar="FILE", type=Path)
    add("encryption-provider-config-automatic-reload", "read it again when it changes", action=argparse.BooleanOptionalAction)
    add("etcd-compaction-interval", "how long history stays readable; 0: never compact", metavar="DURATION", type=_seconds)
    add("etcd-healthcheck-timeout", "how long /healthz waits for etcd", metavar="DURATION", type=_seconds)
    add("etcd-readycheck-timeout", "how long /readyz waits for etcd", metavar="DURATION", type=_seconds)
    add("etcd-db-metric-poll-interval", "how often etcd is asked for its size; 0: never", metavar="DURATION", type=_seconds)


def _seconds(text: str) -> float:
    seconds = flags.seconds(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text}: want a duration that is not negative")
    return seconds


class HealthCheck:
    """Checks storage by a linearizable read with a time limit; calls during one read share the next.

    A result is never older than its call.
    """

    def __init__(self, storage: Storage, seconds: float) -> None:
        self._storage = storage
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._asked = -inf  # when the last answered read began
        self._well = False

    async def __call__(self) -> bool:
        """Return whether storage answered in time."""
        loop = asyncio.get_running_loop()
        came = loop.time()
        async with self._turn:
            if self._asked <= came:
                began = loop.time()
                self._well = await self._ask()
                self._asked = began  # afterwards: others need their own read if this is cancelled
            return self._well

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(self._seconds):
                await self._storage.revision()
        except (StorageError, TimeoutError):
            return False
        return True


class Storing:
    """One server's ``storage``, encrypted if so configured; the caller runs the coroutines of :meth:`background`."""

    def __init__(
        self,
        plain: Storage,
        options: StorageOptions,
        *,
        root: str,
        file_seconds: float = 5.0,
        kms_seconds: tuple[float, float] = (60.0, 10.0),
    ) -> None:
        """Take the storage of all keys, unprefixed; objects are under ``root``. Raises OSError or Misconfigured by the encryption file."""
        self._plain = plain
        self._options = options
        self._compactor = Compactor(plain)
        self._size = Gauge("apiserver_storage_size_bytes", "Size of the storage database file.", ("storage_cluster_id",))
        self._reloads = Counter(
            "apiserver_encryption_config_controller_automatic_reloads_total", "Changes of the encryption's file.", ("status",)
        )
        self.storage = plain
        self._healthy = HealthCheck(plain, options.etcd_healthcheck_timeout)
        self._ready = HealthCheck(plain, options.etcd_readycheck_timeout)
        self._encryption: Encryption | None = None
        if options.encryption_provider_config is not None:
            # Late: its own OpenSSL takes about 10 MiB.
            from apiserver.server.storage.encrypting import Encryption

            again = file_seconds if options.encryption_provider_config_automatic_reload else None
            self._encryption = Encryption(plain, options.encryption_provider_config, root, self._reloads, again, kms_seconds)
            self.storage = self._encryption.storage

    def register(self, registry: Registry) -> None:
        """Add the metrics to the registry."""
        registry.add(self._size)
        if self._encryption is not None:
            encrypted = self._encryption.storage
            name, about = "apiserver_storage_decryption_failures_total", "Stored values that could not be decrypted."
            registry.add(self._reloads, Read(name, "counter", about, (), lambda: [((), float(encrypted.undecryptable))]))

    def background(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the coroutines to run while the server serves."""
        if self._options.etcd_compaction_interval:
            yield self._compactor.run(self._options.etcd_compaction_interval)
        if self._options.etcd_db_metric_poll_interval and isinstance(self._plain, EtcdStorage):
            yield self._measure(self._plain)
        if self._encryption is not None:
            yield self._encryption.run()

    async def healthy(self) -> bool:
        """Return whether storage answers within /healthz' time."""
        return await self._healthy()

    async def ready(self) -> bool:
        """Return whether storage answers within /readyz' time, and the key management services could encrypt at their last check."""
        return await self._ready() and (self._encryption is None or self._encryption.is_well)

    async def _measure(self, etcd: EtcdStorage) -> None:
        while True:
            try:
                self._size.cell(_CLUSTER).value = await etcd.size()
            except StorageError as error:
                logger.debug("cannot read the size of etcd", extra={"error": str(error)})
            await asyncio.sleep(self._options.etcd_db_metric_poll_interval)
