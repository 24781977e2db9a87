"""Envelope encryption: which seed encrypts, which values are stale, and which seeds to fetch."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from google.protobuf.message import DecodeError

from storage.encryption.ciphers import Undecryptable
from storage.encryption.kms.rpc import kms_pb2 as rpc
from storage.encryption.kms.service import Service, Source
from storage.port import Unavailable

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 180.0
"""For a seed without the service's answer; a replaced key is unused after three minutes."""
_VERSIONS: Final = ("v2", "v2beta1")
_SEED_BYTES: Final = 32
_INFO_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_MAX_KNOWN: Final = 4096


@dataclass(frozen=True, slots=True)
class Writing:
    """The seed that encrypts until ``until``, a time of the clock; ``source`` is the seed as the service encrypted it."""

    source: Source
    seed: bytes
    until: float


class Envelope:
    """The provider ``kms``: a service encrypts its seeds. It needs ``run`` to encrypt, and ``fetch`` before ``decrypt``."""

    def __init__(self, name: str, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.prefix = b"k8s:enc:kms:v2:" + name.encode() + b":"
        self.service = service
        self._clock = clock
        self._writing: Writing | None = None
        self._known: dict[Source, bytes] = {}

    @property
    def is_well(self) -> bool:
        """True if values can be encrypted."""
        return self._writing is not None and self._clock() < self._writing.until

    async def run(self, well_seconds: float, ill_seconds: float) -> None:
        """Check the service until cancelled, these seconds after success and failure; then close the connection."""
        try:
            while True:
                try:
                    await self.look()
                except (Unavailable, ValueError) as error:
                    logger.warning("A key management service is unhealthy", extra={"provider": self.name, "error": str(error)})
                    await asyncio.sleep(ill_seconds)
                else:
                    await asyncio.sleep(well_seconds)
        finally:
            self.service.close()

    async def look(self) -> None:
        """Check the service; if its key changed, use a new seed.

        Raises:
            Unavailable, ValueError: the service is not well; the last seed encrypts for ``WRITE_SECONDS`` after the last success.
        """
        until = self._clock() + WRITE_SECONDS
        status = await self.service.status()
        if status.healthz != "ok":
            raise ValueError(f"it reports {status.healthz[:256]!r}")
        if status.version not in _VERSIONS:
            raise ValueError(f"it uses version {status.version[:64]!r}, must be v2")
        writing = self._writing
        if writing is not None and writing.source.key_id == status.key_id:
            self._writing = Writing(writing.source, writing.seed, until)
            return
        seed = os.urandom(_SEED_BYTES)
        source = await self.service.encrypt(seed)
        if source.key_id != status.key_id:
            raise ValueError("its status reports another key than it encrypts with")
        self._know(source, seed)
        self._writing = Writing(source, seed, until)
        logger.info("A key management service rotated its key; encrypting with a new seed", extra={"provider": self.name})

    async def fetch(self, data: bytes) -> None:
        """Fetch the seed of ``data``, a value without prefix, unless known. Raises Undecryptable, or Unavailable without an answer."""
        source = _parsed(data)[0]
        if source not in self._known:
            self._know(source, await self.service.decrypt(source))

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        """Return ``value`` encrypted with the current seed. Raises Unavailable if no seed may encrypt."""
        writing = self._writing
        if writing is None or self._clock() >= writing.until:
            raise Unavailable(f"the key management service {self.name} is unhealthy: no data can be encrypted")
        info, nonce = os.urandom(_INFO_BYTES), os.urandom(_NONCE_BYTES)
        sealed = info + nonce + AESGCM(_derived(writing.seed, info)).encrypt(nonce, value, about)
        source = writing.source
        made = rpc.EncryptedObject(
            encryptedData=sealed,
            keyID=source.key_id,
            encryptedDEKSource=source.ciphertext,
            annotations=dict(source.annotations),
            encryptedDEKSourceType=source.kind,
        )
        return made.SerializeToString()

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:
        """Return the value, and whether it is stale. Raises Undecryptable, also without an earlier ``fetch``."""
        source, sealed = _parsed(data)
        key = self._known.get(source)
        if key is None:
            raise Undecryptable("its key could not be fetched")
        try:
            if source.kind:
                info, sealed = sealed[:_INFO_BYTES], sealed[_INFO_BYTES:]
                key = _derived(key, info)
            value = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError):
            raise Undecryptable("the stored data cannot be authenticated: the key is wrong, or the data was changed or moved") from None
        current = self._writing.source if self._writing else None
        return value, current is None or (current.key_id, current.kind) != (source.key_id, source.kind)

    def _know(self, source: Source, key: bytes) -> None:
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[source] = key


def _derived(seed: bytes, info: bytes) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=32, info=info).derive(seed)


def _parsed(data: bytes) -> tuple[Source, bytes]:
    try:
        read = rpc.EncryptedObject.FromString(data)
        source = Source(read.keyID, read.encryptedDEKSource, tuple(sorted(read.annotations.items())), read.encryptedDEKSourceType)
        source.check()
    except (DecodeError, ValueError) as error:
        raise Undecryptable(f"the stored data is not a KMS envelope: {error}") from None
    if not read.encryptedData:
        raise Undecryptable("the envelope is empty")
    return source, read.encryptedData
