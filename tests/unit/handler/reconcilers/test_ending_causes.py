from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt.v1alpha1 import status_validation
from handler.reconcilers.guests import ending_causes, guest_plan, guest_status
from handler.reconcilers.guests.guest_plan import EndAttempt, Observed
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import NOW, a_request, a_vm, an_ended

ASKED = "the guest shut down on request"
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "pod p on node n was evicted, as by kubectl drain",
}
LATE = {"type": "Ready", "status": "False", "reason": "StartTimeout", "message": "the guest did not run within 180 s on node n"}
DEAD = {"type": "Ready", "status": "False", "reason": "LivenessProbeFailed", "message": "the liveness probe failed: no answer"}
DELETED = "its pod was deleted by another client while the guest ran"


def an_attempt(**more: str) -> dict[str, Any]:
    return {"number": 1, "podName": "p", "nodeName": "n", "runningTime": "2026-11-21T07:59:10Z", **more}


def a_run(*conditions: dict[str, Any], request: dict[str, Any] | None = None, deleting: bool = False, **attempt: str) -> dict[str, Any]:
    return a_vm("Running", deleting=deleting, request=request, conditions=list(conditions), attempts=[an_attempt(**attempt)])


@pytest.mark.parametrize(
    ("vm", "kind", "end"),
    [
        (a_run(), "shutdown-requested", ("Stopped", "PodDeleted", f"{DELETED} ({ASKED})")),
        (a_run(), "destroyed", ("Stopped", "PodDeleted", f"{DELETED} ({ASKED})")),
        (a_run(EVICTED), "shutdown-requested", ("Stopped", EVICTED["reason"], f"{EVICTED['message']} ({ASKED})")),
        (a_run(LATE), "destroyed", ("Failed", "StartTimeout", LATE["message"])),
        (a_run(DEAD), "shutdown-requested", ("Failed", "LivenessProbeFailed", DEAD["message"])),
        (a_run(request=a_request("Stop")), "shutdown-requested", ("Stopped", "ShutDown", ASKED)),
        (a_run(request=a_request("Restart", 2)), "shutdown-requested", ("Stopped", "ShutDown", ASKED)),
        (a_run(request=a_request("Start", 2), stopTime="2026-11-21T07:59:20Z"), "destroyed", ("Stopped", "PoweredOff", ASKED)),
        (a_run(stopTime="2026-11-21T07:59:20Z"), "shutdown-requested", ("Stopped", "ShutDown", ASKED)),
        (a_run(EVICTED, deleting=True), "shutdown-requested", ("Stopped", "ShutDown", ASKED)),
        (a_run(), "shutdown", ("Succeeded", "GuestPoweredOff", ASKED)),
        (a_run(EVICTED), "crashed", ("Failed", "Crashed", ASKED)),
    ],
    ids=[
        "deleted",
        "deleted hard",
        "evicted",
        "late",
        "not alive",
        "stop",
        "restart",
        "start again",
        "halted and back",
        "vm deleted",
        "itself",
        "crashed",
    ],
)
def test_an_end_that_the_machine_did_not_ask_for_has_its_cause(
    vm: dict[str, Any], kind: messages.EndingKind, end: tuple[str, str, str]
) -> None:
    (action,) = guest_plan.plan(Observed(vm, replace(an_ended(kind, ASKED), stopping=True), connected=True, gone=False, now=0.0))

    assert isinstance(action, EndAttempt)
    assert (action.end.result, action.end.reason, action.end.message) == end
    status = guest_status.ended(vm, action.end, NOW)
    assert status["attempts"][-1]["message"] == end[2]
    assert not status_validation.validate_virtual_machine_status({"status": status}, {})


def test_a_pod_that_was_deleted_before_its_guest_ran_says_so() -> None:
    vm = a_vm("Scheduled")
    launcher = replace(an_ended("destroyed", "x" * 2000), stopping=True)
    (action,) = guest_plan.plan(Observed(vm, launcher, connected=True, gone=False, now=0.0))

    assert isinstance(action, EndAttempt)
    assert action.end.message.startswith("its pod was deleted by another client before the guest ran (x")
    assert len(action.end.message) <= guest_status.MAX_MESSAGE


def test_destroyed_domain_in_an_unstopped_pod_is_powered_off() -> None:
    (action,) = guest_plan.plan(Observed(a_run(), an_ended("destroyed", "the domain was destroyed"), connected=True, gone=False, now=0.0))

    assert isinstance(action, EndAttempt)
    assert (action.end.reason, action.end.message) == ("PoweredOff", "the domain was destroyed")


@pytest.mark.parametrize(
    ("vm", "end", "type_"),
    [
        (a_run(), ("Stopped", "PodDeleted"), "Warning"),
        (a_vm("Scheduled"), ("Stopped", "PodDeleted"), "Warning"),
        (a_run(), ("Stopped", "PoweredOff"), "Warning"),
        (a_vm("Scheduled"), ("Stopped", "PoweredOff"), "Normal"),
        (a_run(), ("Stopped", "ShutDown"), "Normal"),
        (a_run(), ("Stopped", "EvictionByEvictionAPI"), "Normal"),
        (a_run(), ("Succeeded", "GuestPoweredOff"), "Normal"),
        (a_run(), ("Failed", "Crashed"), "Warning"),
    ],
)
def test_event_of_an_unwanted_end_is_a_warning(vm: dict[str, Any], end: tuple[str, str], type_: str) -> None:
    assert ending_causes.event_type(vm, guest_status.End(*end, "m")) == type_
