"""Disks and CD-ROM drives: ``devices.disks``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta import names, quantity
from apiserver.apis.meta.schema import Int32, Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, not_supported, required, too_long
from apiserver.apis.virt.hardware import cloud_init as made
from apiserver.apis.virt.hardware import disks as hardware
from apiserver.apis.virt.hardware.host_disks import HOST
from apiserver.apis.virt.hardware.network_disks import ISCSI
from apiserver.apis.virt.hardware.plugin_disks import PLUGIN
from apiserver.apis.virt.v1alpha1.domain import (
    cloud_init,
    disk_driver,
    disk_import,
    disk_io_tune,
    disk_sharing,
    downward_api,
    host_disks,
    network_disks,
    plugin_disks,
    service_accounts,
)
from apiserver.apis.virt.v1alpha1.domain.cloud_init import SecretKey
from apiserver.apis.virt.v1alpha1.domain.disk_driver import BlockSize, DiskDriver
from apiserver.apis.virt.v1alpha1.domain.disk_import import DiskImport
from apiserver.apis.virt.v1alpha1.domain.disk_io_tune import IoTune
from apiserver.apis.virt.v1alpha1.domain.downward_api import DownwardItem
from apiserver.apis.virt.v1alpha1.domain.images import PullPolicy
from apiserver.apis.virt.v1alpha1.domain.network_disks import NetworkSource
from apiserver.apis.virt.v1alpha1.domain.plugin_disks import PluginSource
from apiserver.apis.virt.v1alpha1.domain.rules import (
    Object,
    validate_between,
    validate_bytes,
    validate_count,
    validate_device_name,
    validate_image,
    validate_path,
    validate_unique,
)
from apiserver.apis.virt.v1alpha1.domain.service_accounts import TokenSource

MIN_OVERLAY: Final = quantity.parse("1Mi")
MAX_OVERLAY: Final = quantity.parse("64Ti")

_SERIAL: Final = re.compile(r"[A-Za-z0-9_.+-]*")
_NO_MEDIUM: Final = "set type, such as PersistentVolumeClaim, Image or EmptyDisk, and source; only an empty cdrom has neither"
_LUNS: Final = (hardware.CLAIM, ISCSI)
_NOT_OF_A_LUN: Final = ("readOnly", "serial", "wwn", "driver", "blockSize", "ioTune")
_OF_THE_DEVICE: Final = "may not be set for a lun"
_FIELDS_OF_SOURCES: Final = {
    "PersistentVolumeClaim": {"name", "ephemeral", "sizeLimit", "create", "import"},
    hardware.EMPTY: {"size"},
    "Image": {"reference", "path", "pullPolicy", "sizeLimit"},
    made.NO_CLOUD: cloud_init.FIELDS,
    made.CONFIG_DRIVE: cloud_init.FIELDS,
    made.SECRET: {"name", "volumeLabel"},
    made.CONFIG_MAP: {"name", "volumeLabel"},
    made.DOWNWARD_API: {"items", "volumeLabel"},
    made.SERVICE_ACCOUNT: service_accounts.FIELDS,
    PLUGIN: plugin_disks.FIELDS,
    HOST: host_disks.FIELDS,
    **network_disks.FIELDS,
}


class DiskCreation(Model):
    """The blank disk to create in an empty claim, or as a missing file of the node."""

    size: Quantity = Field(description="Its size, rounded up to whole MiB. A running guest takes a larger one of a claim.")


class DiskSource(NetworkSource, TokenSource, PluginSource):
    """The source of a disk's content; its fields depend on the disk's type."""

    name: str | None = Field(
        None,
        description="PersistentVolumeClaim: the claim's name in the same namespace. It is looked up in lower case, because claims have "
        "lower-case names. Secret, ConfigMap, ServiceAccount: its name in the same namespace.",
    )
    reference: str | None = Field(None, description="Image: the reference of a container image with a disk image in it.")
    path: str | None = Field(
        None,
        description="NFS: absolute path of the file on the server, which exports its directory. Image: path of the disk image within the "
        "container image. Default disk/disk.img. HostDisk: path of a raw image on the node, without symbolic links, below a directory "
        "that the cluster's administrator allows. virt-launcher's user, 107, must be able to read and write it. spec.nodeName or "
        "spec.nodeSelector selects the node.",
    )
    pull_policy: PullPolicy | None = Field(None, description="Image: when the container image is pulled, as for a container.")
    size_limit: Quantity | None = Field(
        None,
        description="Image, ephemeral claim: largest allowed size of the disk, if the guest writes to it. The overlay is on the node's "
        "disk, where the pod requests this amount; a larger disk does not start. Default 4Gi. Plugin: the largest image file that the "
        "plugin may put into the pod, which requests this amount; if unset, the plugin serves the disk from elsewhere.",
    )
    ephemeral: bool | None = Field(
        None,
        description="PersistentVolumeClaim: the guest's writes go to an overlay that is deleted when the machine is off, never to the "
        "claim. Several machines can use the claim this way at once. Default false.",
    )
    create: DiskCreation | None = Field(
        None,
        description="PersistentVolumeClaim: before the first start, an empty claim gets a blank disk. It is a sparse file disk.img. An "
        "existing smaller disk grows to this size before a start; nothing is overwritten or shrunk. For a block device, this is the "
        "minimum size. HostDisk: a missing file is created for uid 107. Default: the start waits for an image; a HostDisk must exist.",
    )
    import_: DiskImport | None = Field(
        None,
        alias="import",
        description="PersistentVolumeClaim: before the first start, an image is downloaded into an empty claim, as disk.img. It is raw "
        "or qcow2, and may be compressed with gzip, xz or bzip2. Existing content is used unchanged. A claim of volume mode Block takes "
        "only raw images; a qcow2 image needs additional space next to the disk. status.imports shows the progress. Default: the start "
        "waits for an image.",
    )
    size: Quantity | None = Field(None, description="EmptyDisk: its size; the pod requests all of it from the node's disk.")
    volume_label: str | None = Field(
        None,
        description="Secret, ConfigMap, DownwardAPI, ServiceAccount: label of the file system, at most 16 characters. Default cfgdata.",
    )
    items: list[DownwardItem] | None = Field(None, description="DownwardAPI: its files, with their content at the machine's start.")
    user_data: str | None = Field(
        None,
        description="CloudInit…: user data as text. Put passwords and keys into userDataSecretRef, because all users with read access to "
        "machines can read this field. Set at most one of userData, userDataBase64 and userDataSecretRef; the same holds for the other "
        "data.",
    )
    user_data_base64: str | None = Field(None, description="CloudInit…: user data in base64.")
    user_data_secret_ref: SecretKey | None = Field(
        None, description="CloudInit…: the Secret that holds user data, under the key userdata by default."
    )
    network_data: str | None = Field(None, description="CloudInit…: network configuration as text. Default: the guest uses DHCP.")
    network_data_base64: str | None = Field(None, description="CloudInit…: network configuration in base64.")
    network_data_secret_ref: SecretKey | None = Field(
        None, description="CloudInit…: the Secret that holds network configuration, under the key networkdata by default."
    )
    meta_data: str | None = Field(
        None,
        description="CloudInit…: meta data as text, which replaces the default. Default: an instance id, the local hostname and public "
        "keys. The id is computed from the object's uid, the hostname is the machine's name, and the keys are those of accessCredentials.",
    )
    meta_data_base64: str | None = Field(None, description="CloudInit…: meta data in base64.")
    meta_data_secret_ref: SecretKey | None = Field(
        None, description="CloudInit…: the Secret that holds meta data, under the key metadata by default."
    )


class DiskTarget(Model):
    """The disk as the guest sees it."""

    bus: Literal["virtio", "sata", "scsi", "usb"] | None = Field(
        None, description="The disk's bus. Default virtio, for a cdrom sata, for a lun scsi."
    )


class Disk(Model):
    """One disk or CD-ROM drive."""

    name: str | None = Field(None, description="Its name, unique in the machine. Default disk<position>, counted from 0.")
    type: (
        Literal[
            "PersistentVolumeClaim",
            "Image",
            "EmptyDisk",
            "CloudInitNoCloud",
            "CloudInitConfigDrive",
            "Secret",
            "ConfigMap",
            "DownwardAPI",
            "ServiceAccount",
            "ISCSI",
            "NBD",
            "NFS",
            "RBD",
            "Plugin",
            "HostDisk",
        ]
        | None
    ) = Field(
        None,
        description="Source of the content. PersistentVolumeClaim: a claim, as a block device or a file disk.img; persistent. Image: a "
        "container image; the guest's writes go to an overlay that is deleted when the machine is off. EmptyDisk: blank, deleted when the "
        "machine is off. CloudInitNoCloud, CloudInitConfigDrive: data for cloud-init's first boot, as a file system cidata or config-2. "
        "Secret, ConfigMap: its keys as files of an ISO 9660 file system. DownwardAPI: fields of the machine and resources of its pod, as "
        "files of such a file system. ServiceAccount: files token, ca.crt and namespace, so that the guest can authenticate to "
        "kube-apiserver as that service account, in a namespace that allows it; see docs/first-boot.md. These six are created at every "
        "start and are read-only. ISCSI: a logical unit of a target. NBD: an export of a server. NFS: a file of a server, by NFS version "
        "3. RBD: an image of a Ceph cluster. QEMU connects to these four itself and reads their content as raw. Plugin: a disk that a "
        "plugin on the node sets up, also raw. HostDisk: a file of the node, if the cluster's administrator allows it. A cdrom without "
        "type and source is an empty drive.",
    )
    device: Literal["disk", "cdrom", "lun"] | None = Field(
        None,
        description="Kind of device that the guest sees. lun: the node's SCSI device behind a claim of volume mode Block, or the logical "
        "unit of an iSCSI target; it gets the guest's own SCSI commands. Default disk, for a Secret, ConfigMap, DownwardAPI or "
        "ServiceAccount cdrom.",
    )
    source: DiskSource | None = Field(None, description="Where the content is. Required, except for an empty drive.")
    target: DiskTarget | None = Field(None, description="The disk as the guest sees it.")
    read_only: bool | None = Field(
        None, description="The guest cannot write to it. Default false, true for a cdrom and for disks created at the start."
    )
    boot_order: Int32 | None = Field(None, description="Position in the boot order, from 1; devices without a position come last.")
    shareable: bool | None = Field(
        None,
        description="Several machines may use the disk at once, if all set this, and their guests write to it concurrently. Only for "
        "cluster file systems and databases, because concurrent writes destroy other file systems. Only for a claim that is not "
        "ephemeral, or a network disk. Needs driver.cache none or directsync. Default false. Without it, a machine that "
        "writes uses the disk exclusively.",
    )
    serial: str | None = Field(
        None,
        description="The serial number that the guest reads from it, unique in the machine: at most 20 characters, 36 for bus scsi or usb.",
    )
    wwn: str | None = Field(
        None,
        description="The World Wide Name that the guest reads from it, unique in the machine: 16 hexadecimal digits. Only for bus scsi.",
    )
    driver: DiskDriver | None = Field(None, description="How QEMU reads and writes the disk.")
    block_size: BlockSize | None = Field(None, description="Block sizes that the guest sees.")
    io_tune: IoTune | None = Field(None, description="Limits of the guest's reads and writes. A running guest takes an edit. Default none.")
    dedicated_io_thread: bool | None = Field(
        None, alias="dedicatedIOThread", description="A QEMU thread serves only this disk. Only for bus virtio. Default false."
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.disks``, below ``path``."""
    disks, path = hardware.defaulted(domain), path.child("devices", "disks")
    found = validate_count(disks, hardware.MAX_DISKS, path)
    for position, disk in enumerate(disks):
        found += _validate_disk(disk, path.index(position))
    found += validate_unique(disks, "name", path) + validate_unique(disks, "bootOrder", path)
    found += validate_unique([{"serial": each.get("serial") or None} for each in disks], "serial", path)
    found += validate_unique([{"wwn": (each.get("wwn") or "").lower() or None} for each in disks], "wwn", path)
    found += cloud_init.validate_single(disks, path) + service_accounts.validate_single(disks, path)
    found += network_disks.validate_unique(disks, path) + network_disks.validate_one_tls_secret(disks, path)
    found += host_disks.validate_unique(disks, path)
    return found + _validate_unique_claims(disks, path)


