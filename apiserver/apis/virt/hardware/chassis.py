"""SMBIOS strings of the machine's chassis: ``chassis``."""

from __future__ import annotations

from typing import Final

FIELDS: Final = ("manufacturer", "version", "serial", "asset", "sku")
"""Named as libvirt's strings of SMBIOS table 3."""
