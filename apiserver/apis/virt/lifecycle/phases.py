"""Phases: a summary of a status for users, and the allowed transitions.

::

    Pending ─▶ Scheduling ─▶ Scheduled ─▶ Running ─▶ Stopping ─▶ Stopped | Succeeded | Failed | Suspended
       ▲            ▲            └──────────┴───▶ Unknown (the node does not report) ──▶ back, or an end
       └────────────┴──── a new attempt ◀──── Stopped | Succeeded | Failed | Suspended

virt-api enforces only that a Migration's final phase stays, because a lock depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions

PENDING: Final = "Pending"
"""Something is missing, such as a claim or a place in the queue."""
SCHEDULING: Final = "Scheduling"
"""The attempt's pod was created."""
SCHEDULED: Final = "Scheduled"
"""The pod runs on ``status.nodeName``; that node's virt-handler writes the phase."""
RUNNING: Final = "Running"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"
"""Off on request."""
SUCCEEDED: Final = "Succeeded"
"""The guest powered itself off."""
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
"""Off, with the guest's memory in ``status.managedSave``."""
UNKNOWN: Final = "Unknown"
"""Neither kubelet nor virt-handler of the node reports."""

ENDED: Final = frozenset({STOPPED, SUCCEEDED, FAILED, SUSPENDED})
"""The last attempt has neither domain nor pod."""
OWNED_BY_HANDLER: Final = frozenset({SCHEDULED, RUNNING, STOPPING})
"""virt-handler decides which phase follows."""
HANDLED: Final = OWNED_BY_HANDLER | {UNKNOWN}
"""virt-handler may replace its own phases, and virt-controller's for an unreachable node."""
OF_A_PLACE: Final = (
    "nodeName",
    "podIP",
    "domain",
    "interfaces",
    "guest",
    "fsFreezeStatus",
    "graphics",
    "vsock",
    "imports",
    "devices",
    "changes",
    "volumeStatus",
    "podResize",
    "running",
)
"""Status fields removed at the guest's end.

``podName`` stays for the log of a failed attempt's pod, ``podUID`` because no attempt begins before that pod is over.
"""
WITH_POD: Final = frozenset({SCHEDULING, SCHEDULED, RUNNING, STOPPING, UNKNOWN})
WITH_GUEST: Final = WITH_POD - {SCHEDULING}
"""A guest may have started, so an edit of its hardware leaves the running form as it is."""

PREPARING_TARGET: Final = "PreparingTarget"
TARGET_READY: Final = "TargetReady"
CANCELLED: Final = "Cancelled"

VM_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "": frozenset({PENDING, SCHEDULING, STOPPED}),
        PENDING: frozenset({SCHEDULING, STOPPED, FAILED}),
        SCHEDULING: frozenset({PENDING, SCHEDULED, STOPPING, STOPPED, FAILED}),
        SCHEDULED: frozenset({RUNNING, STOPPING, STOPPED, SUCCEEDED, FAILED, UNKNOWN}),
        RUNNING: frozenset({STOPPING, STOPPED, SUCCEEDED, FAILED, SUSPENDED, UNKNOWN}),
        STOPPING: frozenset({STOPPED, SUCCEEDED, FAILED, UNKNOWN}),
        UNKNOWN: frozenset({SCHEDULED, RUNNING, STOPPING, STOPPED, SUCCEEDED, FAILED, SUSPENDED}),
        STOPPED: frozenset({PENDING, SCHEDULING}),
        SUCCEEDED: frozenset({PENDING, SCHEDULING, STOPPED}),
        FAILED: frozenset({PENDING, SCHEDULING, STOPPED}),
        SUSPENDED: frozenset({PENDING, SCHEDULING, STOPPED}),
    }
)
"""``""``: no status. Staying in a phase is always allowed."""

MIGRATION_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "": frozenset({PENDING, SCHEDULING, FAILED, CANCELLED}),
        PENDING: frozenset({SCHEDULING, FAILED, CANCELLED}),
        SCHEDULING: frozenset({PENDING, PREPARING_TARGET, FAILED, CANCELLED}),
        PREPARING_TARGET: frozenset({PENDING, TARGET_READY, FAILED, CANCELLED}),
        TARGET_READY: frozenset({PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED}),
        RUNNING: frozenset({PENDING, SUCCEEDED, FAILED, CANCELLED}),
        SUCCEEDED: frozenset(),
        FAILED: frozenset(),
        CANCELLED: frozenset(),
    }
)
"""Final phases stay, because the lock on the machine was released.

``Pending`` after a later phase begins another attempt.
"""

MIGRATION_FINAL: Final = frozenset({SUCCEEDED, FAILED, CANCELLED})

VM_PHASES: Final = tuple(phase for phase in VM_TRANSITIONS if phase)
MIGRATION_PHASES: Final = tuple(phase for phase in MIGRATION_TRANSITIONS if phase)

MAX_TIMESTAMPS: Final = 20


def phase_of(obj: Mapping[str, Any]) -> str:
    """Return ``status.phase``, or ""."""
    return str(objects.dig(obj, "status", "phase") or "")


def keeps_guest(vm: Mapping[str, Any]) -> bool:
    """Return whether a machine may have a guest or a saved image, and so keeps hardware and disks."""
    return phase_of(vm) in WITH_GUEST or dig_vm(vm, "status", "managedSave") is not None


def is_unfinished(migration: Mapping[str, Any]) -> bool:
    """Return whether a Migration's phase is not final: it may still move its machine."""
    return phase_of(migration) not in MIGRATION_FINAL


def without_guest(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a machine's status without its guest's fields and conditions.

    ``DisksReady`` goes while the machine waits for disks; that of a failed disk stays.
    """
    waits_for_disks = conditions.waits_for({"status": status}) & conditions.WAITS_FOR_DISKS
    gone = (*conditions.OF_A_GUEST, conditions.RESTART_REQUIRED, *((conditions.DISKS_READY,) if waits_for_disks else ()))
    kept = {key: value for key, value in status.items() if key not in OF_A_PLACE}
    return {**kept, "conditions": [dict(each) for each in status.get("conditions") or () if each.get("type") not in gone]}


def enter(status: Mapping[str, Any], phase: str, now: datetime) -> dict[str, Any]:
    """Return ``status`` with ``phase`` and its time; unchanged if already in it.

    ``Pending`` or ``Scheduling`` after an end restarts ``phaseTransitionTimestamps``.
    """
    old = str(status.get("phase") or "")
    if old == phase:
        return dict(status)
    earlier = [] if old in ENDED and phase not in ENDED else list(status.get("phaseTransitionTimestamps") or [])
    entry = {"phase": phase, "time": times.to_rfc3339_micro(now)}
    return {**status, "phase": phase, "phaseTransitionTimestamps": [*earlier, entry][-MAX_TIMESTAMPS:]}
