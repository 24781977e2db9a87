"""Disks that are files of the node."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.requirements import MIB, Requirements, in_mebibytes

PLACE_BYTES: Final = 8192
"""A directory with an empty file in memory, over which virt-handler mounts the node's file."""


def requirements(disk: Object, volume: str) -> Requirements:
    """Return the volume, in memory, over which virt-handler mounts the node's file, and its memory."""
    return Requirements(
        overhead_bytes=PLACE_BYTES,
        volumes=({"name": volume, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(MIB)}},),
        mounts=({"name": volume, "mountPath": f"{layout.DISKS_DIRECTORY}/{disk['name']}"},),
    )
