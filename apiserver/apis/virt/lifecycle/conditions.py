"""Types and reasons of a VirtualMachine's conditions that more than one process reads or writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import objects

READY: Final = "Ready"
"""True while the guest runs and can be reached. A machine that is off as its spec says lacks the condition."""
STALLED: Final = "Stalled"
"""Set by virt-controller, only to True: the last start failed, and virt-controller starts the machine only after a user acts."""
GUEST_PANICKED: Final = "GuestPanicked"
"""Reason of Ready=False, by virt-handler: the attempt ended because the guest's kernel did."""
PAUSED: Final = "Paused"
PAUSED_ON_REQUEST: Final = "paused on request"
"""Message of Paused=True, by virt-handler, where the verb was called and nothing else stands in the way of the guest."""
MIGRATABLE: Final = "Migratable"
DISKS_NOT_SHARED: Final = "DisksNotShared"
"""Reason of Migratable=False, by virt-controller at the start of an attempt: a PersistentVolumeClaim is not ReadWriteMany."""
ACCESS_CREDENTIALS: Final = "AccessCredentialsSynchronized"
"""By virt-handler, of a machine whose ``accessCredentials`` the guest agent sets: the guest has what the Secrets have."""
FILESYSTEMS_READY: Final = "FilesystemsReady"
"""By virt-handler, of a machine with shared file systems whose guest runs: each has a process that serves it."""
FILESYSTEM_LOST: Final = "FilesystemLost"
"""Reason of FilesystemsReady=False: such a process ended, and only a restart of the machine brings another."""
REBOOT_LOOP: Final = "RebootLoop"
"""By virt-handler, from the first time that it is True: the guest rebooted many times within minutes; Ready may be True all the same."""
AGENT_CONNECTED: Final = "AgentConnected"
"""By virt-handler: the QEMU guest agent runs in the guest and answers."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""By virt-controller: the cluster ends the machine's pod, as the pod's condition of this name says, or its kubelet did not admit it."""
EVICTION_ALLOWED: Final = "EvictionAllowed"
"""Reason of DisruptionTarget=True, written by virt-controller before kube-apiserver may evict the pod, which it then says by itself."""
LAUNCHER_OUTDATED: Final = "LauncherOutdated"
"""By virt-controller, only while it is True: the image of virt-launcher in the machine's pod is not that of the release."""
WILL_MIGRATE: Final = "WillMigrate"
"""Reason of LauncherOutdated=True: virt-controller moves the guest into a pod of the release."""
WILL_BE_EVICTED: Final = "WillBeEvicted"
"""The same: virt-controller has the pod evicted; the guest shuts down, and starts again in a pod of the release."""
STAYS: Final = "Stays"
"""The same: nothing is done about it, until somebody migrates or restarts the machine."""
START_TIMEOUT: Final = "StartTimeout"
"""Reason of Ready=False, by virt-controller: it deletes the pod, because the guest did not run in time."""
NOT_PROBED: Final = "ReadinessProbeFailed"
"""Reason of Ready=False, by virt-handler: the guest runs, and ``readinessProbe`` has not succeeded so far, or does not any more."""
LIVENESS_FAILED: Final = "LivenessProbeFailed"
"""Reason of Ready=False, by virt-handler: it ends the attempt, because ``livenessProbe`` failed."""
HANDLER_NOT_UNDERSTOOD: Final = "HandlerNotUnderstood"
"""Reason of Ready=False, by virt-controller: virt-handler of the node that the spec names speaks another contract."""
LAUNCHER_NOT_UNDERSTOOD: Final = "LauncherNotUnderstood"
"""Reason of Ready=Unknown, by virt-handler: it speaks no version of virt-launcher's wire; the guest, if there is one, goes on."""
DISKS_READY: Final = "DisksReady"
DISKS_NOT_READY: Final = "DisksNotReady"
"""Reason of Ready=False while DisksReady is False."""
CLAIM_NOT_FOUND: Final = "ClaimNotFound"
"""Reason of DisksReady=False, by virt-controller: a PersistentVolumeClaim does not exist yet."""
CLAIM_BEING_DELETED: Final = "ClaimBeingDeleted"
"""Reason of DisksReady=False, by virt-controller: a PersistentVolumeClaim is going away, and stays as long as anybody uses it."""
CLAIM_NOT_BOUND: Final = "ClaimNotBound"
"""Reason of DisksReady=False, by virt-controller: no node takes the pod, and a PersistentVolumeClaim has no volume."""
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
DISK_FULL: Final = "DiskFull"
"""Reason of Paused=True, and of DisksReady=False where the guest goes on, by virt-handler: the storage of a disk has no room left."""
DISK_FAILS: Final = "DiskIOError"
"""Reason of DisksReady=False, by virt-handler: reading or writing a disk fails for another reason, and the guest goes on."""
DISK_NOT_USABLE: Final = "DiskNotUsable"
"""Reason of DisksReady=False, and of an Event, by virt-handler: a file or device of the node cannot be the disk; it is tried again."""
DISK_NOT_ANSWERING: Final = "DiskNotAnswering"
"""The same: what is mounted in the pod for a disk does not answer."""
NOT_FOUND_OF: Final[Mapping[str, str]] = {"Secret": "SecretNotFound", "ConfigMap": "ConfigMapNotFound"}
"""Reasons of DisksReady=False by what the kubelet misses, by virt-controller: the pod waits for it, or for a key of it."""
DISKS_FOUND: Final = "Found"
NETWORK_READY: Final = "NetworkReady"
"""By virt-handler, where the network of the guest's pod could not be set up, and True once it could; by virt-controller before."""
NETWORK_NOT_READY: Final = "NetworkNotReady"
"""Reason of NetworkReady=False while it is tried again, and of an Event."""
NETWORK_NOT_SUPPORTED: Final = "NetworkNotSupported"
"""Reason of NetworkReady=False where it cannot be as the machine asks, and of an Event."""
PLUGIN_FAILED: Final = "PluginFailed"
"""Reason of NetworkReady=False or DisksReady=False, by virt-handler: a plugin said an error, or what none may say; it is asked again."""
PLUGIN_TIMED_OUT: Final = "PluginTimedOut"
"""The same: it took too long, and was ended."""
PLUGIN_NOT_FOUND: Final = "PluginNotFound"
"""The same: the node does not have it."""
DISK_NOT_SUPPORTED: Final = "DiskNotSupported"
"""Reason of Ready=False, by virt-handler: the plugin of a disk says that it cannot be as the machine asks."""
NETWORK_NOT_FOUND: Final = "NetworkNotFound"
"""Reason of NetworkReady=False and of Ready=False, by virt-controller: a NetworkAttachmentDefinition does not exist."""
NETWORK_NOT_USABLE: Final = "NetworkNotUsable"
"""Reason of the same, by virt-controller: what a NetworkAttachmentDefinition says is no network, or the node's plugins refuse it."""

