"""Requirements of virt-launcher, libvirtd and QEMU, the same for each machine."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disk_imports, disks, features
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.disks import import_volumes, overlays_bytes
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements, image_source, in_mebibytes

LAUNCHER_BYTES: Final = 80 * MIB
"""60 MiB measured, and a migration's second connection."""
QEMU_BYTES: Final = (78 + features.TRANSLATION_CACHE_MEBIBYTES) * MIB
"""Without guest memory: 74 MiB measured, 4 spare, and the translation cache (unused with KVM)."""
PLACES_BYTES: Final = MIB
"""For claims and images that virt-handler mounts while the guest runs."""
ATTACHMENT_BYTES: Final = 32 * MIB
"""12 MiB measured."""
IMPORT_BYTES: Final = 256 * MIB
"""For the importer, with the largest window of zstd (128 MiB), or for qemu-img."""
ATTACHMENT_LOG_BYTES: Final = MIB
"""With a limit of 0 a kubelet evicts a pod that has any log."""
LOG_BYTES: Final = 128 * MIB
"""Kubelets keep 50 MiB of log by default, and check every ten seconds."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory, disk space and volumes that each launcher pod needs."""
    del domain, claims
    place = Requirements(
        overhead_bytes=PLACES_BYTES,
        volumes=({"name": layout.DISKS_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(PLACES_BYTES)}},),
        mounts=tuple({"name": layout.DISKS_VOLUME, "mountPath": each} for each in (layout.DISKS_DIRECTORY, layout.IMAGES_DIRECTORY)),
    )
    return Requirements(overhead_bytes=QEMU_BYTES, storage_bytes=LOG_BYTES) + removal_requirements() + place


def attachment_requirements(disk: Object, *, is_block: bool = False) -> Requirements:
    """Return the requirements of the pod for the claim, image and overlay of a hot-plugged disk (of ``disks.defaulted``)."""
    run = layout.IN_MEMORY[0]
    own = Requirements(
        overhead_bytes=ATTACHMENT_BYTES + run.size,
        storage_bytes=ATTACHMENT_LOG_BYTES,
        volumes=({"name": run.name, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(run.size)}},),
        mounts=({"name": run.name, "mountPath": run.directory},),
    )
    return own + _attached(disk, is_block=is_block) + _overlay(disk) + _import(disk)


def _attached(disk: Object, *, is_block: bool) -> Requirements:
    if disk.get("type") == disks.EMPTY:
        return Requirements()
    only_read = disk_imports.of(disk) is None and (disk["readOnly"] or disks.is_overlaid(disk))
    claim, read_only = disks.claim_of(disk), {"readOnly": True} if only_read else {}
    content = (
        {"persistentVolumeClaim": {"claimName": claim}} if claim else {"image": image_source(disk["source"], "reference", "pullPolicy")}
    )
    if is_block:
        device = {"name": layout.ATTACHMENT_VOLUME, "devicePath": layout.ATTACHMENT_DEVICE}
        return Requirements(volumes=({"name": layout.ATTACHMENT_VOLUME, **content},), devices=(device,))
    return Requirements(
        volumes=({"name": layout.ATTACHMENT_VOLUME, **content},),
        mounts=({"name": layout.ATTACHMENT_VOLUME, "mountPath": layout.ATTACHMENT_DIRECTORY, **read_only},),
        owns_files=bool(claim),
    )


def _overlay(disk: Object) -> Requirements:
    if not (size := overlays_bytes({"devices": {"disks": [disk]}})):
        return Requirements()
    return Requirements(
        storage_bytes=size,
        volumes=({"name": layout.ATTACHMENT_OVERLAY_VOLUME, "emptyDir": {"sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": layout.ATTACHMENT_OVERLAY_VOLUME, "mountPath": layout.ATTACHMENT_OVERLAY_DIRECTORY},),
    )


def _import(disk: Object) -> Requirements:
    if disk_imports.of(disk) is None:
        return Requirements()
    name, size = layout.ATTACHMENT_IMPORT_VOLUME, MIB
    own = Requirements(
        overhead_bytes=IMPORT_BYTES + size,
        storage_bytes=LOG_BYTES,
        volumes=({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": name, "mountPath": layout.ATTACHMENT_IMPORT_DIRECTORY},),
    )
    return own + import_volumes({**disk, "name": layout.ATTACHMENT_VOLUME}, layout.ATTACHMENT_VOLUME)


def removal_requirements() -> Requirements:
    """Return the requirements of a pod without libvirtd and QEMU, with the volumes that mark it as a launcher pod."""
    return Requirements(
        overhead_bytes=LAUNCHER_BYTES + sum(volume.size for volume in layout.IN_MEMORY),
        volumes=tuple(
            {"name": each.name, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(each.size)}} for each in layout.IN_MEMORY
        ),
        mounts=tuple({"name": each.name, "mountPath": each.directory} for each in layout.IN_MEMORY),
    )
