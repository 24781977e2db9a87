"""Disks and CD-ROM drives: ``devices.disks``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware import cloud_init, disk_imports, disks, host_disks, network_disks, plugin_disks
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import service_accounts
from controller.reconcilers import disk_claims
from controller.reconcilers.launcher_pods import downward_api
from controller.reconcilers.launcher_pods import host_disks as of_node
from controller.reconcilers.launcher_pods import network_disks as over_network
from controller.reconcilers.launcher_pods import plugin_disks as by_plugin
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements, image_source, in_mebibytes, projected

OVERLAY_SHARE: Final = 4096
OVERLAY_BYTES: Final = 2 * MIB
"""A qcow2 file has tables of 10 bytes per 64 KiB (ours is generous), a header and a directory."""
COPY_BYTES: Final = 17 * MIB
"""Per disk that is copied between pods (16 MiB measured)."""
FILE_BYTES: Final = 4096
"""In a tmpfs the rest of a page, in an image the rest of a block and its entries."""
KEYS_BYTES: Final = MIB
"""Meta data with the keys of ``spec.accessCredentials``: 64 of at most 4 KiB, up to three times as long in JSON."""
IMAGE_BYTES: Final = MIB
"""Without files: 64 KiB measured, and xorriso's temporary space."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return volumes of disks, and space for overlays and disks made in the pod."""
    total = _overlays(domain) + _made(domain) + by_plugin.requirements(domain) + over_network.certificates(domain)
    for position, disk in enumerate(disks.defaulted(domain)):
        total += _disk(disk, volume(position), claims, domain)
    return total


def volume(position: int) -> str:
    """Return the volume's name for the disk at this position; the disk's own name may be too long."""
    return f"disk-{position}"


