"""Maps keys of the port to keys in etcd, which have a prefix."""

from __future__ import annotations

from storage.etcd.rpc import rpc_pb2 as rpc
from storage.port import Entry


def end_of(prefix: bytes) -> bytes:
    """Return the first key after those with ``prefix``; if there is none, a zero byte, which means to etcd: to the last key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


class Keys:
    """Adds and removes etcd's prefix of keys. Foreign keys that are not UTF-8 survive as surrogates, to keep listings working."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def inner(self, key: str) -> bytes:
        """Return etcd's key: the prefix and the port's ``key``."""
        return self._prefix + key.encode(errors="surrogateescape")

    def outer(self, key: bytes) -> str:
        """Return the port's key: etcd's ``key`` without the prefix, which is not checked."""
        return key[len(self._prefix) :].decode(errors="surrogateescape")

    def bounds(self, prefix: str, start: str = "") -> tuple[bytes, bytes]:
        """Return etcd's range (first key, end) of the port's keys with ``prefix``, from the key ``start`` on, if given."""
        begin, end = self.inner(prefix), end_of(self.inner(prefix))
        return max(begin, self.inner(start)) or b"\0", end

    def entry(self, value: rpc.KeyValue) -> Entry:
        """Return the Entry for etcd's ``value``; its key has no prefix."""
        return Entry(self.outer(value.key), value.value, value.create_revision, value.mod_revision)
