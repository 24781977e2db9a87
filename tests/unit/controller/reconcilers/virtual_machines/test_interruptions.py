"""A guest continues after the cluster ended its pod, as in the table of docs/operating/migrations.md."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition, name_of
from apiserver.apis.virt.lifecycle import summary
from controller.reconcilers.actions import CreatePod, Requeue, WriteStatus
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods.liveness import Evidence
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
ASKED = {"exitCode": 0, "message": "shutdown-requested: the guest shut down on request"}
ITSELF = {"exitCode": 0, "message": "shutdown: the guest powered off"}
KILLED = {"exitCode": 137, "reason": "Error"}
POWER_LOST = {"exitCode": 255, "reason": "Unknown"}
REPORTING, UNREACHABLE = Unreachable(), Unreachable(frozenset({"node1"}))
CAUSES = (
    "EvictionByEvictionAPI",
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "DeletionByPodGC",
    "TerminationByKubelet",
)


def machine(strategy: str, **status: Any) -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt(nodeName="node1", runningTime="2026-01-01T00:00:10Z")], runStrategy=strategy)
    vm["status"] |= {"nodeName": "node1", "conditions": [], **status}
    return vm


def ended(cause: str | None, how: dict[str, Any], *, deleting: bool = True) -> dict[str, Any]:
    pod = a_pod(phase="Failed" if how["exitCode"] else "Succeeded", exit_code=0, deleting=deleting)
    pod["status"]["containerStatuses"][0]["state"]["terminated"] = how
    if cause is not None:
        pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True", "reason": cause, "message": ""})
    return pod


def becomes(vm: dict[str, Any], *pods: dict[str, Any], unreachable: Unreachable = REPORTING) -> bool:
    for _ in range(6):
        actions = plan(
            Observed(vm=vm, pods=pods, claims={}, settings=Settings("launcher"), now=NOW, rested=400.0, evidence=Evidence(unreachable))
        )
        if any(isinstance(each, CreatePod) for each in actions):
            vm["status"] = next(each.status for each in actions if isinstance(each, WriteStatus))
            return True
        written = [each.status for each in actions if isinstance(each, WriteStatus)]
        if not written:
            return False
        vm["status"] = written[-1]
    raise AssertionError("the plan writes on and on")


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("how", [ASKED, KILLED], ids=["asked", "killed"])
def test_guest_is_rerun_after_the_cluster_ended_its_pod(strategy: str, cause: str, how: dict[str, Any]) -> None:
    vm = machine(strategy)
    assert becomes(vm, ended(cause, how, deleting=cause != "TerminationByKubelet"))
    assert vm["status"]["attempt"] == 2
    assert condition(vm["status"]["conditions"], "DisruptionTarget") is None
    assert "virt-launcher" in vm["status"]["attempts"][0]["message"]

    vm["status"] |= {"phase": "Running", "podUID": "second"}
    vm["status"]["attempts"][-1] |= {"runningTime": "2026-01-01T00:00:30Z", "result": "Failed", "endTime": "2026-01-01T00:00:40Z"}
    vm["status"]["phase"] = "Failed"
    assert becomes(vm) is (strategy in ("Always", "RerunOnFailure")), "the second one ended by itself"


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
@pytest.mark.parametrize("cause", CAUSES)
def test_guest_powering_off_during_a_disruption_has_ended(strategy: str, cause: str) -> None:
    vm = machine(strategy)
    assert not becomes(vm, ended(cause, ITSELF, deleting=False))
    assert vm["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("strategy", ["RerunOnFailure", "Once", "Manual"])
def test_pod_deleted_by_a_user_ends_its_attempt(strategy: str) -> None:
    for pods in ((ended(None, ASKED),), ()):
        vm = machine(strategy)
        assert becomes(vm, *pods) is (strategy == "RerunOnFailure")
        assert "deleted by another client" in vm["status"]["attempts"][0]["message"]


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_power_loss_of_a_returning_node_fails_the_attempt(strategy: str) -> None:
    vm = machine(strategy, phase="Unknown")
    assert becomes(vm, ended(None, POWER_LOST, deleting=False)) is (strategy in ("Always", "RerunOnFailure"))
    assert vm["status"]["attempts"][0]["message"] == "virt-launcher ended: Unknown (exit code 255)"


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["Kubernetes deleted it for the taint", "nobody did"])
def test_removed_pod_of_a_silent_node_ends_unless_kubernetes_did(strategy: str, is_deleted: bool) -> None:
    vm, pod = machine(strategy), a_pod(deleting=is_deleted)
    if is_deleted:
        told = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": ""}
        pod["status"]["conditions"].append(told)
    assert not becomes(vm, pod, unreachable=UNREACHABLE)
    assert vm["status"]["phase"] == "Unknown"
    assert becomes(vm, unreachable=UNREACHABLE) is (is_deleted or strategy in ("Always", "RerunOnFailure"))


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_stop_during_a_drain_keeps_the_machine_off_until_started(strategy: str) -> None:
    vm = machine(strategy, request={"action": "Stop", "runStrategy": strategy})
    assert not becomes(vm, ended("EvictionByEvictionAPI", ASKED))
    assert vm["status"]["phase"] == "Stopped"
    assert not becomes(vm)
    assert condition(vm["status"]["conditions"], "DisruptionTarget") is None

    vm["status"]["request"] = {"action": "Start", "attempt": 2, "runStrategy": strategy}
    assert becomes(vm)


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
def test_a_halt_after_the_eviction_is_for_good(strategy: str) -> None:
    vm = machine(strategy)
    vm["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionAllowed", "message": "m"}]
    vm["status"]["attempts"][0] |= {"result": "Stopped", "endTime": "2026-01-01T00:00:40Z"}
    vm["status"]["phase"] = "Stopped"
    vm["spec"]["runStrategy"] = "Halted"
    assert not becomes(vm)
    vm["spec"]["runStrategy"] = strategy
    assert not becomes(vm)


@pytest.mark.parametrize(
    ("phase", "ready"),
    [
        ("Stopped", ("True", "GuestReady")),
        ("Stopped", ("False", summary.BACK_OFF)),
        ("Pending", ("False", summary.BACK_OFF)),
        ("Pending", ("False", "Any")),
    ],
)
def test_a_halt_after_the_eviction_takes_one_write(phase: str, ready: tuple[str, str]) -> None:
    vm = machine("Once")
    interrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionAllowed", "message": "m"}
    vm["status"]["conditions"] = [interrupted, {"type": "Ready", "status": ready[0], "reason": ready[1], "message": "m"}]
    vm["status"]["attempts"][0] |= {"result": "Stopped", "endTime": "2026-01-01T00:00:40Z"}
    vm["status"]["phase"] = phase
    vm["spec"]["runStrategy"] = "Halted"
    seen = Observed(vm=vm, pods=(), claims={}, settings=Settings("launcher"), now=NOW, rested=400.0)
    written = next(each.status for each in plan(seen) if isinstance(each, WriteStatus))
    assert condition(written["conditions"], "DisruptionTarget") is None
    assert condition(written["conditions"], "Ready") is None
    vm["status"] = written
    assert not [each for each in plan(seen) if isinstance(each, WriteStatus)]


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
def test_allowed_eviction_counts_even_if_only_recorded(strategy: str) -> None:
    """The leader was evicted as well, and its successor starts after the pod is gone."""
    vm = machine(strategy)
    vm["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionAllowed", "message": "m"}]
    assert becomes(vm)
    assert name_of(a_pod(2)) == vm["status"]["podName"]


def rejected(attempt: int = 1, reason: str = "UnexpectedAdmissionError") -> dict[str, Any]:
    pod = a_pod(attempt, phase="Failed")
    pod["status"] |= {"reason": reason, "message": "no healthy devices present", "containerStatuses": []}
    return pod


def starting(strategy: str, **status: Any) -> dict[str, Any]:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], runStrategy=strategy)
    vm["status"] |= {"conditions": [], **status}
    return vm


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_pod_rejected_without_devices_is_replaced(strategy: str) -> None:
    vm = starting(strategy)
    assert becomes(vm, rejected())
    assert vm["status"]["attempt"] == 2
    assert condition(vm["status"]["conditions"], "DisruptionTarget") is None
    first = vm["status"]["attempts"][0]
    assert (first["result"], first.get("nodeName")) == ("Failed", None), "no start that counts for spec.rerun.limit"
    assert "was rejected by the kubelet" in first["message"]
    assert "UnexpectedAdmissionError: no healthy devices present" in first["message"]


def test_next_pod_prefers_another_node_than_the_rejecting_one() -> None:
    vm = starting("Once")
    for _ in range(2):
        vm["status"] = next(each.status for each in plan(seen(vm, rejected())) if isinstance(each, WriteStatus))
    (made,) = (each for each in plan(seen(vm, rejected())) if isinstance(each, CreatePod))
    (preferred,) = made.pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node1"]}]


def test_a_second_rejection_in_a_row_waits_before_the_next_pod() -> None:
    vm = starting("Once")
    assert becomes(vm, rejected())
    vm["status"]["podUID"] = rejected(2)["metadata"]["uid"]
    for _ in range(2):
        vm["status"] = next(each.status for each in plan(seen(vm, rejected(2))) if isinstance(each, WriteStatus))
    waits = plan(seen(vm, rejected(2)))
    assert not [each for each in waits if isinstance(each, CreatePod)]
    assert Requeue(5.0) in waits


@pytest.mark.parametrize("strategy", ["Once", "Manual"])
def test_a_pod_that_does_not_fit_its_node_ends_its_attempt(strategy: str) -> None:
    assert not becomes(starting(strategy), rejected(reason="NodeAffinity"))


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once", "Manual"])
def test_a_stop_while_the_devices_are_away_keeps_the_machine_off(strategy: str) -> None:
    vm = starting(strategy, request={"action": "Stop", "runStrategy": strategy})
    assert not becomes(vm, rejected())
    assert vm["status"]["phase"] == "Stopped"


def seen(vm: dict[str, Any], *pods: dict[str, Any]) -> Observed:
    return Observed(vm=vm, pods=pods, claims={}, settings=Settings("launcher"), now=NOW)
