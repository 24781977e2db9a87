from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from controller.reconcilers.actions import Action, DeletePod, Emit, WriteStatus
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import virtual_machine_plan as planning
from controller.reconcilers.virtual_machines.observed import Observed
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
RUNNING: dict[str, Any] = {"memory": {"guest": "128Mi"}, "devices": {}}
DESIRED: dict[str, Any] = {"memory": {"guest": "256Mi"}, "devices": {"disks": [{"name": "data", "source": {"name": "data"}}]}}
SETTINGS = Settings(launcher_image="registry.example/virt-launcher:v1")
KNOWN = {"type": "RestartRequired", "status": "True", "reason": "HardwareDiffers", "message": "old words"}


def a_machine(*conditions: dict[str, Any], phase: str = "Running", **status: Any) -> dict[str, Any]:
    ended: dict[str, Any] = {"endTime": "2026-01-01T00:00:10Z", "result": "Stopped"} if phase == "Stopped" else {}
    vm = a_vm(phase=phase, attempts=[an_attempt(nodeName="node1", **ended)], domain=DESIRED)
    vm["status"] |= {"nodeName": "node1", "conditions": list(conditions), **status}
    return vm


def seen(vm: dict[str, Any], *pods: dict[str, Any]) -> Observed:
    return Observed(vm=vm, pods=pods, claims={}, now=NOW, settings=SETTINGS)


def said(actions: tuple[Action, ...]) -> Mapping[str, Any] | None:
    written = [each.status for each in actions if isinstance(each, WriteStatus)]
    return condition(written[-1]["conditions"], "RestartRequired") if written else None


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Stopping", "Unknown"])
def test_edited_machine_reports_restart_fields_once(phase: str) -> None:
    vm = a_machine(phase=phase, running={"generation": 1, "domain": RUNNING})
    actions = planning.plan(seen(vm, a_pod()))
    found = said(actions)
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "HardwareDiffers")
    fields = "spec.domain.devices.disks[data] (added), spec.domain.memory.guest"
    assert found["message"] == (
        f"testvm is starting with the earlier spec, without these edits: {fields}; to use them: kubectl virt restart testvm"
        if phase == "Scheduled"
        else f"the guest runs without these edits: {fields}; they count from its next start on: kubectl virt restart testvm"
    )
    assert [each for each in actions if isinstance(each, Emit)] == [Emit("Normal", "RestartRequired", found["message"])]
    vm["status"]["conditions"] = [dict(found)]
    again = planning.plan(seen(vm, a_pod()))
    assert not any(isinstance(each, WriteStatus | Emit | DeletePod) for each in again)


def test_condition_says_which_values_the_guest_would_take() -> None:
    vm = a_machine(running={"generation": 1, "domain": {**DESIRED, **RUNNING}}, domain={"liveChanges": ["memory.guest", "disk"]})
    found = said(planning.plan(seen(vm, a_pod())))
    assert found is not None
    assert found["message"].endswith("restart testvm; live, memory changes only for a guest with memory.maxGuest at its start")


def test_further_edit_changes_the_message_without_an_event() -> None:
    actions = planning.plan(seen(a_machine(KNOWN, running={"generation": 1, "domain": RUNNING}), a_pod()))
    found = said(actions)
    assert found is not None
    assert found["message"] != KNOWN["message"]
    assert not any(isinstance(each, Emit) for each in actions)


def test_restart_condition_is_cleared_when_the_spec_is_running() -> None:
    (write,) = planning.plan(seen(a_machine({"type": "Ready", "status": "True"}, KNOWN), a_pod()))
    assert write == WriteStatus({**a_machine()["status"], "conditions": [{"type": "Ready", "status": "True"}]})


@pytest.mark.parametrize("phase", ["Stopped", "Pending", "Scheduling"])
def test_restart_condition_is_cleared_without_a_guest(phase: str) -> None:
    vm = a_machine(KNOWN, phase=phase)
    assert planning.plan(seen(vm, a_pod()))[0] == WriteStatus({**vm["status"], "conditions": []})


def test_ready_and_the_pod_stay_as_they_are() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "GuestRunning"}
    actions = planning.plan(seen(a_machine(ready, running={"generation": 1, "domain": RUNNING}), a_pod()))
    (write,) = [each for each in actions if isinstance(each, WriteStatus)]
    assert ready in write.status["conditions"]
    assert write.status["phase"] == "Running"
    assert not any(isinstance(each, DeletePod) for each in actions)


def test_the_target_of_a_migration_is_the_pod_of_what_runs() -> None:
    before = a_machine()
    before["spec"]["domain"] = RUNNING
    after = a_machine(running={"generation": 1, "domain": RUNNING})

    def target(vm: dict[str, Any]) -> dict[str, Any]:
        return launcher_pod.target_pod(vm, a_migration(), 1, {}, SETTINGS, Placement())

    assert target(after) == target(before)
    assert target(a_machine()) != target(before)
    assert "data" in str(target(a_machine())["spec"]["volumes"])


def test_the_next_attempt_gets_the_pod_of_the_spec() -> None:
    vm = a_machine(phase="Stopped")
    pod = launcher_pod.launcher_pod(vm, 2, {}, SETTINGS, Placement())
    assert "data" in str(pod["spec"]["volumes"])
