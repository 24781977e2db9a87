"""Keys of the port and keys in etcd: the latter have a prefix that the port does not see."""

from __future__ import annotations

from storage.etcd.rpc import rpc_pb2 as rpc
from storage.port import Entry


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all those that begin with ``prefix``; etcd's zero byte if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


class Keys:
    """Maps keys. Bytes that are no UTF-8 (nobody of ours writes them) survive as surrogates instead of breaking a listing."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def inner(self, key: str) -> bytes:
        """Return the key in etcd."""
        return self._prefix + key.encode(errors="surrogateescape")

    def outer(self, key: bytes) -> str:
        """Return the key of the port."""
        return key[len(self._prefix) :].decode(errors="surrogateescape")

    def bounds(self, prefix: str, start: str = "") -> tuple[bytes, bytes]:
        """Return the range in etcd of the keys that begin with ``prefix``, from ``start`` on."""
        begin, end = self.inner(prefix), end_of(self.inner(prefix))
        return max(begin, self.inner(start)) or b"\0", end

    def entry(self, value: rpc.KeyValue) -> Entry:
        """Return the entry of a key and its value."""
        return Entry(self.outer(value.key), value.value, value.create_revision, value.mod_revision)
