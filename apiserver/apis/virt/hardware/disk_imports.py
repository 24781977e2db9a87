"""Imports of disks: ``source.import`` of a disk on a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity

CLAIM: Final = "PersistentVolumeClaim"
AUTHORITIES_KEY: Final = "ca.crt"
"""Default of ``caConfigMapRef.key``, and the file's name in the pod."""
KINDS: Final = ("http", "s3", "registry")
"""Fields of ``import``, one with the image's location."""
CHECKSUMS: Final[Mapping[str, int]] = {"sha256": 64, "sha512": 128}
"""Digits by algorithm."""
MAX_URL: Final = 2048
HEAD_BYTES: Final = 1 << 20
UNFINISHED: Final = b"kubevirt.io/v1alpha1 import unfinished\n".ljust(512, b"\0")
"""First bytes of a block device with an unfinished import, as in ``importer.device``, which no package imports."""

Object = Mapping[str, Any]


def of(disk: Object) -> Object | None:
    """Return ``source.import`` of a disk on a claim; None without it, and for disks of other types."""
    found = (disk.get("source") or {}).get("import") if disk.get("type", CLAIM) == CLAIM else None
    return found or None


def is_due(head: bytes) -> bool:
    """Return whether a block device still needs its import: its first ``HEAD_BYTES``, ``head``, are zero or begin with ``UNFINISHED``."""
    return head.startswith(UNFINISHED) or not any(head)


def place(given: Object) -> Object:
    """Return ``http``, ``s3`` or ``registry`` of an import, with the image's location; empty without."""
    return next((given[kind] for kind in KINDS if given.get(kind)), {})


def secret(disk: Object) -> str:
    """Return the name of the Secret with an import's credentials, or ""."""
    return str((place(of(disk) or {}).get("secretRef") or {}).get("name") or "")


def authorities(disk: Object) -> tuple[str, str] | None:
    """Return (name, key) of the ConfigMap with the certificate authorities for an import, or None."""
    given = place(of(disk) or {}).get("caConfigMapRef")
    return None if not given else (str(given.get("name") or ""), str(given.get("key") or AUTHORITIES_KEY))


def size(given: Object) -> int | None:
    """Return an import's ``size`` in bytes; None if unset."""
    said = given.get("size")
    return None if said is None else quantity.parse(str(said)).bytes


def shown(given: Object) -> str:
    """Return the location of an import's image as text, without the query: it may be secret."""
    where = place(given)
    if (endpoint := where.get("endpoint")) is not None:
        return f"{str(endpoint).rstrip('/')}/{where.get('bucket')}/{where.get('key')}"
    if (reference := where.get("reference")) is not None:
        return str(reference)
    return str(where.get("url") or "").partition("#")[0].partition("?")[0]
