"""Shared file systems: ``devices.filesystems``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cloud_init, given
from apiserver.apis.virt.hardware.given import Domain

CLAIM: Final = "PersistentVolumeClaim"
TYPES: Final = (CLAIM, cloud_init.CONFIG_MAP, cloud_init.SECRET)
MAX_FILES_OF_CLAIM: Final = 65536
MAX_FILES: Final = 4096
"""Files that a guest may reference at a time, in a claim and in a ConfigMap or Secret. Each costs memory in the pod."""


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.filesystems``, each with ``readOnly``."""
    return [{"readOnly": each.get("type") in cloud_init.FILES, **each} for each in given.devices(domain, "filesystems", [])]


def claim_of(filesystem: Mapping[str, Any]) -> str | None:
    """Return the lowercased claim's name of a file system of type PersistentVolumeClaim; None for others."""
    return str((filesystem.get("source") or {}).get("name") or "").lower() if filesystem.get("type") == CLAIM else None


def max_files(filesystem: Mapping[str, Any]) -> int:
    """Return how many files the guest may reference at a time; opening more fails until it drops others."""
    return MAX_FILES_OF_CLAIM if filesystem.get("type") == CLAIM else MAX_FILES
