"""Disks that QEMU itself reaches over the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import network_disks
from controller.reconcilers.launcher_pods.needs import MIB, Needs

BYTES: Final[Mapping[str, int]] = {network_disks.ISCSI: 2 * MIB, network_disks.NBD: MIB}
"""Memory of a connection; the data themselves go between the guest's memory and the socket."""


def needs(disk: Object) -> Needs:
    """Return what one such disk needs."""
    return Needs(overhead_bytes=BYTES[disk["type"]])
