"""Encryption providers. The first of a chain encrypts; all of them decrypt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from storage.encryption.prefix import ENCRYPTED

_GCM_NONCE: Final = 12
_GCM_TAG: Final = 16
_BLOCK: Final = 16
_SECRETBOX_NONCE: Final = 24
_SECRETBOX_TAG: Final = 16


class Undecryptable(ValueError):
    """A stored value cannot be decrypted: its key is missing or wrong, or it is damaged."""


class Provider(Protocol):
    """Encrypts values. aesgcm and kms authenticate ``about``, the key in etcd, so values cannot be swapped; others ignore it."""

    @property
    def prefix(self) -> bytes:
        """The first bytes of its encrypted values."""
        ...

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        """Encrypt a value; return the part after the prefix."""
        ...

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:
        """Decrypt the part after the prefix; return the value, and whether a write would encrypt it differently (stale).

        Raises:
            Undecryptable: the value has another key, or is damaged.
        """
        ...


class Fetching(Provider, Protocol):
    """A provider with remote keys: ``fetch`` must come before ``decrypt``."""

    async def fetch(self, data: bytes) -> None:
        """Fetch the key that decrypts ``data``, a stored value without its prefix.

        Raises:
            Undecryptable: the key is unavailable for good.
            Unavailable: the key is unavailable for now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """The provider ``identity``: it leaves values unencrypted."""

    prefix: bytes = b""

    def encrypt(self, value: bytes, about: bytes) -> bytes:  # noqa: ARG002 - the protocol's
        """Return ``value`` unchanged."""
        return value

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's
        """Return ``data`` and False. Raises Undecryptable for encrypted data."""
        if data.startswith(ENCRYPTED):
            raise Undecryptable("the value is encrypted")
        return data, False


class AesGcm:
    """AES in Galois/counter mode: nonce, ciphertext, tag. Random nonces suffice for 2^32 writes per key."""

    def __init__(self, name: str, key: bytes) -> None:
        self.prefix = b"k8s:enc:aesgcm:v1:" + name.encode() + b":"
        self._cipher = AESGCM(key)

    def encrypt(self, value: bytes, about: bytes) -> bytes:
        """Return nonce, ciphertext and tag; the tag also authenticates ``about``."""
        nonce = os.urandom(_GCM_NONCE)
        return nonce + self._cipher.encrypt(nonce, value, about)

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:
        """Return the value and False (not stale). Raises Undecryptable."""
        if len(data) < _GCM_NONCE + _GCM_TAG:
            raise Undecryptable("the stored data is too short for aesgcm")
        try:
            return self._cipher.decrypt(data[:_GCM_NONCE], data[_GCM_NONCE:], about), False
        except InvalidTag:
            raise Undecryptable("aesgcm cannot authenticate the stored data: the key is wrong, or the data was changed or moved") from None


class AesCbc:
    """AES in cipher block chaining, padded by PKCS #7, without authentication: Kubernetes advises against it."""

    def __init__(self, name: str, key: bytes) -> None:
        self.prefix = b"k8s:enc:aescbc:v1:" + name.encode() + b":"
        self._algorithm = algorithms.AES(key)

    def encrypt(self, value: bytes, about: bytes) -> bytes:  # noqa: ARG002 - the protocol's
        """Return initialization vector and ciphertext; ``about`` has no effect."""
        vector = os.urandom(_BLOCK)
        padding = _BLOCK - len(value) % _BLOCK
        encryptor = Cipher(self._algorithm, modes.CBC(vector)).encryptor()
        return vector + encryptor.update(value + bytes([padding]) * padding) + encryptor.finalize()

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's
        """Return the value and False (not stale). Raises Undecryptable for wrong length or padding; other damage returns garbage."""
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            raise Undecryptable("the stored data has a length that aescbc cannot produce")
        decryptor = Cipher(self._algorithm, modes.CBC(data[:_BLOCK])).decryptor()
        padded = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        padding = padded[-1]
        if not 0 < padding <= _BLOCK or padded[-padding:] != bytes([padding]) * padding:
            raise Undecryptable("the stored data has no aescbc padding: the key is wrong, or the data is damaged")
        return padded[:-padding], False


class Secretbox:
    """XSalsa20 and Poly1305, as in NaCl: nonce, tag, ciphertext."""

    def __init__(self, name: str, key: bytes) -> None:
        from nacl.secret import SecretBox  # imported late: only its users load libsodium

        self.prefix = b"k8s:enc:secretbox:v1:" + name.encode() + b":"
        self._box = SecretBox(key)

    def encrypt(self, value: bytes, about: bytes) -> bytes:  # noqa: ARG002 - the protocol's
        """Return nonce, tag and ciphertext; ``about`` has no effect."""
        return bytes(self._box.encrypt(value, os.urandom(_SECRETBOX_NONCE)))

    def decrypt(self, data: bytes, about: bytes) -> tuple[bytes, bool]:  # noqa: ARG002 - the protocol's
        """Return the value and False (not stale). Raises Undecryptable."""
        from nacl.exceptions import CryptoError

        if len(data) < _SECRETBOX_NONCE + _SECRETBOX_TAG:
            raise Undecryptable("the stored data is too short for secretbox")
        try:
            return self._box.decrypt(data), False
        except CryptoError:
            raise Undecryptable("secretbox cannot authenticate the stored data: the key is wrong, or the data was changed") from None


@dataclass(frozen=True, slots=True)
class Chain:
    """A resource's providers."""

    providers: Sequence[Provider] = field(repr=False)
    services: Sequence[Fetching] = field(default=(), repr=False)

    async def fetch(self, data: bytes) -> None:
        """Fetch remote keys that ``unseal`` needs for ``data``. Raises Unavailable, to be retried; for a lost key, ``unseal`` raises."""
        for each in self.services:
            if data.startswith(each.prefix):
                with suppress(Undecryptable):
                    await each.fetch(data[len(each.prefix) :])

    def seal(self, value: bytes, about: bytes) -> bytes:
        """Return ``value``, encrypted by the first provider, with its prefix. ``about`` is the key in etcd. Raises Unavailable (kms)."""
        first = self.providers[0]
        return first.prefix + first.encrypt(value, about)

    def unseal(self, data: bytes, about: bytes) -> tuple[bytes, bool]:
        """Decrypt a value after :meth:`fetch`; return also whether it is stale: ``seal`` would encrypt otherwise. Raises Undecryptable."""
        why: Undecryptable | None = None
        for index, provider in enumerate(self.providers):
            if data.startswith(provider.prefix):
                try:
                    value, stale = provider.decrypt(data[len(provider.prefix) :], about)
                except Undecryptable as error:
                    # Prefixes may be equal, and identity's empty one matches everything.
                    why = error if provider.prefix or why is None else why
                else:
                    return value, stale or index > 0
        raise why or Undecryptable(
            "no provider in the encryption configuration matches the stored data's prefix; was a provider or key removed?"
        )


PLAIN: Final = Chain((Identity(),))