def overlays_bytes(domain: Object) -> int:
    """Return how many bytes the overlays of ``spec.domain`` may take in total."""
    limits = [disks.overlay_bytes(each) for each in disks.defaulted(domain) if disks.is_overlaid(each)]
    return sum(limit + limit // OVERLAY_SHARE + OVERLAY_BYTES for limit in limits)


def _overlays(domain: Object) -> Requirements:
    size = overlays_bytes(domain)
    if not size:
        return Requirements()
    return Requirements(
        storage_bytes=size,
        overhead_bytes=COPY_BYTES * sum(map(disks.is_overlaid, disks.defaulted(domain))),
        volumes=({"name": layout.OVERLAYS_VOLUME, "emptyDir": {"sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": layout.OVERLAYS_VOLUME, "mountPath": layout.OVERLAYS_DIRECTORY},),
    )


def made_bytes(domain: Object) -> int:
    """Return the bytes of images made in the pod, and of the largest one's files, which exist during its creation."""
    files = [_files_bytes(each) for each in disks.defaulted(domain) if each.get("type") in cloud_init.MADE]
    return sum(files) + IMAGE_BYTES * len(files) + max(files, default=0)


def _files_bytes(disk: Object) -> int:
    source = dig(disk, "source") or {}
    if disk.get("type") not in cloud_init.TYPES:
        return cloud_init.MAX_VALUES + FILE_BYTES * cloud_init.MAX_FILES
    inline = sum(len(str(source.get(f"{datum}{way}") or "")) * 4 for datum in cloud_init.DATA for way in ("", "Base64"))
    referred = sum(cloud_init.MAX_VALUES for datum in cloud_init.DATA if cloud_init.reference(source, datum))
    return inline + referred + KEYS_BYTES + FILE_BYTES * len(cloud_init.DATA)


def _made(domain: Object) -> Requirements:
    size = made_bytes(domain)
    if not size:
        return Requirements()
    return Requirements(
        overhead_bytes=size,
        volumes=({"name": layout.MADE_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": in_mebibytes(size)}},),
        mounts=({"name": layout.MADE_VOLUME, "mountPath": layout.MADE_DIRECTORY},),
    )


def _mounted(disk: Object, domain: Object) -> tuple[Object, ...]:
    source = dig(disk, "source") or {}
    match disk.get("type"):
        case cloud_init.SECRET:
            return ({"secret": {"name": str(source.get("name") or "")}},)
        case cloud_init.CONFIG_MAP:
            return ({"configMap": {"name": str(source.get("name") or "")}},)
        case cloud_init.DOWNWARD_API:
            return (downward_api.source(disk, domain),)
        case cloud_init.SERVICE_ACCOUNT:
            return _of_account(source)
        case _:
            found = ((datum, cloud_init.reference(source, datum)) for datum in cloud_init.DATA)
            return tuple(
                {"secret": {"name": each[0], "items": [{"key": each[1], "path": datum}]}} for datum, each in found if each is not None
            )


def _of_account(source: Object) -> tuple[Object, ...]:
    token = {"path": service_accounts.TOKEN, "expirationSeconds": source.get("expirationSeconds") or service_accounts.EXPIRATION_SECONDS}
    if source.get("audience"):
        token["audience"] = source["audience"]
    authority = {"name": service_accounts.AUTHORITY_CONFIG_MAP, "items": [dict.fromkeys(("key", "path"), service_accounts.AUTHORITY)]}
    namespace = {"path": service_accounts.NAMESPACE, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {"serviceAccountToken": token}, {"configMap": authority}, {"downwardAPI": {"items": [namespace]}}


def _of_made(disk: Object, volume: str, domain: Object) -> Requirements:
    sources = _mounted(disk, domain)
    if not sources:
        return Requirements()
    mount = {"name": volume, "mountPath": f"{layout.SOURCES_DIRECTORY}/{disk['name']}", "readOnly": True}
    return Requirements(volumes=(projected(volume, *sources),), mounts=(mount,))


def _disk(disk: Object, volume: str, claims: Claims, domain: Object) -> Requirements:
    if disk.get("type") in cloud_init.MADE:
        return _of_made(disk, volume, domain)
    if network_disks.is_network(disk):
        return over_network.requirements(disk, volume)
    if disk.get("type") == disks.EMPTY or disks.is_empty_drive(disk) or plugin_disks.is_plugin(disk):
        return Requirements()
    if host_disks.is_host(disk):
        return of_node.requirements(disk, volume)
    claim, name = disks.claim_of(disk), disk["name"]
    if claim is None:
        return Requirements(
            volumes=({"name": volume, "image": image_source(dig(disk, "source") or {}, "reference", "pullPolicy")},),
            mounts=({"name": volume, "mountPath": f"{layout.IMAGES_DIRECTORY}/{name}", "readOnly": True},),
        )
    volumes = ({"name": volume, "persistentVolumeClaim": {"claimName": claim}},)
    if disk_claims.is_block(claims.get(claim)):
        device = {"name": volume, "devicePath": f"{layout.DEVICES_DIRECTORY}/{name}"}
        return Requirements(volumes=volumes, devices=(device,)) + import_volumes(disk, volume)
    only_read = disk_imports.of(disk) is None and (disk["readOnly"] or disks.is_overlaid(disk))
    mount = {"name": volume, "mountPath": f"{layout.DISKS_DIRECTORY}/{name}"} | ({"readOnly": True} if only_read else {})
    return Requirements(volumes=volumes, mounts=(mount,), owns_files=True) + import_volumes(disk, volume)


def import_volumes(disk: Object, volume: str) -> Requirements:
    """Return the credentials and certificate authorities for a disk's import; the names of their volumes begin with ``volume``."""
    total = Requirements()
    if secret := disk_imports.secret(disk):
        total += _for_import(f"{volume}-secret", layout.IMPORT_SECRETS_DIRECTORY, disk, {"secret": {"name": secret}})
    if (authorities := disk_imports.authorities(disk)) is not None:
        name, key = authorities
        source = {"configMap": {"name": name, "items": [{"key": key, "path": disk_imports.AUTHORITIES_KEY}]}}
        total += _for_import(f"{volume}-authorities", layout.IMPORT_AUTHORITIES_DIRECTORY, disk, source)
    return total


def _for_import(volume: str, directory: str, disk: Object, source: Object) -> Requirements:
    mount = {"name": volume, "mountPath": f"{directory}/{disk['name']}", "readOnly": True}
    return Requirements(volumes=(projected(volume, source),), mounts=(mount,))
