r"""The one form in which this server writes objects, so that it can serve what it wrote without looking into it.

A stored value is JSON whose members begin in a fixed order::

    {"apiVersion":"kubevirt.io/v1alpha1","kind":"VirtualMachine",␠␉␉␠…"metadata":{"labels":{…},"name":…},…}

The 32 characters of white space are a seal: each is a bit (a tab is 1) of the CRC-32 of everything after ``"metadata":{``, begun with the
checksum of the server's own code. Other readers of JSON do not see it. Where the seal holds, this very build wrote these very bytes, so
they are an object with all of its defaults, and what goes on the wire is the same bytes with the revision put in::

    {"apiVersion":"kubevirt.io/v1alpha1","kind":"VirtualMachine","metadata":{"resourceVersion":"7","labels":{…},"name":…},…}

Where it does not (an older or newer server wrote it, or another one, or a person), the value is decoded, defaulted and encoded anew,
which costs ten times as much and is done once a revision. A seal guards against accidents, not against people who can write to storage.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Final

import orjson

from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.sharing import pieces

_METADATA: Final = b'"metadata":{'
_REVISION: Final = b'"metadata":{"resourceVersion":"'
_SEAL: Final = 32
_BITS: Final = [bytes(0x09 if byte >> bit & 1 else 0x20 for bit in range(8)) for byte in range(256)]
"""White space for each byte."""


def checksum_of(*packages: str) -> int:
    """Return a checksum of the code of packages, with all that is below them; of a module outside of any package, that of its file."""
    checksum = 0
    for name in packages:
        module = sys.modules[name]
        directories = [Path(each) for each in getattr(module, "__path__", ())]
        files = [file for directory in directories for file in sorted(directory.rglob("*.py"))]
        if not files and getattr(module, "__file__", None):
            files = [Path(str(module.__file__))]
        for file in files:
            checksum = zlib.crc32(file.read_bytes(), checksum)
    return checksum


class Form:
    """The form of one kind of one version."""

    def __init__(self, api_version: str, kind: str, code: int) -> None:
        """``code``: a checksum of all code that decides what an object of the kind looks like."""
        self._head = b'{"apiVersion":%b,"kind":%b,' % (orjson.dumps(api_version), orjson.dumps(kind))
        self._seed = zlib.crc32(self._head, code)
        self._seal_at = len(self._head)
        self._rest_at = self._seal_at + _SEAL + len(_METADATA)
        self._wire_head = self._head + _REVISION

    def stored(self, obj: Object) -> bytes:
        """Return the value to store; a ``resourceVersion`` in the object is left out."""
        rest = _rest(obj)
        return b"".join((self._head, self._seal(zlib.crc32(rest, self._seed)), _METADATA, rest))

    def item(self, key: str, revision: int, obj: Object, *, stale: bool = False) -> Item:
        """Return the item of an object that was decoded, or is not stored (revision 0: it has no ``resourceVersion``)."""
        if not revision:
            return Item(key, revision, None, b"".join((self._head, _METADATA, _rest(obj))), stale=stale)
        return self._item(key, revision, _rest(obj), stale=stale)

    def written(self, key: str, revision: int, obj: Object, value: bytes) -> Item:
        """Return the item of an object that :meth:`stored` made ``value`` of, and that was stored at ``revision``."""
        return self._item(key, revision, value, self._rest_at, obj=at_revision(obj, revision))

    def read(self, key: str, revision: int, value: bytes) -> Item | None:
        """Return the item of a stored value; None if this build did not write it."""
        if not value.startswith(self._head):
            return None
        checksum = zlib.crc32(memoryview(value)[self._rest_at :], self._seed)
        if value[self._seal_at : self._seal_at + _SEAL] != self._seal(checksum):
            return None
        return self._item(key, revision, value, self._rest_at)

    def _item(
        self, key: str, revision: int, value: bytes, rest_at: int = 0, *, stale: bool = False, obj: Object | None = None
    ) -> Item:  # fmt: skip
        revision_end = b'%d",' % revision
        return Item(key, revision, obj, self._wire_head, *pieces(revision_end, value, rest_at), stale=stale, labels_at=len(revision_end))

    @staticmethod
    def _seal(checksum: int) -> bytes:
        return _BITS[checksum >> 24] + _BITS[checksum >> 16 & 255] + _BITS[checksum >> 8 & 255] + _BITS[checksum & 255]


def restamped(item: Item, revision: int) -> Item:
    """Return the same object with another ``resourceVersion``."""
    at = item.labels_at
    if not at:
        obj = at_revision(item.object, revision)
        return Item(item.key, revision, obj, orjson.dumps(obj), stale=item.stale)
    new = b'%d",' % revision
    head, first, *others = item.pieces
    return Item(item.key, revision, None, head, new + first[at:], *others, stale=item.stale, labels_at=len(new))


def at_revision(obj: Object, revision: int) -> Object:
    """Return the object with this ``resourceVersion``; the rest is shared with ``obj``."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def _rest(obj: Object) -> bytes:
    """Return the JSON of an object from the first member of its metadata on; its labels come first."""
    given = obj["metadata"]
    metadata = {"labels": given["labels"], **given} if "labels" in given else {**given}
    metadata.pop("resourceVersion", None)
    if not metadata:
        raise ValueError("an object without name")
    rest = {"metadata": metadata, **obj}
    rest["metadata"] = metadata
    rest.pop("apiVersion", None)
    rest.pop("kind", None)
    return orjson.dumps(rest)[1 + len(_METADATA) :]
