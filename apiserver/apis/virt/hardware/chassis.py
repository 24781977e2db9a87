"""The chassis that the machine says it is in: ``chassis``."""

from __future__ import annotations

from typing import Final

FIELDS: Final = ("manufacturer", "version", "serial", "asset", "sku")
"""Names of its fields, which are libvirt's of the strings in SMBIOS table 3."""