def _validate_disk(disk: Object, path: Path) -> list[FieldError]:
    found = validate_device_name(disk["name"], path.child("name")) + _validate_content(disk, path)
    if disk.get("dedicatedIOThread") and disk["target"]["bus"] != "virtio":
        found.append(forbidden(path.child("dedicatedIOThread"), "needs bus virtio"))
    if disk["device"] == "cdrom" and disk["target"]["bus"] == "virtio":
        found.append(not_supported(path.child("target", "bus"), "virtio", ("sata", "scsi", "usb")))
    # the bus has no read-only disks
    if disk["device"] == "disk" and disk["readOnly"] and disk["target"]["bus"] == "sata":
        found.append(not_supported(path.child("target", "bus"), "sata", ("virtio", "scsi", "usb")))
    if disk["device"] == "cdrom" and not disk["readOnly"]:
        found.append(invalid(path.child("readOnly"), disk["readOnly"], "a cdrom is always read-only"))
    elif disk.get("type") in made.MADE and not disk["readOnly"]:
        found.append(invalid(path.child("readOnly"), disk["readOnly"], f"a disk of type {disk['type']} is always read-only"))
    if hardware.is_lun(disk):
        found += _validate_lun(disk, path)
    if "bootOrder" in disk:
        found += validate_between(disk["bootOrder"], 1, hardware.MAX_DISKS, path.child("bootOrder"))
    found += (
        network_disks.validate(disk, path)
        + plugin_disks.validate(disk, path)
        + disk_sharing.validate(disk, path)
        + disk_driver.validate(disk, path)
        + disk_io_tune.validate(disk, path.child("ioTune"))
    )
    return found + _validate_identity(disk, path)


