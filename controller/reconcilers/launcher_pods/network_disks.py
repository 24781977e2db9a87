"""Disks that QEMU itself reaches over the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import layout
from apiserver.apis.virt.hardware import network_disks
from controller.reconcilers.launcher_pods.needs import MIB, Needs, projected

BYTES: Final[Mapping[str, int]] = {network_disks.ISCSI: 2 * MIB, network_disks.NBD: MIB}
"""Memory of a connection; the data themselves go between the guest's memory and the socket."""


def needs(disk: Object, volume: str) -> Needs:
    """Return what one such disk needs; ``volume`` is the name for one of it."""
    room = Needs(overhead_bytes=BYTES[disk["type"]])
    if not (secret := network_disks.login_secret(disk)):
        return room
    items = [{"key": key, "path": file} for key, file in network_disks.LOGIN_KEYS.items()]
    mount = {"name": volume, "mountPath": f"{layout.SOURCES_DIRECTORY}/{disk['name']}", "readOnly": True}
    return room + Needs(volumes=(projected(volume, {"secret": {"name": secret, "items": items}}),), mounts=(mount,))
