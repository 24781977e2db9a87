from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import Action, CreatePod, Requeue, WriteStatus
from controller.reconcilers.pods.liveness import Absent, Evidence
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
EARLIER = "2026-01-01T00:00:05Z"
TARGET = Absent(names.target_pod_name("testvm", "m"), "uid-of-target", "", 50.0, migration="move")
ABSENT = Evidence(absent=(TARGET,))


def seen(vm: dict[str, Any], *pods: dict[str, Any], **rest: Any) -> Observed:
    return Observed(vm=vm, pods=pods, settings=Settings("launcher"), **{"claims": {}, "now": NOW, **rest})


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


def test_existing_pod_is_not_used_while_the_target_may_run() -> None:
    assert [each for each in plan(seen(a_vm(), a_pod(1, phase="Pending", node=""))) if isinstance(each, CreatePod)]
    waits = plan(seen(a_vm(), a_pod(1, phase="Pending", node=""), evidence=ABSENT))
    assert not [each for each in waits if isinstance(each, CreatePod)]
    assert waits[-1] == Requeue(50.0)


@pytest.mark.parametrize("deleting", [False, True])
def test_unwanted_attempt_and_deletion_wait_for_a_target(*, deleting: bool) -> None:
    ended: dict[str, Any] = {} if not deleting else {"result": "Stopped", "endTime": EARLIER}
    vm = a_vm(phase="Stopped" if deleting else "Running", attempts=[an_attempt(**ended)], deleting=deleting, runStrategy="Halted")
    actions = plan(seen(vm, evidence=ABSENT))
    assert actions[-1] == Requeue(50.0)
    ready = condition(written(actions)["conditions"], "Ready")
    assert ready is not None
    assert "until the kubelet of its node ends it" in ready["message"]


def test_assignment_reports_no_disks_that_were_not_awaited() -> None:
    status = written(plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), a_pod())))
    assert [each["type"] for each in status["conditions"]] == ["Ready"]


def test_incompatible_nodes_are_named_for_a_pod_without_a_node() -> None:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()])
    image = a_pod(phase="Pending")
    image["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}
    homeless = a_pod(phase="Pending", node="")
    homeless["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]
    for pod, told in ((image, False), (homeless, True)):
        ready = condition(written(plan(seen(vm, pod, incompatible={"node9": "another protocol"})))["conditions"], "Ready")
        assert ready is not None
        assert ("another protocol" in ready["message"]) is told


def interrupted(**status: Any) -> dict[str, Any]:
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime=EARLIER)], runStrategy="Halted")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "", "lastTransitionTime": EARLIER}
    vm["status"] |= {"conditions": [target], **status}
    return vm


def test_stopped_machine_drops_its_interruption_after_its_pod() -> None:
    assert condition(written(plan(seen(interrupted())))["conditions"], "DisruptionTarget") is None
    over = a_pod(phase="Failed", exit_code=1)
    over["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    kept = [each.status["conditions"] for each in plan(seen(interrupted(), over)) if isinstance(each, WriteStatus)]
    assert all(condition(each, "DisruptionTarget") is not None for each in kept)


def test_a_machine_is_stalled_since_its_starts_were_given_up() -> None:
    failed = [an_attempt(number, result="Failed", endTime=EARLIER, nodeName="node1") for number in (1, 2, 3)]
    vm = a_vm(phase="Failed", attempts=failed)
    first = condition(written(plan(seen(vm, rested=900.0)))["conditions"], "Stalled")
    assert first is not None
    assert first["lastTransitionTime"] == times.to_rfc3339(NOW)
    vm["status"]["conditions"] = [
        {"type": "Stalled", "status": "True", "reason": "RerunLimitReached", "message": "", "lastTransitionTime": EARLIER},
        {"type": "Ready", "status": "False", "reason": "NodeUnreachable", "message": "", "lastTransitionTime": EARLIER},
    ]
    again = condition(written(plan(seen(vm, rested=900.0)))["conditions"], "Stalled")
    assert again is not None
    assert again["lastTransitionTime"] == EARLIER
