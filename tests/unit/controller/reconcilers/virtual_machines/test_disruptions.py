from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition, name_of
from controller.reconcilers.actions import Emit, Requeue, WriteStatus
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import disruptions
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
TOLD = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "pod p was evicted"}
OTHER = {"type": "Ready", "status": "True", "reason": "GuestRunning", "message": ""}


def machine(*conditions: dict[str, Any], **attempt: Any) -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt(**attempt)])
    vm["status"]["conditions"] = list(conditions)
    return vm


def disrupted(reason: Any = "EvictionByEvictionAPI", message: Any = "", status: str = "True", **rest: Any) -> dict[str, Any]:
    pod = a_pod(**rest)
    pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": status, "reason": reason, "message": message})
    return pod


def told(vm: dict[str, Any], *pods: dict[str, Any]) -> tuple[Any, ...]:
    return disruptions.report(Observed(vm=vm, pods=pods, claims={}, settings=Settings("launcher"), now=NOW))


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("EvictionByEvictionAPI", "evicting", "was evicted, as by kubectl drain: evicting"),
        ("PreemptionByScheduler", "", "was preempted by the scheduler, for a pod of higher priority"),
        ("DeletionByTaintManager", None, "does not tolerate a taint of its node"),
        ("OfALaterRelease", "", "is being disrupted"),
    ],
)
def test_disruption_is_reported_in_a_condition_and_an_event(reason: str, message: str | None, words: str) -> None:
    pod = disrupted(reason, message)
    write, event = told(machine(OTHER), pod)

    assert event == Emit("Warning", reason, f"pod {name_of(pod)} on node node1 {words}")
    assert isinstance(write, WriteStatus)
    assert condition(write.status["conditions"], "Ready") == OTHER
    new = condition(write.status["conditions"], "DisruptionTarget")
    assert new is not None
    assert (new["status"], new["reason"], new["message"]) == ("True", reason, event.message)
    assert write.status["podName"] == name_of(pod)


def test_disruption_is_reported_once_for_the_own_pod_only() -> None:
    assert told(machine(TOLD), disrupted()) == ()
    assert told(machine(), disrupted(status="False")) == ()
    assert told(machine(), a_pod()) == ()
    assert told(machine(), disrupted(attempt=7)) == ()
    assert told(machine()) == ()


def test_pod_that_lacked_devices_is_reported_in_few_words() -> None:
    pod = a_pod(phase="Failed")
    pod["status"] |= {"reason": "UnexpectedAdmissionError", "message": "no devices"}
    _, event = told(machine(), pod)
    rejected = "was rejected by the kubelet, usually because a device plugin is restarting"
    assert event == Emit("Warning", "UnexpectedAdmissionError", f"pod {name_of(pod)} on node node1 {rejected}")


@pytest.mark.parametrize("before", [1, 9])
def test_spec_edit_updates_only_the_conditions_generation(before: int) -> None:
    vm = machine(OTHER, {**TOLD, "observedGeneration": before})
    vm["metadata"]["generation"] = 7
    (write,) = told(vm, disrupted())
    assert isinstance(write, WriteStatus)
    assert write.status["conditions"] == [OTHER, {**TOLD, "observedGeneration": 7}]
    assert told(vm) == (), "without the pod, the condition stays"


def test_disruption_is_cleared_when_the_guest_is_in_another_pod() -> None:
    (write,) = told(machine(OTHER, TOLD), a_pod())

    assert isinstance(write, WriteStatus)
    assert write.status["conditions"] == [OTHER]
    assert write.status["phase"] == "Running"


@pytest.mark.parametrize(
    ("attempt", "pods"),
    [
        ({}, []),
        ({}, [a_pod(7)]),
        ({}, [a_pod(phase="Failed", exit_code=137)]),
        ({"result": "Stopped", "endTime": "2026-01-01T00:00:59Z"}, [a_pod()]),
        ({}, [disrupted()]),
    ],
    ids=["gone", "a stray", "over", "the attempt ended", "still so"],
)
def test_disruption_stays_as_the_reason_of_an_end(attempt: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    assert told(machine(TOLD, **attempt), *pods) == ()


def allowed(since: str | None) -> dict[str, Any]:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionAllowed", "message": "pod p received an eviction"}
    return told if since is None else {**told, "lastTransitionTime": since}


def test_an_eviction_that_was_allowed_is_told_when_it_happens() -> None:
    pod = disrupted("EvictionByEvictionAPI")
    write, event = told(machine(allowed("2026-01-01T00:00:59Z")), pod)

    assert isinstance(write, WriteStatus)
    assert (condition(write.status["conditions"], "DisruptionTarget") or {})["reason"] == "EvictionByEvictionAPI"
    assert isinstance(event, Emit)
    assert event.reason == "EvictionByEvictionAPI"


@pytest.mark.parametrize(
    ("since", "left"),
    [("2026-01-01T00:00:58Z", 8.0), ("2026-01-01T00:00:50.1Z", 0.5), ("2026-01-01T00:09:00Z", 10.0)],
    ids=["just now", "nearly", "by a clock ahead"],
)
def test_an_eviction_that_was_allowed_may_still_come(since: str, left: float) -> None:
    vm = machine(allowed(since))
    observed = Observed(vm=vm, pods=(a_pod(),), claims={}, settings=Settings("launcher"), now=NOW)

    assert told(vm, a_pod()) == ()
    (again,) = disruptions.until_settled(observed)
    assert isinstance(again, Requeue)
    assert again.seconds == pytest.approx(left)
    assert [each for each in plan(observed) if isinstance(each, Requeue)] == [again]


@pytest.mark.parametrize("since", ["2026-01-01T00:00:50Z", "2026-01-01T00:00:40Z", None])
def test_an_eviction_that_something_else_refused_is_taken_back(since: str | None) -> None:
    vm = machine(OTHER, allowed(since))
    (write,) = told(vm, a_pod())

    assert isinstance(write, WriteStatus)
    assert write.status["conditions"] == [OTHER]
    assert disruptions.until_settled(Observed(vm=vm, pods=(a_pod(),), claims={}, settings=Settings("launcher"), now=NOW)) == ()


def test_gone_or_evicted_pods_are_not_awaited() -> None:
    for pods in ((), (disrupted(),)):
        observed = Observed(vm=machine(allowed("2026-01-01T00:00:59Z")), pods=pods, claims={}, settings=Settings("launcher"), now=NOW)
        assert disruptions.until_settled(observed) == ()


def test_end_message_starts_with_the_disruption() -> None:
    def added(vm: dict[str, Any]) -> str:
        return disruptions.added(Observed(vm=vm, pods=(), claims={}, settings=Settings("launcher"), now=NOW), "exit code 137")

    assert added(machine(TOLD)) == "pod p was evicted (exit code 137)"
    assert added(machine(OTHER)) == "exit code 137"
