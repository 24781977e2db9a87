"""Imports of disks: what ``source.import`` of a disk on a claim names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity

CLAIM: Final = "PersistentVolumeClaim"
AUTHORITIES_KEY: Final = "ca.crt"
"""Default of ``caConfigMapRef.key``, and the name of the file in the pod."""
KINDS: Final = ("http", "s3", "registry")
"""Fields of ``import``, one of which says where the image is."""
CHECKSUMS: Final[Mapping[str, int]] = {"sha256": 64, "sha512": 128}
"""Digits of a checksum, by its algorithm."""
MAX_URL: Final = 2048
HEAD_BYTES: Final = 1 << 20
UNFINISHED: Final = b"kubevirt.io/v1alpha1 import unfinished\n".ljust(512, b"\0")
"""First bytes of a block device whose import did not end. They, and what they mean, are ``importer.device``'s, which nobody imports."""

Object = Mapping[str, Any]


def of(disk: Object) -> Object | None:
    """Return ``source.import`` of a disk, or None."""
    found = (disk.get("source") or {}).get("import") if disk.get("type", CLAIM) == CLAIM else None
    return found or None


def is_due(head: bytes) -> bool:
    """Return whether an image is still to be imported into a block device whose first ``HEAD_BYTES`` these are."""
    return head.startswith(UNFINISHED) or not any(head)


def place(given: Object) -> Object:
    """Return the part of an import that says where the image is."""
    return next((given[kind] for kind in KINDS if given.get(kind)), {})


def secret(disk: Object) -> str:
    """Return the Secret with credentials for the server; empty: there is none."""
    return str((place(of(disk) or {}).get("secretRef") or {}).get("name") or "")


def authorities(disk: Object) -> tuple[str, str] | None:
    """Return name and key of the ConfigMap with certificates of authorities for the server, or None."""
    given = place(of(disk) or {}).get("caConfigMapRef")
    return None if not given else (str(given.get("name") or ""), str(given.get("key") or AUTHORITIES_KEY))


def size(given: Object) -> int | None:
    """Return the bytes of the disk, or None.

    Raises:
        ValueError: what is given is no quantity.
    """
    said = given.get("size")
    return None if said is None else quantity.parse(str(said)).bytes


def shown(given: Object) -> str:
    """Return where an image is, as it may be shown: without a query, which can be a signature."""
    where = place(given)
    if (endpoint := where.get("endpoint")) is not None:
        return f"{str(endpoint).rstrip('/')}/{where.get('bucket')}/{where.get('key')}"
    if (reference := where.get("reference")) is not None:
        return str(reference)
    return str(where.get("url") or "").partition("#")[0].partition("?")[0]
