"""SMBIOS strings of the machine's chassis: ``<sysinfo>``."""

from __future__ import annotations

from apiserver.apis.virt.hardware import chassis as hardware
from launcher.domain import smbios, values
from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the specified chassis strings."""
    given = definition.specification.get("chassis") or {}
    smbios.append(tree, "chassis", values.smbios(given, hardware.FIELDS, "chassis"))
