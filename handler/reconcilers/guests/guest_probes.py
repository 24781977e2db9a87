"""A machine's conditions from its guest's probes. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.spec import probes
from handler.probes.tally import Verdict

MAX_MESSAGE: Final = 512
NOT_YET: Final = "the readiness probe has not succeeded yet"
CANNOT_ASK: Final = "the readiness probe cannot be sent: "


def unready(vm: Object, verdict: Verdict) -> str:
    """Return why the readiness probe makes a guest unready; empty: it is ready, or has no such probe.

    Without a verdict (after a restart, or a migration), condition Ready decides: True or a pause means ready.
    """
    if probes.of(vm.get("spec") or {}, probes.READINESS) is None or verdict.ready:
        return ""
    if verdict.ready is False:
        return one_line(f"the readiness probe fails: {verdict.message}", MAX_MESSAGE)
    if verdict.message:
        return one_line(f"{CANNOT_ASK}{verdict.message}", MAX_MESSAGE)
    stored = objects.condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    if stored.get("status") == "True" or stored.get("reason") == conditions.PAUSED:
        return ""
    before = str(stored.get("message") or "") if stored.get("reason") == conditions.NOT_PROBED else ""
    return NOT_YET if not before or before.startswith(CANNOT_ASK) else before


def ending(vm: Object, status: Object, verdict: Verdict, now: datetime) -> Object:
    """Return the status after a failed liveness probe: phase Stopping, Ready=False; virt-handler then shuts the guest down."""
    message = one_line(f"the liveness probe failed: {verdict.dead}", MAX_MESSAGE)
    ready = objects.new_condition(vm, conditions.READY, "False", conditions.LIVENESS_FAILED, message)
    return objects.with_status_condition(phases.enter(status, phases.STOPPING, now), ready, now=times.to_rfc3339(now))


def became_unready(vm: Object, status: Object) -> str:
    """Return Ready's message if it changed from True because of the readiness probe; else empty."""
    before = objects.condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    after = objects.condition(status.get("conditions"), conditions.READY) or {}
    return str(after["message"]) if before.get("status") == "True" and after.get("reason") == conditions.NOT_PROBED else ""
