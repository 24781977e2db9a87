from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from controller.reconcilers.actions import Action, WriteStatus
from controller.reconcilers.settings import Settings, WorkloadUpdate
from controller.reconcilers.virtual_machines import outdated
from controller.reconcilers.virtual_machines import virtual_machine_plan as planning
from controller.reconcilers.virtual_machines.observed import Observed
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEW, OLD = "registry.example/virt-launcher:v2", "registry.example/virt-launcher:v1"
SETTINGS = Settings(launcher_image=NEW)
STUCK = {"type": "Migratable", "status": "False", "reason": "NotMigratable", "message": "it has a host device"}


def a_machine(*conditions: dict[str, Any], phase: str = "Running", **spec: Any) -> dict[str, Any]:
    ended: dict[str, Any] = {"endTime": "2026-01-01T11:00:00Z", "result": "Stopped"} if phase == "Stopped" else {}
    vm = a_vm(phase=phase, attempts=[an_attempt(nodeName="node1", **ended)], **spec)
    vm["status"] |= {"nodeName": "node1", "conditions": list(conditions)}
    return vm


def launcher(image: str, **rest: Any) -> dict[str, Any]:
    pod = a_pod(**rest)
    pod["spec"]["containers"][0]["image"] = image
    return pod


def seen(vm: dict[str, Any], *pods: dict[str, Any], settings: Settings = SETTINGS, **more: Any) -> Observed:
    return Observed(vm=vm, pods=pods, claims=more.pop("claims", {}), now=NOW, settings=settings, **more)


def said(actions: tuple[Action, ...]) -> Mapping[str, Any] | None:
    written = [each.status for each in actions if isinstance(each, WriteStatus)]
    return condition(written[-1]["conditions"], "LauncherOutdated") if written else None


def with_strategy(strategy: Any, **more: Any) -> Settings:
    return dataclasses.replace(SETTINGS, workload_update=WorkloadUpdate(strategy), **more)


def test_a_machine_in_a_pod_of_this_release_says_nothing() -> None:
    assert planning.plan(seen(a_machine(), launcher(NEW))) == ()


def test_outdated_launcher_is_reported_once_with_both_images() -> None:
    vm = a_machine()
    found = said(planning.plan(seen(vm, launcher(OLD))))
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "WillMigrate")
    assert found["message"].startswith(f"virt-launcher has image {OLD}, but this version uses {NEW}; ")
    vm["status"]["conditions"] = [dict(found)]
    assert planning.plan(seen(vm, launcher(OLD))) == ()


def test_outdated_condition_is_cleared_in_a_current_pod() -> None:
    vm = a_machine({"type": "Ready", "status": "True"}, {"type": "LauncherOutdated", "status": "True"})
    (write,) = planning.plan(seen(vm, launcher(NEW)))
    assert isinstance(write, WriteStatus)
    assert write.status["conditions"] == [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize("phase", ["Stopped", "Pending"])
def test_outdated_condition_is_cleared_when_off(phase: str) -> None:
    vm = a_machine({"type": "LauncherOutdated", "status": "True"}, phase=phase, runStrategy="Halted")
    assert planning.plan(seen(vm))[0] == WriteStatus({**vm["status"], "conditions": []})


def test_image_rewritten_by_a_webhook_is_current() -> None:
    mirror = "mirror.example/virt-launcher:v2"
    assert outdated.is_outdated(launcher(mirror), SETTINGS)
    assert not outdated.is_outdated(launcher(mirror), dataclasses.replace(SETTINGS, rewritten_images=(mirror,)))


def test_a_pod_that_names_no_image_is_not_judged() -> None:
    assert not outdated.is_outdated(a_pod(), SETTINGS)
    assert not outdated.is_outdated(None, SETTINGS)


def test_reported_image_is_one_bounded_line() -> None:
    found = said(planning.plan(seen(a_machine(), launcher("x\n" * 5000))))
    assert found is not None
    assert "\n" not in found["message"]
    assert len(found["message"]) < 600


@pytest.mark.parametrize(
    ("update", "eviction", "is_movable", "reason"),
    [
        ("LiveMigrate", "LiveMigrateIfPossible", True, "WillMigrate"),
        ("LiveMigrate", "LiveMigrateIfPossible", False, "Stays"),
        ("LiveMigrate", "Shutdown", True, "WillMigrate"),
        ("LiveMigrate", "External", True, "Stays"),
        ("Evict", "LiveMigrateIfPossible", True, "WillMigrate"),
        ("Evict", "LiveMigrateIfPossible", False, "WillBeEvicted"),
        ("Evict", "Shutdown", False, "WillBeEvicted"),
        ("Evict", "Shutdown", True, "WillMigrate"),
        ("Evict", "LiveMigrate", False, "Stays"),
        ("Evict", "External", False, "Stays"),
        ("None", "LiveMigrateIfPossible", True, "Stays"),
        ("None", "Shutdown", False, "Stays"),
    ],
)
def test_upgrade_way_follows_chart_and_machine_strategies(update: Any, eviction: Any, *, is_movable: bool, reason: str) -> None:
    conditions = () if is_movable else (STUCK,)
    of_the_machine = outdated.way(a_machine(*conditions, evictionStrategy=eviction), {}, with_strategy(update))
    of_the_cluster = outdated.way(a_machine(*conditions), {}, with_strategy(update, eviction_strategy=eviction))
    assert of_the_machine == of_the_cluster
    assert of_the_machine.reason == reason
    assert ("it has a host device" in of_the_machine.words) == (not is_movable and eviction != "External")


def test_unmigratable_guest_is_not_advised_to_migrate() -> None:
    nothing_moves_it = "no automatic update, because the chart's workloadUpdate.strategy is None: "
    for conditions, advice in (
        ((), "migrate or restart the machine"),
        ((STUCK,), "restart the machine, since the guest cannot migrate (it has a host device)"),
    ):
        assert outdated.way(a_machine(*conditions), {}, with_strategy("None")).words == nothing_moves_it + advice


def test_single_node_claim_keeps_a_guest_in_place() -> None:
    disk = {"name": "a", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    vm = a_machine(domain={"memory": {"guest": "128Mi"}, "devices": {"disks": [disk]}})
    found = outdated.way(vm, {"data": {"spec": {"accessModes": ["ReadWriteOnce"]}}}, SETTINGS)
    assert (found.reason, "PersistentVolumeClaim data is not ReadWriteMany" in found.words) == ("Stays", True)