def _validate_lun(disk: Object, path: Path) -> list[FieldError]:
    found = []
    if disk.get("type") not in _LUNS:
        found.append(invalid(path.child("device"), hardware.LUN, f"needs type {' or '.join(_LUNS)}"))
    if disk["target"]["bus"] != "scsi":
        found.append(not_supported(path.child("target", "bus"), disk["target"]["bus"], ("scsi",)))
    said = sorted((disk.get("source") or {}).keys() - {"name"}) if disk.get("type") == hardware.CLAIM else []
    found += [forbidden(path.child("source", field), _OF_THE_DEVICE) for field in said]
    return found + [forbidden(path.child(field), _OF_THE_DEVICE) for field in _NOT_OF_A_LUN if disk.get(field)]


def _validate_content(disk: Object, path: Path) -> list[FieldError]:
    kind, source = disk.get("type"), disk.get("source")
    if hardware.is_empty_drive(disk):
        return [forbidden(path.child("ioTune"), "requires a medium: the drive has neither type nor source")] if disk.get("ioTune") else []
    if kind is None:
        return [required(path.child(field), _NO_MEDIUM) for field, value in (("type", kind), ("source", source)) if value is None]
    if source is None:
        return [required(path.child("source"), _needed(kind, path.child("source")))]
    return _validate_source(kind, source, path.child("source")) + _validate_overlay(disk, path.child("source"))


