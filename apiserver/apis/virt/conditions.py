"""Types and reasons of a VirtualMachine's conditions that more than one process reads or writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import objects

READY: Final = "Ready"
GUEST_PANICKED: Final = "GuestPanicked"
"""Reason of Ready=False, by virt-handler: the attempt ended because the guest's kernel did."""
PAUSED: Final = "Paused"
PAUSED_ON_REQUEST: Final = "paused on request"
"""Message of Paused=True, by virt-handler, where the verb was called and nothing else stands in the way of the guest."""
MIGRATABLE: Final = "Migratable"
ACCESS_CREDENTIALS: Final = "AccessCredentialsSynchronized"
"""By virt-handler, of a machine whose ``accessCredentials`` the guest agent sets: the guest has what the Secrets have."""
FILESYSTEMS_READY: Final = "FilesystemsReady"
"""By virt-handler, of a machine with shared file systems whose guest runs: each has a process that serves it."""
FILESYSTEM_LOST: Final = "FilesystemLost"
"""Reason of FilesystemsReady=False: such a process ended, and only a restart of the machine brings another."""
AGENT_CONNECTED: Final = "AgentConnected"
"""By virt-handler: the QEMU guest agent runs in the guest and answers."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""By virt-controller: something in the cluster ends the machine's pod on purpose, as the pod's condition of this name says."""
START_TIMEOUT: Final = "StartTimeout"
"""Reason of Ready=False, by virt-controller: it deletes the pod, because the guest did not run in time."""
DISKS_READY: Final = "DisksReady"
DISKS_NOT_READY: Final = "DisksNotReady"
"""Reason of Ready=False while DisksReady is False."""
CLAIM_NOT_FOUND: Final = "ClaimNotFound"
"""Reason of DisksReady=False, by virt-controller: a PersistentVolumeClaim does not exist yet."""
CLAIM_WITHOUT_DEVICE: Final = "ClaimIsFilesystem"
CLAIM_WITHOUT_FILES: Final = "ClaimIsBlock"
"""Reason of DisksReady=False, by virt-controller: the claim for the firmware's state, for a file system, or for an import, has none."""
DISK_IN_USE: Final = "DiskInUse"
"""Reason of DisksReady=False, by virt-controller: a machine that is on has one of the claims, and the two may not have it at once."""
DISK_IMAGE_NOT_FOUND: Final = "DiskImageNotFound"
"""Reason of DisksReady=False, by virt-handler: the claim is mounted, and whoever fills it has not made its image yet."""
IMPORTING: Final = "Importing"
"""Reason of DisksReady=False, by virt-handler: the image of a disk is imported into its claim."""
IMPORT_FAILED: Final = "ImportFailed"
"""Reason of DisksReady=False, by virt-handler: that did not succeed, and is tried again."""
CLAIM_TOO_SMALL: Final = "ClaimTooSmall"
"""Reason of DisksReady=False, by virt-handler: a claim has too little room for the blank disk that is to be created in it."""
DISK_SERVER_SILENT: Final = "DiskServerSilent"
"""Reason of DisksReady=False, by virt-handler: the server of a disk does not answer; before the start the pod waits for it."""
NOT_FOUND_OF: Final[Mapping[str, str]] = {"Secret": "SecretNotFound", "ConfigMap": "ConfigMapNotFound"}
"""Reasons of DisksReady=False by what the kubelet misses, by virt-controller: the pod waits for it, or for a key of it."""
DISKS_FOUND: Final = "Found"
NETWORK_READY: Final = "NetworkReady"
"""By virt-handler, where the network of the guest's pod could not be set up, and True once it could; by virt-controller before."""
NETWORK_NOT_READY: Final = "NetworkNotReady"
"""Reason of NetworkReady=False while it is tried again, and of an Event."""
NETWORK_NOT_SUPPORTED: Final = "NetworkNotSupported"
"""Reason of NetworkReady=False where it cannot be as the machine asks, and of an Event."""
NETWORK_NOT_FOUND: Final = "NetworkNotFound"
"""Reason of NetworkReady=False and of Ready=False, by virt-controller: a NetworkAttachmentDefinition does not exist."""

TYPES: Final = (
    READY,
    PAUSED,
    DISKS_READY,
    FILESYSTEMS_READY,
    NETWORK_READY,
    MIGRATABLE,
    AGENT_CONNECTED,
    ACCESS_CREDENTIALS,
    DISRUPTION_TARGET,
)
"""Types that a VirtualMachine's conditions may have."""


def paused(message: str) -> str:
    """Return "paused" with the message of Paused=True, to stand after "is"."""
    if message == PAUSED_ON_REQUEST:
        return message
    return f"paused: {message}" if message else "paused"


_OF_IMAGES: Final = frozenset({DISK_IMAGE_NOT_FOUND, CLAIM_TOO_SMALL, IMPORTING, IMPORT_FAILED, DISK_SERVER_SILENT})


def waits_for_image(vm: Mapping[str, Any]) -> bool:
    """Whether the pod of a machine waits for the image of a disk to appear or be imported, for room for it, or for a disk's server."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), DISKS_READY)
    return found is not None and found.get("status") == "False" and found.get("reason") in _OF_IMAGES


def waits_for_network(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine waits for a NetworkAttachmentDefinition."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), NETWORK_READY)
    return found is not None and found.get("status") == "False" and found.get("reason") == NETWORK_NOT_FOUND


def waits_for_source(vm: Mapping[str, Any]) -> bool:
    """Return whether the pod of a machine waits for a Secret or ConfigMap."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), DISKS_READY)
    return found is not None and found.get("status") == "False" and found.get("reason") in NOT_FOUND_OF.values()


def waits_for_claim(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine waits until another one has given up a claim."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), DISKS_READY)
    return found is not None and found.get("status") == "False" and found.get("reason") == DISK_IN_USE
