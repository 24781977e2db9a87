"""Phases: a summary of status for people, and which phase may follow which.

::

    Pending ─▶ Scheduling ─▶ Scheduled ─▶ Running ─▶ Stopping ─▶ Stopped | Succeeded | Failed
       ▲            ▲            └──────────┴───▶ Unknown (the node does not report) ──▶ back, or an end
       └────────────┴──── a new attempt ◀──── Stopped | Succeeded | Failed

The tables are for the writers (virt-controller, virt-handler) and their tests. virt-api enforces of them only what a lock hangs on:
a Migration that reached a final phase stays there. What a writer saw too late is stopped by its resourceVersion, not by a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.lifecycle import conditions

PENDING: Final = "Pending"
"""Nothing runs because something is missing: a claim, a slot."""
SCHEDULING: Final = "Scheduling"
"""The attempt's pod was created."""
SCHEDULED: Final = "Scheduled"
"""The pod runs on ``status.nodeName``; from here on virt-handler of that node writes the phase."""
RUNNING: Final = "Running"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"
"""Off because it was asked to be."""
SUCCEEDED: Final = "Succeeded"
"""The guest powered off by itself."""
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
"""Neither kubelet nor virt-handler of the node reports."""

ENDED: Final = frozenset({STOPPED, SUCCEEDED, FAILED})
"""No domain and no pod of the last attempt; a new attempt may follow."""
OWNED_BY_HANDLER: Final = frozenset({SCHEDULED, RUNNING, STOPPING})
"""virt-handler of ``status.nodeName`` decides what comes next."""
HANDLED: Final = OWNED_BY_HANDLER | {UNKNOWN}
"""virt-handler of ``status.nodeName`` may follow them with another phase: its own, and what virt-controller wrote of a silent node."""
OF_A_PLACE: Final = ("nodeName", "podIP", "domain", "interfaces", "guest", "graphics", "vsock", "imports", "devices", "running")
"""Fields of a VirtualMachine's status that say where and as what its guest runs: an end takes them away. ``podName`` stays, because the
log of a failed attempt's pod says why, and ``podUID``, because no further attempt begins before this very pod is over; where earlier
attempts were is in ``attempts``."""
WITH_POD: Final = frozenset({SCHEDULING, SCHEDULED, RUNNING, STOPPING, UNKNOWN})
WITH_GUEST: Final = WITH_POD - {SCHEDULING}
"""A guest may have been started; while there is none, the spec is as free as that of a machine that is off."""

PREPARING_TARGET: Final = "PreparingTarget"
TARGET_READY: Final = "TargetReady"
CANCELLED: Final = "Cancelled"

VM_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "": frozenset({PENDING, SCHEDULING, STOPPED}),
        PENDING: frozenset({SCHEDULING, STOPPED, FAILED}),
        SCHEDULING: frozenset({PENDING, SCHEDULED, STOPPING, STOPPED, FAILED}),
        SCHEDULED: frozenset({RUNNING, STOPPING, STOPPED, SUCCEEDED, FAILED, UNKNOWN}),
        RUNNING: frozenset({STOPPING, STOPPED, SUCCEEDED, FAILED, UNKNOWN}),
        STOPPING: frozenset({STOPPED, SUCCEEDED, FAILED, UNKNOWN}),
        UNKNOWN: frozenset({SCHEDULED, RUNNING, STOPPING, STOPPED, SUCCEEDED, FAILED}),
        STOPPED: frozenset({PENDING, SCHEDULING}),
        SUCCEEDED: frozenset({PENDING, SCHEDULING, STOPPED}),
        FAILED: frozenset({PENDING, SCHEDULING, STOPPED}),
    }
)
"""VirtualMachine. ``""`` is an object without a status; staying in a phase is always allowed."""

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
"""Migration. A final phase is kept for ever: its lock on the virtual machine was given back. ``Pending`` after a later phase begins
another attempt (:mod:`apiserver.apis.virt.lifecycle.migration_attempts`)."""

MIGRATION_FINAL: Final = frozenset({SUCCEEDED, FAILED, CANCELLED})

VM_PHASES: Final = tuple(phase for phase in VM_TRANSITIONS if phase)
MIGRATION_PHASES: Final = tuple(phase for phase in MIGRATION_TRANSITIONS if phase)

MAX_TIMESTAMPS: Final = 20


def phase_of(obj: Mapping[str, Any]) -> str:
    """Return ``status.phase``, or the empty string."""
    return str(objects.dig(obj, "status", "phase") or "")


def is_unfinished(migration: Mapping[str, Any]) -> bool:
    """Return whether a Migration may still move its virtual machine."""
    return phase_of(migration) not in MIGRATION_FINAL


def without_guest(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a machine without what it says of a guest that is gone: fields of its place, and conditions.

    Of ``DisksReady`` that is what was waited for: nobody looks for it any more. A disk that failed is still told of.
    """
    waits_for_disks = conditions.waits_for({"status": status}) & conditions.WAITS_FOR_DISKS
    gone = (*conditions.OF_A_GUEST, conditions.RESTART_REQUIRED, *((conditions.DISKS_READY,) if waits_for_disks else ()))
    kept = {key: value for key, value in status.items() if key not in OF_A_PLACE}
    return {**kept, "conditions": [dict(each) for each in status.get("conditions") or () if each.get("type") not in gone]}


def enter(status: Mapping[str, Any], phase: str, now: datetime) -> dict[str, Any]:
    """Return ``status`` in ``phase``, with the moment it was entered; the same content when it already is.

    ``phaseTransitionTimestamps`` tells of one attempt: ``Pending`` or ``Scheduling`` after an end begins it anew.
    """
    old = str(status.get("phase") or "")
    if old == phase:
        return dict(status)
    earlier = [] if old in ENDED and phase not in ENDED else list(status.get("phaseTransitionTimestamps") or [])
    entry = {"phase": phase, "time": times.to_rfc3339_micro(now)}
    return {**status, "phase": phase, "phaseTransitionTimestamps": [*earlier, entry][-MAX_TIMESTAMPS:]}
