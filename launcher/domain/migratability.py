"""Reasons why a domain cannot be migrated live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.domain import copied_disks, cpu, disk_origins, filesystems, firmware_files, interfaces, passed_through, plugin_disks


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return all reasons why this ``spec.domain`` prevents live migration; empty without one."""
    families = (copied_disks, disk_origins, plugin_disks, filesystems, cpu, firmware_files, interfaces, passed_through)
    return "; ".join(filter(None, (each.not_migratable(specification) for each in families)))
