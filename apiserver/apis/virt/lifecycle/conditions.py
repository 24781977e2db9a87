"""Types and reasons of a VirtualMachine's conditions that more than one process reads or writes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
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
USER: Final = "User"
"""Reason of the same."""
GUEST_SUSPENDED: Final = "GuestSuspended"
"""Reason of Paused=True, by virt-handler: the guest suspended itself to memory."""
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
RESTART_REQUIRED: Final = "RestartRequired"
"""By virt-controller, only while it is True: the spec was edited, and the guest runs with the hardware from before until it ends."""
HARDWARE_DIFFERS: Final = "HardwareDiffers"
"""Reason of RestartRequired=True; the message names the fields."""
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
    RESTART_REQUIRED,
)
"""Types that a VirtualMachine's conditions may have."""
OF_A_GUEST: Final = (PAUSED, MIGRATABLE, NETWORK_READY, AGENT_CONNECTED, ACCESS_CREDENTIALS, FILESYSTEMS_READY, REBOOT_LOOP)
"""Types of those that tell of a guest: an end takes them away."""


def paused(message: str) -> str:
    """Return "paused" with the message of Paused=True, to stand after "is"."""
    if message == PAUSED_ON_REQUEST:
        return message
    return f"paused: {message}" if message else "paused"


class Wait(enum.Enum):
    """What a machine, or its pod, waits for. Conditions that are False say it with their reasons."""

    IMAGE = "image"
    """A disk's image has to appear or to be imported, or a claim lacks room for it, or the disk's server or plugin does not answer."""
    SOURCE = "source"
    """The kubelet does not find a Secret or ConfigMap."""
    STORAGE = "storage"
    """Another machine uses a claim, or another kind of storage."""
    VOLUME = "volume"
    """A claim has no volume."""
    NETWORK = "network"
    """A NetworkAttachmentDefinition does not exist or is not usable, or the node's plugins refuse the network."""
    NETWORK_PLUGIN = "network plugin"
    """virt-handler waits for a plugin that sets up an interface."""


WAITS_FOR_DISKS: Final = frozenset({Wait.IMAGE, Wait.SOURCE, Wait.STORAGE, Wait.VOLUME})
_OF_PLUGINS: Final = (PLUGIN_FAILED, PLUGIN_TIMED_OUT, PLUGIN_NOT_FOUND)
_OF_IMAGES: Final = (DISK_IMAGE_NOT_FOUND, CLAIM_TOO_SMALL, IMPORTING, IMPORT_FAILED, DISK_SERVER_SILENT, *_OF_PLUGINS)
_WAITS: Final[Mapping[str, Mapping[str, Wait]]] = MappingProxyType(
    {
        DISKS_READY: MappingProxyType(
            {
                **dict.fromkeys(_OF_IMAGES, Wait.IMAGE),
                **dict.fromkeys(NOT_FOUND_OF.values(), Wait.SOURCE),
                DISK_IN_USE: Wait.STORAGE,
                CLAIM_NOT_BOUND: Wait.VOLUME,
            }
        ),
        NETWORK_READY: MappingProxyType(
            {**dict.fromkeys((NETWORK_NOT_FOUND, NETWORK_NOT_USABLE), Wait.NETWORK), **dict.fromkeys(_OF_PLUGINS, Wait.NETWORK_PLUGIN)}
        ),
    }
)
"""By the type and the reason of a condition that is False. A machine that waits for another reason has no pod yet."""


def found_false(vm: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of this type of a machine if it is False."""
    found = objects.condition(objects.dig(vm, "status", "conditions"), kind)
    return found if found is not None and found.get("status") == "False" else None


def was_stopped_by_a_fault(found: list[dict[str, Any]] | None) -> bool:
    """Return whether the guest stands still for another reason than the verb ``pause``."""
    paused = objects.condition(found, PAUSED) or {}
    return paused.get("status") == "True" and paused.get("reason") != USER


def waits_for(vm: Mapping[str, Any]) -> frozenset[Wait]:
    """Return what a machine or its pod waits for: at most one of the disks' waits, and one of the networks'."""
    lacking = ((by_reason, found_false(vm, kind)) for kind, by_reason in _WAITS.items())
    found = (by_reason.get(str(each.get("reason"))) for by_reason, each in lacking if each is not None)
    return frozenset(each for each in found if each is not None)
