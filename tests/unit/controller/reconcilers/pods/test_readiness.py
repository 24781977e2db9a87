from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import name_of, uid_of, with_condition
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import SetPodCondition
from controller.reconcilers.pods import pod_state, readiness
from controller.reconcilers.trimming import MAX_CONDITIONS, trim_pod
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
STAMP = "2026-01-01T00:00:07Z"
GATE = names.GUEST_RUNNING_GATE


def a_gated_pod(said: str = "", **given: Any) -> dict[str, Any]:
    pod = a_pod(**given)
    pod["spec"]["readinessGates"] = [{"conditionType": GATE}]
    if said:
        known = pod["status"].get("conditions")
        pod["status"]["conditions"] = with_condition(known, {"type": GATE, "status": said}, now="2026-01-01T00:00:00Z")
    return pod


def a_machine(phase: str = phases.RUNNING, state: str = "running", in_pod: dict[str, Any] | None = None) -> dict[str, Any]:
    vm = a_vm(phase=phase, attempts=[an_attempt()])
    if state:
        vm["status"]["domain"] = {"state": state}
    if in_pod is not None:
        vm["status"] |= {"podName": name_of(in_pod), "podUID": uid_of(in_pod)}
    return vm


def told(vm: dict[str, Any], *pods: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each.name, each.condition["status"], each.condition["reason"]) for each in readiness.plan(vm, pods, NOW)]


OWN, TARGET = name_of(a_pod()), name_of(a_pod(migration="m"))


def test_the_pod_in_which_the_guest_runs_is_ready() -> None:
    pod = a_gated_pod()
    said = {"type": GATE, "status": "True", "reason": "GuestRunning", "message": "the guest runs in this pod"}
    assert readiness.plan(a_machine(), (pod,), NOW) == (SetPodCondition(OWN, uid_of(pod), {**said, "lastTransitionTime": STAMP}),)


@pytest.mark.parametrize("said", ["", "False", "True"])
@pytest.mark.parametrize(
    ("phase", "state", "status", "reason"),
    [
        (phases.SCHEDULING, "", "False", "GuestNotRunning"),
        (phases.SCHEDULED, "", "False", "GuestNotRunning"),
        (phases.RUNNING, "running", "True", "GuestRunning"),
        (phases.RUNNING, "paused", "False", "GuestPaused"),
        (phases.RUNNING, "pmsuspended", "False", "GuestPaused"),
        (phases.RUNNING, "", "False", "GuestPaused"),
        (phases.STOPPING, "running", "True", "GuestRunning"),
        (phases.STOPPING, "paused", "False", "GuestPaused"),
        (phases.SUCCEEDED, "", "False", "GuestNotRunning"),
        (phases.FAILED, "running", "False", "GuestNotRunning"),
        (phases.STOPPED, "", "False", "GuestNotRunning"),
        (phases.PENDING, "", "False", "GuestNotRunning"),
    ],
)
def test_readiness_gate_follows_the_machine_and_is_written_once(phase: str, state: str, status: str, reason: str, said: str) -> None:
    wanted = [] if (said or "False") == status else [(OWN, status, reason)]
    assert told(a_machine(phase, state), a_gated_pod(said)) == wanted


def test_guest_paused_for_migration_stays_ready() -> None:
    source, target = a_gated_pod("True"), a_gated_pod(migration="m")
    vm = a_machine()
    vm["status"]["domain"] = {"state": "paused", "reason": "migrating"}
    assert told(vm, source, target) == []
    vm["status"]["domain"]["reason"] = "user"
    assert told(vm, source, target) == [(OWN, "False", "GuestPaused")]
    moved = a_moved_machine(target)
    moved["status"]["domain"] = {"state": "paused", "reason": "migrating"}
    assert told(moved, source, target) == [(TARGET, "True", "GuestRunning")]


def test_target_is_ready_only_after_the_assignment() -> None:
    source, target = a_gated_pod("True"), a_gated_pod(migration="m")
    assert told(a_machine(), source, target) == []
    assert told(a_machine(in_pod=target), source, target) == [(TARGET, "True", "GuestRunning"), (OWN, "False", "GuestElsewhere")]
    assert told(a_machine(in_pod=target), target, source) == [(TARGET, "True", "GuestRunning"), (OWN, "False", "GuestElsewhere")]


def a_moved_machine(target: dict[str, Any], state: str = "running", **migration: Any) -> dict[str, Any]:
    vm = a_machine(state=state, in_pod=target)
    vm["status"]["migration"] = {"phase": "Succeeded", "sourcePod": OWN, "targetPod": TARGET, **migration}
    return vm


def made_ready(pod: dict[str, Any], status: str = "True") -> dict[str, Any]:
    pod["status"]["conditions"].append({"type": "Ready", "status": status})
    return pod


