"""Condition types and reasons of a VirtualMachine that several processes use.

A reason's text begins with its condition. virt-handler writes those that name no other component.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.virt.kinds import dig_vm

READY: Final = "Ready"
"""True while the guest runs and is reachable. Absent from a machine that is off by its spec."""
STALLED: Final = "Stalled"
"""Only True, by virt-controller: the last start failed, and the next needs a user's action."""
GUEST_PANICKED: Final = "GuestPanicked"
"""``Ready=False``: the guest's kernel panicked."""
PAUSED: Final = "Paused"
PAUSED_ON_REQUEST: Final = "paused on request"
"""Message of ``Paused=True`` if only a user paused."""
USER: Final = "User"
"""Reason of the same."""
GUEST_SUSPENDED: Final = "GuestSuspended"
"""``Paused=True``: the guest suspended itself to memory."""
MIGRATABLE: Final = "Migratable"
DISKS_NOT_SHARED: Final = "DisksNotShared"
"""``Migratable=False``, by virt-controller at a start: a claim is not ReadWriteMany."""
ACCESS_CREDENTIALS: Final = "AccessCredentialsSynchronized"
"""The guest agent has set the keys of ``accessCredentials``."""
FILESYSTEMS_READY: Final = "FilesystemsReady"
"""All shared file systems are served."""
FILESYSTEM_LOST: Final = "FilesystemLost"
"""``FilesystemsReady=False``; the machine must restart."""
REBOOT_LOOP: Final = "RebootLoop"
"""Once it was True: the guest rebooted many times within minutes. Ready may be True as well."""
AGENT_CONNECTED: Final = "AgentConnected"
"""The QEMU guest agent answers."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""By virt-controller: the cluster ends the machine's pod, by that pod's condition, or the kubelet did not admit it."""
EVICTION_ALLOWED: Final = "EvictionAllowed"
"""``DisruptionTarget=True``, written before kube-apiserver may evict the pod."""
NODE_LOST: Final = "NodeLost"
"""By virt-controller: the last attempt was lost with its node. False once the next has begun."""
LAUNCHER_OUTDATED: Final = "LauncherOutdated"
"""Only True, by virt-controller: the pod's virt-launcher image is not the release's."""
WILL_MIGRATE: Final = "WillMigrate"
"""``LauncherOutdated=True``."""
WILL_BE_EVICTED: Final = "WillBeEvicted"
"""``LauncherOutdated=True``: the guest restarts in another pod."""
STAYS: Final = "Stays"
"""``LauncherOutdated=True`` until a user migrates or restarts the machine."""
RESTART_REQUIRED: Final = "RestartRequired"
"""Only True, by virt-controller: the guest runs with the hardware before an edit."""
HARDWARE_DIFFERS: Final = "HardwareDiffers"
"""``RestartRequired=True``; the message names the fields."""
START_TIMEOUT: Final = "StartTimeout"
"""``Ready=False``, by virt-controller, which deletes the pod."""
NOT_PROBED: Final = "ReadinessProbeFailed"
"""``Ready=False``: the guest runs without success of ``readinessProbe``."""
LIVENESS_FAILED: Final = "LivenessProbeFailed"
"""``Ready=False``; the attempt ends."""
HANDLER_NOT_UNDERSTOOD: Final = "HandlerNotUnderstood"
"""``Ready=False``, by virt-controller: the specified node's virt-handler uses another version of the node protocol."""
LAUNCHER_NOT_UNDERSTOOD: Final = "LauncherNotUnderstood"
"""``Ready=Unknown``: virt-handler does not support virt-launcher's version. The guest continues."""
DISKS_READY: Final = "DisksReady"
DISKS_NOT_READY: Final = "DisksNotReady"
"""``Ready=False`` while ``DisksReady=False``."""
CLAIM_NOT_FOUND: Final = "ClaimNotFound"
"""``DisksReady=False``, by virt-controller."""
CLAIM_BEING_DELETED: Final = "ClaimBeingDeleted"
"""``DisksReady=False``, by virt-controller."""
CLAIM_NOT_BOUND: Final = "ClaimNotBound"
"""``DisksReady=False``, by virt-controller: no node fits the pod, and a claim is not bound."""
CLAIM_WITHOUT_DEVICE: Final = "ClaimIsFilesystem"
CLAIM_WITHOUT_FILES: Final = "ClaimIsBlock"
"""``DisksReady=False``, by virt-controller: wrong volume mode for firmware state, a file system, or an import."""
DISK_IN_USE: Final = "DiskInUse"
"""``DisksReady=False``, by virt-controller: another machine's use of a claim conflicts."""
DISK_IMAGE_NOT_FOUND: Final = "DiskImageNotFound"
"""``DisksReady=False``: a mounted claim lacks its image."""
IMPORTING: Final = "Importing"
"""``DisksReady=False``."""
IMPORT_FAILED: Final = "ImportFailed"
"""``DisksReady=False``; retried."""
CLAIM_TOO_SMALL: Final = "ClaimTooSmall"
"""``DisksReady=False``: a claim has too little room for a blank disk."""
DISK_SERVER_SILENT: Final = "DiskServerSilent"
"""``DisksReady=False``: a disk's server does not answer. A start waits."""
DISK_FULL: Final = "DiskFull"
"""``DisksReady=False``, or ``Paused=True`` if the guest stopped: a disk's storage is full."""
DISK_FAILS: Final = "DiskIOError"
"""``DisksReady=False``: a disk has other errors, and the guest continues."""
DISK_NOT_USABLE: Final = "DiskNotUsable"
"""``DisksReady=False`` and an Event: a file or device of the node is unusable; retried."""
DISK_NOT_ANSWERING: Final = "DiskNotAnswering"
"""``DisksReady=False`` and an Event: a mounted volume does not answer."""
NOT_FOUND_OF: Final[Mapping[str, str]] = {"Secret": "SecretNotFound", "ConfigMap": "ConfigMapNotFound"}
"""``DisksReady=False``, by virt-controller: the pod waits for this object or one of its keys."""
DISKS_FOUND: Final = "Found"
NETWORK_READY: Final = "NetworkReady"
"""False if virt-handler could not set up the pod's network, True when it could; earlier by virt-controller."""
NETWORK_NOT_READY: Final = "NetworkNotReady"
"""``NetworkReady=False`` and an Event; retried."""
NETWORK_NOT_SUPPORTED: Final = "NetworkNotSupported"
"""``NetworkReady=False`` and an Event: the requested network is impossible."""
PLUGIN_FAILED: Final = "PluginFailed"
"""``NetworkReady=False`` or ``DisksReady=False``: a plugin failed, or its result is invalid; retried."""
PLUGIN_TIMED_OUT: Final = "PluginTimedOut"
"""``NetworkReady=False`` or ``DisksReady=False``."""
PLUGIN_NOT_FOUND: Final = "PluginNotFound"
"""``NetworkReady=False`` or ``DisksReady=False``: the node lacks the plugin."""
DISK_NOT_SUPPORTED: Final = "DiskNotSupported"
"""``Ready=False``: a disk's plugin does not support the request."""
NETWORK_NOT_FOUND: Final = "NetworkNotFound"
"""``NetworkReady=False`` and ``Ready=False``, by virt-controller: a NetworkAttachmentDefinition does not exist."""
NETWORK_NOT_USABLE: Final = "NetworkNotUsable"
"""The same: it is invalid, or the node's plugins refuse it."""

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
    NODE_LOST,
    LAUNCHER_OUTDATED,
    RESTART_REQUIRED,
)
OF_A_GUEST: Final = (PAUSED, MIGRATABLE, NETWORK_READY, AGENT_CONNECTED, ACCESS_CREDENTIALS, FILESYSTEMS_READY, REBOOT_LOOP)
"""Removed at the guest's end."""


