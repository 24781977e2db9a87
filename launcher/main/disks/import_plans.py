"""Plans of a machine's imports: which claims have no image, and the importer's input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import disk_imports, disks
from apiserver.apis.virt.places import layout
from launcher.domain.values import segment


@dataclass(frozen=True, slots=True)
class Directories:
    """Directories with a subdirectory per disk."""

    disks: Path = Path(layout.DISKS_DIRECTORY)
    devices: Path = Path(layout.DEVICES_DIRECTORY)
    secrets: Path = Path(layout.IMPORT_SECRETS_DIRECTORY)
    authorities: Path = Path(layout.IMPORT_AUTHORITIES_DIRECTORY)


DIRECTORIES: Final = Directories()


def missing(domain: Mapping[str, Any], directories: Directories) -> dict[str, bytes]:
    """Return the importer's plans for disks with ``source.import`` and no image in their claims, by disk. Raises InvalidSpecification."""
    found: dict[str, bytes] = {}
    for position, disk in enumerate(disks.defaulted(domain)):
        given = disk_imports.of(disk)
        if given is None:
            continue
        name = segment(disk["name"], f"devices.disks[{position}].name")
        directory, device = directories.disks / name, directories.devices / name
        if device.is_block_device():
            if _is_due(device):
                found[name] = plan(disk, given, directories, device=str(device))
        elif not os.path.lexists(directory / layout.DISK_IMAGE):
            found[name] = plan(disk, given, directories, directory=str(directory))
    return found


def plan(disk: Mapping[str, Any], given: Mapping[str, Any], directories: Directories, **place: str) -> bytes:
    """Return the importer's input for a disk, as ``importer.plan`` reads it.

    ``given`` is the disk's ``source.import``, ``place`` its claim's mount: either ``directory`` or ``device``.
    """
    document: dict[str, Any] = {**place, "source": dict(given), "size": disk_imports.size(given)}
    if disk_imports.secret(disk):
        document["secret"] = str(directories.secrets / disk["name"])
    if disk_imports.authorities(disk) is not None:
        document["authorities"] = str(directories.authorities / disk["name"] / disk_imports.AUTHORITIES_KEY)
    return json.dumps(document).encode()


def _is_due(device: Path) -> bool:
    try:
        with device.open("rb", buffering=0) as opened:
            return disk_imports.is_due(opened.read(disk_imports.HEAD_BYTES))
    except OSError:
        return True
