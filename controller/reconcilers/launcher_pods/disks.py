"""Disks and CD-ROM drives: ``devices.disks``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt import layout
from apiserver.apis.virt.hardware import disks
from controller.reconcilers import disk_claims
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs, image_source, in_mebibytes

OVERLAY_SHARE: Final = 4096
OVERLAY_BYTES: Final = 2 * MIB
"""Bytes of a qcow2 file beyond its disk: tables of 10 bytes for each 64 KiB (and ours is counted generously), a header, a directory."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return volumes of the disks, and room for what guests write to image disks."""
    total = _overlays(domain)
    for position, disk in enumerate(disks.meant(domain)):
        total += _disk(disk, f"disk-{position}", claims)
    return total


def overlays_bytes(domain: Object) -> int:
    """Return the bytes that the overlays of the machine's image disks can take; virt-launcher starts no guest with larger disks."""
    limits = [disks.overlay_bytes(each) for each in disks.meant(domain) if disks.is_overlaid(each)]
    return sum(limit + limit // OVERLAY_SHARE + OVERLAY_BYTES for limit in limits)


def _overlays(domain: Object) -> Needs:
    size = overlays_bytes(domain)
    if not size:
        return Needs()
    return Needs(
        storage_bytes=size,
        volumes=({"name": layout.OVERLAYS_VOLUME, "emptyDir": {"sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": layout.OVERLAYS_VOLUME, "mountPath": layout.OVERLAYS_DIRECTORY},),
    )


def _disk(disk: Object, volume: str, claims: Claims) -> Needs:
    """Return what one disk needs. Its volume is named by its position: a disk's name can be longer than a volume's."""
    claim, name = disk_claims.claim_of(disk), disk["name"]
    if claim is None:
        return Needs(
            volumes=({"name": volume, "image": image_source(dig(disk, "source") or {}, "reference", "pullPolicy")},),
            mounts=({"name": volume, "mountPath": f"{layout.IMAGES_DIRECTORY}/{name}", "readOnly": True},),
        )
    path = f"{layout.DISKS_DIRECTORY}/{name}"
    volumes = ({"name": volume, "persistentVolumeClaim": {"claimName": claim}},)
    if disk_claims.is_block(claims.get(claim)):
        return Needs(volumes=volumes, devices=({"name": volume, "devicePath": path},))
    mount = {"name": volume, "mountPath": path} | ({"readOnly": True} if disk["readOnly"] else {})
    return Needs(volumes=volumes, mounts=(mount,), owns_files=True)
