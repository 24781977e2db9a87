"""Disks that exist in the pod only: overlays and blank disks. A migration copies them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.hardware import disks
from launcher.domain.disk_origins import origins

MAX_COPIED: Final = 8
"""Each takes one connection of a migration's relay."""
_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")


def names(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the disks that keep data in the pod only."""
    return tuple(origin.name for origin in origins(specification) if origin.overlay is not None)


def moved(specification: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return two paths for each disk with an overlay: that of a hot-plugged disk's overlay, and that in a migration's target."""
    return tuple((str(each.plugged_overlay), str(each.overlay)) for each in origins(specification) if each.overlay is not None)


def is_shallow(specification: Mapping[str, Any]) -> bool:
    """Return whether a migration copies only what the guest wrote, because the target has the same data below the overlays.

    That is so for claims, and for images named by digest; a tag may point to another image by now.
    """
    return all(_is_pinned(each) for each in disks.defaulted(specification) if disks.is_overlaid(each) and each.get("type") == disks.IMAGE)


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why the disks to copy prevent live migration: there are too many; else empty."""
    count = len(names(specification))
    return (
        f"what the guest wrote to {count} disks exists only in its pod, and a migration copies at most {MAX_COPIED}"
        if count > MAX_COPIED
        else ""
    )


def _is_pinned(disk: Mapping[str, Any]) -> bool:
    return _DIGEST.fullmatch(str((disk.get("source") or {}).get("reference") or "")) is not None
