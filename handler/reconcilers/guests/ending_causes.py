"""The cause of a guest's end that its machine did not request. Pure.

The machine tells it: it should be off, virt-controller gave up its start, or the cluster ended the pod. Otherwise a user deleted the pod
(KEP-3329).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, power
from controller.runtime.recorder import EventType
from handler.reconcilers.guests import guest_status
from handler.reconcilers.guests.guest_status import End
from launcher.protocol import messages

POD_DELETED: Final = "PodDeleted"
_FAILURES: Final = frozenset({conditions.START_TIMEOUT, conditions.LIVENESS_FAILED})
"""Reasons of Ready=False before the guest's shutdown."""


def of_end(vm: Mapping[str, Any], launcher: messages.Status, end: End) -> End:
    """Return ``end``, with its cause if the guest was shut down by request although its machine should be on."""
    kind = launcher.ending.kind if launcher.ending is not None else ""
    if kind not in ("shutdown-requested", "destroyed") or not launcher.stopping or _is_to_end(vm):
        return end
    stored = dig_vm(vm, "status", "conditions")
    ready = objects.condition(stored, conditions.READY) or {}
    if (reason := str(ready.get("reason"))) in _FAILURES:
        return End(power.RESULT_FAILED, reason, guest_status.printable(str(ready.get("message"))))
    disruption = objects.condition(stored, conditions.DISRUPTION_TARGET)
    if disruption is not None:
        return replace(end, reason=str(disruption["reason"]), message=_because(str(disruption.get("message")), end))
    when = "while the guest ran" if power.has_run(vm) else "before the guest ran"
    return replace(end, reason=POD_DELETED, message=_because(f"its pod was deleted by another client {when}", end))


def event_type(vm: Mapping[str, Any], end: End) -> EventType:
    """Return the type of the Event about an end.

    Warning: a failure, a guest that was powered off forcibly after it ran, even by a requested stop, or a deleted pod. Else Normal.
    """
    lost = end.reason == POD_DELETED or (end.reason == guest_status.POWERED_OFF and power.has_run(vm))
    return "Warning" if end.result == power.RESULT_FAILED or lost else "Normal"


def _because(cause: str, end: End) -> str:
    return guest_status.printable(f"{cause} ({end.message})")


def _is_to_end(vm: Mapping[str, Any]) -> bool:
    decision = power.decide(vm)
    return not decision.on or decision.attempt > power.current_attempt(vm) or bool(power.newest_attempt(vm).get("stopTime"))
