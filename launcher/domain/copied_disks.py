"""Disks that exist in the pod only: overlays and blank disks, which are copied along when the guest migrates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.hardware import disks
from launcher.domain.disk_origins import origins

MAX_COPIED: Final = 8
"""Disks that are copied at once, each by a connection of its own: a relay carries no more of a migration."""
_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")


def names(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the disks of ``spec.domain`` whose data the pod alone has.

    Raises:
        InvalidSpecification: as ``origins``.
    """
    return tuple(origin.name for origin in origins(specification) if origin.overlay is not None)


def is_shallow(specification: Mapping[str, Any]) -> bool:
    """Return whether only what the guest wrote has to be copied: whatever lies below its overlays is the same at the target.

    A claim is, and an image that is named by its digest. A tag may be another image by now, so with one all of these disks is copied.
    """
    return all(_is_pinned(each) for each in disks.defaulted(specification) if disks.is_overlaid(each) and each.get("type") == disks.IMAGE)


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why disks of this kind keep a domain from live migration, or an empty string."""
    count = len(names(specification))
    return (
        f"what the guest wrote to {count} disks exists in its pod only, and no more than {MAX_COPIED} are copied"
        if count > MAX_COPIED
        else ""
    )


def _is_pinned(disk: Mapping[str, Any]) -> bool:
    return _DIGEST.fullmatch(str((disk.get("source") or {}).get("reference") or "")) is not None
