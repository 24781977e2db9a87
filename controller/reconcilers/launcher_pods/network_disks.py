"""Disks that QEMU reaches over the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks, network_disks
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.requirements import MIB, Requirements, projected

BYTES: Final[Mapping[str, int]] = {
    network_disks.ISCSI: 2 * MIB,
    network_disks.NBD: MIB,
    network_disks.NFS: 4 * MIB,
    network_disks.RBD: 64 * MIB,
}
"""Per connection; data goes directly between guest memory and the socket."""
REQUEST_BYTES: Final = 5 * MIB // 2
"""Per request with copied data: twice Linux's maximum (1280 KiB), because QEMU joins the parts and the driver copies them."""
TLS_BYTES: Final = 2 * MIB
"""Per TLS connection: the disk's certificates, and data being encrypted."""


def requirements(disk: Object, volume: str) -> Requirements:
    """Return the requirements of one network disk, without its TLS certificates' mount; ``volume`` names its volume."""
    room = Requirements(overhead_bytes=BYTES[disk["type"]])
    if network_disks.copies_writes(disk):
        room += Requirements(overhead_bytes=network_disks.REQUESTS * REQUEST_BYTES)
    if network_disks.tls_secret(disk):
        room += Requirements(overhead_bytes=TLS_BYTES)
    if secret := network_disks.login_secret(disk):
        place = f"{layout.SOURCES_DIRECTORY}/{disk['name']}"
        room += _mounted(volume, place, _secret(secret, network_disks.login_keys(disk)))
    return room


def certificates(domain: Object) -> Requirements:
    """Return the mount of the TLS certificates, if any, for all network disks of a machine, which share one Secret."""
    secret = next((found for each in disks.defaulted(domain) if (found := network_disks.tls_secret(each))), "")
    if not secret:
        return Requirements()
    own = {"secret": {**_secret(secret, network_disks.CLIENT_KEYS)["secret"], "optional": True}}
    return _mounted(layout.NBD_TLS_VOLUME, layout.NBD_TLS_DIRECTORY, _secret(secret, network_disks.AUTHORITY_KEYS), own)


def _mounted(volume: str, place: str, *sources: Object) -> Requirements:
    mount = {"name": volume, "mountPath": place, "readOnly": True}
    return Requirements(volumes=(projected(volume, *sources),), mounts=(mount,))


def _secret(name: str, keys: Mapping[str, str]) -> Object:
    return {"secret": {"name": name, "items": [{"key": key, "path": file} for key, file in keys.items()]}}
