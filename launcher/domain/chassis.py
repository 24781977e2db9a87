"""The chassis that the machine says it is in: ``<sysinfo>``."""

from __future__ import annotations

from typing import Final

from launcher.domain import smbios, values
from launcher.domain.definition import Definition, Tree

_FIELDS: Final = ("manufacturer", "version", "serial", "asset", "sku")


def append(tree: Tree, definition: Definition) -> None:
    """Append what is given of the chassis."""
    given = definition.specification.get("chassis") or {}
    smbios.append(tree, "chassis", values.smbios(given, _FIELDS, "chassis"))
