"""Shared file systems: ``devices.filesystems``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware import cloud_init, filesystems, memory
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.memory import PAGE_TABLE_SHARE
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements, projected

VIRTIOFSD_BYTES: Final = 16 * MIB
"""virtiofsd, and QEMU's part of the device."""
FILE_BYTES: Final = 2048
"""Per file that the guest references: virtiofsd's bookkeeping, and the node's kernel objects (file, dentry, inode)."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the volumes, and the memory of virtiofsd processes, each of which maps the guest's memory."""
    del claims
    each = VIRTIOFSD_BYTES + memory.guest_bytes(domain) // PAGE_TABLE_SHARE
    total = Requirements()
    for position, filesystem in enumerate(filesystems.defaulted(domain)):
        total += Requirements(overhead_bytes=each + FILE_BYTES * filesystems.max_files(filesystem)) + _mounted(filesystem, volume(position))
    return total


def volume(position: int) -> str:
    """Return the volume's name for the file system at this position."""
    return f"filesystem-{position}"


def _mounted(filesystem: Object, volume: str) -> Requirements:
    mount: Object = {"name": volume, "mountPath": f"{layout.FILESYSTEMS_DIRECTORY}/{filesystem['name']}"}
    mount |= {"readOnly": True} if filesystem["readOnly"] else {}
    if (claim := filesystems.claim_of(filesystem)) is not None:
        return Requirements(volumes=({"name": volume, "persistentVolumeClaim": {"claimName": claim}},), mounts=(mount,), owns_files=True)
    kind = "secret" if filesystem.get("type") == cloud_init.SECRET else "configMap"
    return Requirements(volumes=(projected(volume, {kind: {"name": str(dig(filesystem, "source", "name") or "")}}),), mounts=(mount,))
