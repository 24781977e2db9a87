"""A machine's state in one word, and its reason, for ``kubectl get vms``.

The words are those of KubeVirt's ``printableStatus``, ``kubectl get pods`` and the kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, freezing, managed_save, phases, power

Object = Mapping[str, Any]

TERMINATING: Final = "Terminating"
STARTING: Final = "Starting"
STOPPING: Final = "Stopping"
MIGRATING: Final = "Migrating"
PAUSED: Final = "Paused"
SUSPENDING: Final = "Suspending"
"""Also a reason of ``Paused=True``, while the guest's memory is saved."""
PANICKED: Final = "Panicked"
REBOOT_LOOP: Final = "RebootLoop"
BACK_OFF: Final = "CrashLoopBackOff"
"""Also a reason of ``Ready=False``, before the next attempt."""
WAITING_FOR_IMAGE: Final = "WaitingForImage"
WAITING_FOR_SERVER: Final = "WaitingForServer"
MAX_REASON: Final = 160
"""Maximum characters in a table."""

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PodNotRunning": STARTING,
        "GuestNotStarted": STARTING,
        "Unschedulable": "ErrorUnschedulable",
        conditions.CLAIM_NOT_FOUND: "ErrorPvcNotFound",
        conditions.CLAIM_NOT_BOUND: "ErrorUnschedulable",
        conditions.DISK_IMAGE_NOT_FOUND: WAITING_FOR_IMAGE,
        conditions.DISK_SERVER_SILENT: WAITING_FOR_SERVER,
    }
)
"""Words by a False condition's reason; other reasons (ErrImagePull, FailedCreate …) are words themselves."""


def word(vm: Object) -> str:
    """Return a machine's state in one word."""
    phase = phases.phase_of(vm)
    if dig_vm(vm, "metadata", "deletionTimestamp"):
        return TERMINATING
    if phase == phases.RUNNING:
        return _of_running(vm)
    if phase in (phases.SCHEDULING, phases.SCHEDULED):
        return STOPPING if _was_asked_to_stop(vm) else _what_is_missing(vm, STARTING)
    if phase == phases.PENDING:
        return _what_is_missing(vm, phase)
    if phase in phases.ENDED:
        return _of_ended(vm, phase)
    return phase or phases.PENDING


def reason(vm: Object) -> str | None:
    """Return in one line why the machine is not ready, or what a ready one lacks; None: nothing."""
    found = _condition(vm, conditions.PAUSED) if word(vm) == PAUSED else _condition(vm, conditions.READY)
    if found.get("type") == conditions.READY and found.get("status") == "True":
        return one_line(_lacks(vm), MAX_REASON) or None
    why = power.decide(vm).message if not found and phases.phase_of(vm) in phases.ENDED else str(found.get("message") or "")
    saved = managed_save.of(vm) if word(vm) == phases.STOPPED else None
    return one_line(f"{why}; {managed_save.in_words(saved, objects.name_of(vm))}" if saved else why, MAX_REASON) or None


def _lacks(vm: Object) -> str:
    if freezing.is_frozen(vm):
        return "the guest's file systems are frozen"
    changes = [f"{each.get('path')}: {each.get('message') or each.get('state')}" for each in dig_vm(vm, "status", "changes") or ()]
    disks = [f"disk {each.get('name')}: {each['message']}" for each in dig_vm(vm, "status", "volumeStatus") or () if each.get("message")]
    restart = str(_condition(vm, conditions.RESTART_REQUIRED).get("message") or "")
    return next(filter(None, (*disks, restart, *changes)), "")


def _of_ended(vm: Object, phase: str) -> str:
    why = _condition(vm, conditions.READY).get("reason")
    if power.decide(vm).on:
        return BACK_OFF if why == BACK_OFF else STARTING
    return PANICKED if why == conditions.GUEST_PANICKED else phase


def _of_running(vm: Object) -> str:
    migration = dig_vm(vm, "status", "migration") or {}
    if migration.get("name") and migration.get("phase") not in phases.MIGRATION_FINAL:
        return MIGRATING
    if (paused := _condition(vm, conditions.PAUSED)).get("status") == "True":
        return SUSPENDING if paused.get("reason") == SUSPENDING else PAUSED
    return REBOOT_LOOP if _condition(vm, conditions.REBOOT_LOOP).get("status") == "True" else phases.RUNNING


def _what_is_missing(vm: Object, otherwise: str) -> str:
    disks = _condition(vm, conditions.DISKS_READY)
    condition = disks if disks.get("status") == "False" else _condition(vm, conditions.READY)
    if condition is not disks and conditions.Wait.NETWORK_PLUGIN in conditions.waits_for(vm):
        condition = _condition(vm, conditions.NETWORK_READY)
    found = str(condition.get("reason") or "") if condition.get("status") == "False" else ""
    return _WORDS.get(found, found) or otherwise


def _was_asked_to_stop(vm: Object) -> bool:
    current = power.current_attempt(vm)
    decision = power.decide(vm)
    attempts = dig_vm(vm, "status", "attempts") or ()
    return not decision.on or any(int(each["number"]) == current and each.get("stopTime") for each in attempts)


def _condition(vm: Object, type_: str) -> Mapping[str, Any]:
    return objects.condition(dig_vm(vm, "status", "conditions"), type_) or {}