TYPES: Final = (
    READY,
    STALLED,
    PAUSED,
    DISKS_READY,
    FILESYSTEMS_READY,
    NETWORK_READY,
    MIGRATABLE,
    AGENT_CONNECTED,
    REBOOT_LOOP,
    ACCESS_CREDENTIALS,
    DISRUPTION_TARGET,
    LAUNCHER_OUTDATED,
)
"""Types that a VirtualMachine's conditions may have."""
OF_A_GUEST: Final = (PAUSED, MIGRATABLE, NETWORK_READY, AGENT_CONNECTED, ACCESS_CREDENTIALS, FILESYSTEMS_READY, REBOOT_LOOP)
"""Types of those that tell of a guest: an end takes them away."""


def paused(message: str) -> str:
    """Return "paused" with the message of Paused=True, to stand after "is"."""
    if message == PAUSED_ON_REQUEST:
        return message
    return f"paused: {message}" if message else "paused"


_OF_PLUGINS: Final = frozenset({PLUGIN_FAILED, PLUGIN_TIMED_OUT, PLUGIN_NOT_FOUND})
_OF_IMAGES: Final = frozenset({DISK_IMAGE_NOT_FOUND, CLAIM_TOO_SMALL, IMPORTING, IMPORT_FAILED, DISK_SERVER_SILENT}) | _OF_PLUGINS


def found_false(vm: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of this type of a machine if it is False."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), kind)
    return found if found is not None and found.get("status") == "False" else None


def waits_for_disks(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine, or its pod, waits for something of its disks, whoever looks for it."""
    return any(waits(vm) for waits in (waits_for_image, waits_for_source, waits_for_claim, waits_for_volume))


def waits_for_image(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine's pod waits for the image of a disk to appear or be imported, for room for it, or for a server or plugin."""
    found = found_false(vm, DISKS_READY)
    return found is not None and found.get("reason") in _OF_IMAGES


def waits_for_network_plugin(vm: Mapping[str, Any]) -> bool:
    """Return whether the pod of a machine waits for a plugin of the node that sets up an interface."""
    found = found_false(vm, NETWORK_READY)
    return found is not None and found.get("reason") in _OF_PLUGINS


def waits_for_network(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine waits for a NetworkAttachmentDefinition, or until what it says is mended."""
    found = found_false(vm, NETWORK_READY)
    return found is not None and found.get("reason") in (NETWORK_NOT_FOUND, NETWORK_NOT_USABLE)


def waits_for_source(vm: Mapping[str, Any]) -> bool:
    """Return whether the pod of a machine waits for a Secret or ConfigMap."""
    found = found_false(vm, DISKS_READY)
    return found is not None and found.get("reason") in NOT_FOUND_OF.values()


def waits_for_volume(vm: Mapping[str, Any]) -> bool:
    """Return whether the pod of a machine waits for the volume of a claim."""
    found = found_false(vm, DISKS_READY)
    return found is not None and found.get("reason") == CLAIM_NOT_BOUND


def waits_for_claim(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine waits until another one has given up a claim."""
    found = found_false(vm, DISKS_READY)
    return found is not None and found.get("reason") == DISK_IN_USE
