"""The condition RestartRequired of machines that were edited while their guest runs. Pure.

It is True while the desired hardware differs from the running one, and names the fields, except those that the guest takes at once.
"""

from __future__ import annotations

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, name_of, new_condition, with_condition, without_condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.spec import live_changes, running
from controller.reconcilers.actions import Action, Emit, WriteStatus
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed


def marked(seen: Observed, status: Object) -> Object:
    """Return the status with RestartRequired=True if edits wait for a restart, else without it."""
    stored = condition(status.get("conditions"), conditions.RESTART_REQUIRED)
    if not (found := live_changes.rest(seen.vm)):
        return {**status, "conditions": without_condition(status.get("conditions"), conditions.RESTART_REQUIRED)} if stored else status
    message = "; ".join(filter(None, (_message(seen.vm, running.words(found)), live_changes.limits(seen.vm, found))))
    new = new_condition(seen.vm, conditions.RESTART_REQUIRED, "True", conditions.HARDWARE_DIFFERS, message)
    return {**status, "conditions": with_condition(status.get("conditions"), new, now=times.to_rfc3339(seen.now))}


def _message(vm: Object, fields: str) -> str:
    name = name_of(vm)
    if phases.phase_of(vm) == phases.SCHEDULED:
        return f"{name} is starting with the earlier spec, without these edits: {fields}; to use them: kubectl virt restart {name}"
    if phases.phase_of(vm) in phases.WITH_GUEST:
        return f"the guest runs without these edits: {fields}; they count from its next start on: kubectl virt restart {name}"
    return (
        f"the suspended guest lacks these edits: {fields}; they count from its next start on: kubectl virt resume {name}, "
        f"then kubectl virt restart {name} (or kubectl virt start {name} --discard-state, which deletes the guest's memory)"
    )


def report(seen: Observed) -> tuple[Action, ...]:
    """Return the write of RestartRequired, with one Event when it appears; empty if nothing changes."""
    old = statuses.status_of(seen)
    status = marked(seen, old)
    return (WriteStatus(status), *events(seen, status)) if status != old else ()


def events(seen: Observed, status: Object) -> tuple[Emit, ...]:
    """Return the Event if the condition is new in ``status``, else empty."""
    found = condition(status.get("conditions"), conditions.RESTART_REQUIRED)
    if found is None or condition(dig_vm(seen.vm, "status", "conditions"), conditions.RESTART_REQUIRED) is not None:
        return ()
    return (Emit("Normal", conditions.RESTART_REQUIRED, str(found["message"])),)


def without_guest(seen: Observed) -> tuple[Action, ...]:
    """Return the write that removes RestartRequired from a machine without a guest, or sets it for a suspended one."""
    return () if phases.phase_of(seen.vm) in phases.WITH_GUEST else report(seen)