def test_the_source_is_ready_until_the_target_is_in_fact() -> None:
    source, target = a_gated_pod("True"), a_gated_pod(migration="m")
    vm = a_moved_machine(target)
    assert told(vm, source, target) == [(TARGET, "True", "GuestRunning")]
    for ready in (a_gated_pod("True", migration="m"), made_ready(a_gated_pod("True", migration="m"), "False")):
        assert told(vm, source, ready) == []
    assert told(vm, source, made_ready(a_gated_pod("True", migration="m"))) == [(OWN, "False", "GuestElsewhere")]
    assert told(vm, a_gated_pod(), target) == [(TARGET, "True", "GuestRunning")]
    assert told(vm, a_gated_pod("True", phase="Succeeded", exit_code=0), target) == [(TARGET, "True", "GuestRunning")]


@pytest.mark.parametrize(
    "migration",
    [{"phase": "Running"}, {"phase": "Failed"}, *({side: other} for side in ("sourcePod", "targetPod") for other in ("another", "zebra"))],
    ids=str,
)
def test_unrelated_source_pod_is_not_ready_for_the_guest(migration: dict[str, Any]) -> None:
    source, target = a_gated_pod("True"), a_gated_pod("True", migration="m")
    assert told(a_moved_machine(target, **migration), source, target) == [(OWN, "False", "GuestElsewhere")]


def test_no_pod_stands_in_for_a_guest_that_may_not_be_asked() -> None:
    source, target = a_gated_pod("True"), a_gated_pod(migration="m")
    assert told(a_moved_machine(target, state="paused"), source, target) == [(OWN, "False", "GuestElsewhere")]
    vm = a_moved_machine(target)
    vm["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "ReadinessProbeFailed", "message": "m"}]
    assert told(vm, source, target) == [(OWN, "False", "GuestElsewhere")]
    assert told(a_moved_machine(target), source) == [(OWN, "False", "GuestElsewhere")]


@pytest.mark.parametrize(("phase", "reason"), [(phases.RUNNING, "ReadinessProbeFailed"), (phases.STOPPING, "LivenessProbeFailed")])
def test_failing_probe_makes_the_pod_not_ready(phase: str, reason: str) -> None:
    vm = a_machine(phase)
    vm["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": reason, "message": "m"}]
    assert told(vm, a_gated_pod("True")) == [(OWN, "False", "GuestNotReady")]
    vm["status"]["domain"]["state"] = "paused"
    assert told(vm, a_gated_pod("True")) == [(OWN, "False", "GuestPaused")]


def test_guest_arriving_paused_makes_no_pod_ready() -> None:
    source, target = a_gated_pod("True"), a_gated_pod(migration="m")
    assert told(a_machine(state="paused", in_pod=target), source, target) == [(OWN, "False", "GuestElsewhere")]


def test_a_pod_without_the_gate_is_left_as_it_is() -> None:
    pod = a_pod()
    assert told(a_machine(), pod) == []
    pod["spec"]["readinessGates"] = [{"conditionType": "example.com/load-balancer"}]
    assert told(a_machine(), pod) == []


def test_a_pod_that_only_has_the_name_is_not_the_machines() -> None:
    pod = a_gated_pod()
    pod["metadata"]["uid"] = "another"
    assert told(a_machine(), pod) == []
    vm = a_machine()
    vm["status"]["podUID"] = ""
    pod["metadata"]["uid"] = ""
    assert told(vm, pod) == []
    assert told(a_machine(), {**pod, "status": a_gated_pod("True")["status"]}) == [(OWN, "False", "GuestElsewhere")]


def test_a_machine_without_a_status_has_no_ready_pod() -> None:
    assert told(a_vm(), a_gated_pod("True")) == [(OWN, "False", "GuestElsewhere")]


def test_ended_pod_or_unknown_machine_gets_no_readiness() -> None:
    assert told(a_machine(phases.SUCCEEDED, ""), a_gated_pod("True", phase="Succeeded", exit_code=0)) == []
    for said in ("True", "False", ""):
        assert told(a_machine(phases.UNKNOWN), a_gated_pod(said)) == []


def test_a_pod_that_ends_still_has_its_guest() -> None:
    assert told(a_machine(phases.STOPPING), a_gated_pod("True", deleting=True)) == []


def test_readiness_gate_is_found_among_many_conditions() -> None:
    """Otherwise each change of the pod would cause another write, which changes the pod."""
    pod = a_gated_pod()
    others = [{"type": f"example.com/{number}", "status": "True"} for number in range(MAX_CONDITIONS)]
    pod["status"]["conditions"] = [*others, {"type": "Ready", "status": "True"}, {"type": GATE, "status": "True"}]
    assert pod_state.is_ready(trim_pod(pod))
    assert told(a_machine(), trim_pod(pod)) == []
    assert len(trim_pod(pod)["status"]["conditions"]) == MAX_CONDITIONS
