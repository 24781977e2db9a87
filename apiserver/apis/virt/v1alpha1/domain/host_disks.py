"""Sources of disks that are files of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from apiserver.apis.meta.validation import FieldError, Path, duplicate, invalid, required
from apiserver.apis.virt.hardware import host_disks as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object

FIELDS: Final = frozenset({"path", "create"})


def validate_source(source: Object, path: Path) -> list[FieldError]:
    """Return errors in the path of a HostDisk's source."""
    given, field = source.get("path") or "", path.child("path")
    if not given:
        return [required(field, "the path of a file of the node")]
    return [invalid(field, given, why)] if (why := hardware.path_problem(given)) else []


def validate_unique(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors for files that an earlier disk uses, because QEMU locks each disk's image."""
    seen: set[str] = set()
    found = []
    for position, disk in enumerate(disks):
        if (file := hardware.path_of(disk)) and file in seen:
            found.append(duplicate(path.index(position).child("source", "path"), file))
        seen.add(file)
    return found
