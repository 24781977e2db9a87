"""Fields of KubeVirt's manifests with their names here, for hints in errors."""

from __future__ import annotations

import re
from typing import Final

PAGE: Final = "docs/coming-from-kubevirt.md"
_SELECTOR: Final = re.compile(r"\[[^\]]*\]")
_DISKS: Final = "spec.domain.devices.disks"
_VOLUMES: Final = {
    "persistentVolumeClaim": "type: PersistentVolumeClaim, with source.name",
    "claimName": "source.name",
    "dataVolume": "type: PersistentVolumeClaim, with source.name, and source.import or source.create",
    "containerDisk": "type: Image, with source.reference",
    "emptyDisk": "type: EmptyDisk, with source.size",
    "hostDisk": "type: HostDisk, with source.path",
    "ephemeral": "type: PersistentVolumeClaim, with source.ephemeral: true",
    "cloudInitNoCloud": "type: CloudInitNoCloud, with source",
    "cloudInitConfigDrive": "type: CloudInitConfigDrive, with source",
    "sysprep": "type: Secret or ConfigMap, with source.volumeLabel",
    "configMap": "type: ConfigMap, with source.name",
    "secret": "type: Secret, with source.name",
    "serviceAccount": "type: ServiceAccount, with source.name",
    "downwardAPI": "type: DownwardAPI, with source.items",
}
"""The disk's source that replaces each KubeVirt volume source."""
_NAMES: Final = {
    "spec.running": "spec.runStrategy",
    "spec.template": "its fields in spec itself, such as spec.domain",
    "spec.volumes": f"type and source of each of {_DISKS}",
    "spec.networks": "network of each of spec.domain.devices.interfaces",
    "spec.dataVolumeTemplates": f"source.import or source.create of a disk in {_DISKS}",
    "spec.instancetype": "spec.domain, because instance types do not exist",
    "spec.preference": "spec.domain, because preferences do not exist",
    "spec.vmiName": "spec.selector.name",
    "spec.bandwidthPerMigration": "spec.bandwidth",
    "spec.allowWorkloadDisruption": "spec.allowPause",
    "spec.selectors.virtualMachineInstanceSelector": "spec.selectors.virtualMachineSelector, with matchLabels",
    **{f"{_DISKS}.{each}": f"device: {each}, with target.bus" for each in ("disk", "cdrom", "lun")},
    **{f"{_DISKS}.{each}": instead for each, instead in _VOLUMES.items()},
    **{f"{_DISKS}.source.{each}": instead for each, instead in _VOLUMES.items()},
    f"{_DISKS}.source.image": "source.reference",
    "spec.domain.devices.filesystems.virtiofs": "type and source",
    "spec.domain.devices.filesystems.source.claimName": "source.name",
    **{f"spec.domain.devices.interfaces.{each}": f"type: {each}" for each in ("masquerade", "bridge", "sriov", "macvtap", "passt")},
    "spec.domain.devices.interfaces.binding": "type: passt, or type: plugin with plugin",
    "spec.domain.devices.interfaces.macAddress": "mac",
    "spec.domain.devices.interfaces.multus": "network",
}
"""Replacements by path, without indexes."""
_VALUES: Final = {("spec.evictionStrategy", "None"): "Shutdown"}


def hint(field: str, value: object = None) -> str:
    """Return a hint that names the replacement of a KubeVirt field or value, or ""."""
    path = _SELECTOR.sub("", field)
    instead = _NAMES.get(path) or (_VALUES.get((path, value), "") if isinstance(value, str) else "")
    return f"this is a KubeVirt field; use {instead} ({PAGE})" if instead else ""
