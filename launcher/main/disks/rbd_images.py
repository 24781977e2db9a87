"""Checks before the start that QEMU can open images of Ceph clusters (docs/decisions/disks.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt.hardware import disks, network_disks
from apiserver.apis.virt.places import layout
from launcher.main.disks import qemu_img
from launcher.main.disks.made_disks import SourceUnusable
from launcher.main.programs.children import Children

SECONDS: Final = 15.0
"""A cluster with a reachable monitor takes 0.1 s."""


async def look(children: Children, specification: Mapping[str, Any], seconds: float = SECONDS) -> None:
    """Open each Ceph image as QEMU will, each within ``seconds``, or raise SourceUnusable, which names the disk."""
    for disk in disks.defaulted(specification):
        if disk.get("type") == network_disks.RBD:
            await _look(children, disk, seconds)


async def _look(children: Children, disk: Mapping[str, Any], seconds: float) -> None:
    name = str(disk["name"])
    (file,) = network_disks.KEYRING_KEYS.values()
    key = [f"secret,id=key,format=base64,file={layout.SOURCES_DIRECTORY}/{name}/{file}"] if network_disks.login_secret(disk) else []
    try:
        await qemu_img.info(children, _source(disk), key, seconds)
    except TimeoutError:
        text = f"not opened within {seconds:g} s: check the key of the Ceph user, and whether the OSDs answer"
        raise SourceUnusable(f"disk {name!r}: its image was {text}") from None
    except qemu_img.CannotOpen as error:
        raise SourceUnusable(f"disk {name!r}: its image: {error}") from None


def _source(disk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the image as options of QEMU, like libvirt's, but with a key only ``cephx``.

    Both sides then prove that they have the key; libvirt's XML lets the monitor choose ``none``.
    """
    source = disk["source"]
    monitors = [{"host": host, "port": str(port)} for host, port in network_disks.endpoints(disk)]
    found = {"driver": "rbd", "pool": source["pool"], "image": source["image"], "server": monitors}
    login: Mapping[str, Any] = {"auth-client-required": ["none"]}
    if network_disks.login_secret(disk):
        login = {"user": source.get("user", "admin"), "auth-client-required": ["cephx"], "key-secret": "key"}
    return {"driver": "raw", "file": {**found, **login}}