def paused(message: str) -> str:
    """Return ``paused: MESSAGE`` for the message of the condition Paused; ``paused`` if empty; :data:`PAUSED_ON_REQUEST` unchanged."""
    if message == PAUSED_ON_REQUEST:
        return message
    return f"paused: {message}" if message else "paused"


class Wait(enum.Enum):
    """The obstacle that a machine waits for, by its conditions."""

    IMAGE = "image"
    """A disk's image is missing or being imported, its claim lacks room, or its server or plugin does not answer."""
    SOURCE = "source"
    """The kubelet does not find a Secret or ConfigMap."""
    STORAGE = "storage"
    """Another machine uses a claim, or it is another kind of storage."""
    VOLUME = "volume"
    """A claim is not bound."""
    NETWORK = "network"
    """A NetworkAttachmentDefinition is missing or unusable, or the node's plugins refuse the network."""
    NETWORK_PLUGIN = "network plugin"
    """A plugin that sets up an interface."""


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
"""Causes by type and reason of a False condition. With other reasons, the machine waits for its pod."""


def false_condition(vm: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the machine's condition of this type if False, else None."""
    found = objects.condition(dig_vm(vm, "status", "conditions"), kind)
    return found if found is not None and found.get("status") == "False" else None


def was_stopped_by_a_fault(found: list[dict[str, Any]] | None) -> bool:
    """Return whether, by these conditions, the guest is paused for another reason than the verb ``pause``."""
    paused = objects.condition(found, PAUSED) or {}
    return paused.get("status") == "True" and paused.get("reason") != USER


def waits_for(vm: Mapping[str, Any]) -> frozenset[Wait]:
    """Return what a machine waits for among the ``Wait``s, by its conditions: at most one each for disks and networks.

    With other reasons it waits for its pod.
    """
    lacking = ((by_reason, false_condition(vm, kind)) for kind, by_reason in _WAITS.items())
    found = (by_reason.get(str(each.get("reason"))) for by_reason, each in lacking if each is not None)
    return frozenset(each for each in found if each is not None)