def _needed(kind: str, path: Path) -> str:
    missing = [each.path.removeprefix(f"{path}.") for each in _validate_source(kind, {}, path)]
    if missing:
        return f"type {kind} needs {' and '.join(f'source.{each}' for each in missing)}"
    return f"type {kind} requires a source with the fields {', '.join(sorted(_FIELDS_OF_SOURCES[kind]))}"


def _validate_identity(disk: Object, path: Path) -> list[FieldError]:
    found = []
    serial = disk.get("serial") or ""
    if len(serial) > (most := hardware.MAX_SERIAL[disk["target"]["bus"]]):
        found.append(too_long(path.child("serial"), most))
    elif not _SERIAL.fullmatch(serial):
        found.append(invalid(path.child("serial"), serial, "must consist of alphanumeric characters, '_', '.', '+' or '-'"))
    if (wwn := disk.get("wwn")) is not None:
        if disk["target"]["bus"] != "scsi":
            found.append(forbidden(path.child("wwn"), "needs bus scsi"))
        elif not hardware.WWN.fullmatch(wwn):
            found.append(invalid(path.child("wwn"), wwn, "must consist of 16 hexadecimal digits"))
    return found


def _validate_source(kind: str, source: Object, path: Path) -> list[FieldError]:
    foreign = sorted(source.keys() - _FIELDS_OF_SOURCES[kind])
    found = [forbidden(path.child(field), f"may not be set for a disk of type {kind}") for field in foreign]
    if kind == "Image":
        found += validate_image(source.get("reference") or "", path.child("reference"))
        return found + validate_path(source.get("path") or "", path.child("path"), absolute=False)
    if kind == hardware.EMPTY:
        return found if source.get("size") is not None else [*found, required(path.child("size"), "the size of the disk")]
    if kind in network_disks.FIELDS:
        return found
    if kind == HOST:
        return found + host_disks.validate_source(source, path)
    if kind == PLUGIN:
        return found + plugin_disks.validate_source(source, path)
    if kind in made.TYPES:
        return found + cloud_init.validate_source(kind, source, path)
    if kind in made.FILES:
        return found + cloud_init.validate_files(kind, source, path)
    if kind == made.SERVICE_ACCOUNT:
        return found + service_accounts.validate_source(source, path)
    if kind == made.DOWNWARD_API:
        found += downward_api.validate_items(source.get("items"), path.child("items"))
        return found + cloud_init.validate_label(source, path)
    name = source.get("name") or ""
    if not name:
        return [*found, required(path.child("name"), "the name of a PersistentVolumeClaim in the same namespace")]
    return found + [invalid(path.child("name"), name, each) for each in names.subdomain_errors(name.lower())]


