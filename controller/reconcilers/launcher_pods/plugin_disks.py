"""Disks that a storage plugin sets up on the node."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks, network_disks, plugin_disks
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods import network_disks as over_network
from controller.reconcilers.launcher_pods.requirements import MIB, Requirements, in_mebibytes

DIRECTORY_BYTES: Final = MIB


def requirements(domain: Object) -> Requirements:
    """Return the connections' memory, and the volume for plugins' sockets and image files."""
    found = [each for each in disks.defaulted(domain) if plugin_disks.is_plugin(each)]
    if not found:
        return Requirements()
    size = DIRECTORY_BYTES + sum(plugin_disks.size_limit_bytes(each) for each in found)
    return Requirements(
        overhead_bytes=over_network.BYTES[network_disks.NBD] * len(found),
        storage_bytes=size,
        volumes=({"name": layout.PLUGIN_DISKS_VOLUME, "emptyDir": {"sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": layout.PLUGIN_DISKS_VOLUME, "mountPath": layout.PLUGIN_DISKS_DIRECTORY},),
    )