def _validate_overlay(disk: Object, path: Path) -> list[FieldError]:
    source = disk["source"]
    if disk["type"] == hardware.EMPTY:
        return _validate_empty(disk, path)
    found = _validate_creation(disk, path) if disk["type"] in (hardware.CLAIM, HOST) and source.get("create") else []
    if disk["type"] == hardware.CLAIM and source.get("import") is not None:
        found += _validate_import(source, path)
    field, limit = path.child("sizeLimit"), source.get("sizeLimit")
    if limit is None or disk["type"] not in ("Image", "PersistentVolumeClaim", PLUGIN):
        return found
    if disk["type"] != PLUGIN and not hardware.is_overlaid(disk):
        is_kept = disk["type"] == "PersistentVolumeClaim" and not source.get("ephemeral")
        why = "of a claim requires ephemeral: true" if is_kept else "may not be set for a read-only disk"
        return [*found, forbidden(field, why)]
    return found + validate_bytes(limit, MIN_OVERLAY, MAX_OVERLAY, field)


def _validate_creation(disk: Object, path: Path) -> list[FieldError]:
    found = validate_bytes(disk["source"]["create"]["size"], MIN_OVERLAY, MAX_OVERLAY, path.child("create", "size"))
    if disk["readOnly"] or disk["source"].get("ephemeral"):
        found.append(forbidden(path.child("create"), "may not be set for a read-only disk: the created disk would stay blank"))
    return found


def _validate_import(source: Object, path: Path) -> list[FieldError]:
    found = disk_import.validate(source["import"], path.child("import"))
    for other in ("create", "ephemeral"):
        if source.get(other):
            found.append(forbidden(path.child(other), "may not be set together with import"))
    return found


def _validate_empty(disk: Object, path: Path) -> list[FieldError]:
    drive = disk["device"] == "cdrom"
    if drive or disk["readOnly"]:
        what = "a cdrom without a medium has neither type nor source" if drive else "the guest could not write to it"
        return [forbidden(path, f"a disk of type {disk['type']} with {'device cdrom' if drive else 'readOnly'} would stay empty: {what}")]
    size = disk["source"].get("size")
    return [] if size is None else validate_bytes(size, MIN_OVERLAY, MAX_OVERLAY, path.child("size"))


def _validate_unique_claims(disks: Sequence[Object], path: Path) -> list[FieldError]:
    seen: set[str] = set()
    found = []
    for position, disk in enumerate(disks):
        claim = str((disk.get("source") or {}).get("name") or "").lower() if disk.get("type") == "PersistentVolumeClaim" else ""
        if claim and claim in seen:
            found.append(duplicate(path.index(position).child("source", "name"), claim))
        seen.add(claim)
    return found
