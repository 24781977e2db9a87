from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.spec import hot_plug
from controller.reconcilers.migrations.migratable import Barrier, barrier, why_not
from tests.unit.controller.reconcilers.builders import a_vm

LONELY = {"spec": {"accessModes": ["ReadWriteOnce"]}}


def a_machine(*conditions: dict[str, Any], disks: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    vm = a_vm(phase="Running")
    vm["spec"]["domain"]["devices"] = {"disks": disks or []}
    vm["status"]["conditions"] = list(conditions)
    return vm


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            {"reason": "NotMigratable", "message": "it has a host device"},
            Barrier("NotMigratable", "it has a host device", "it has a host device"),
        ),
        ({"reason": "OfItsOwn"}, Barrier("OfItsOwn", "the virtual machine cannot migrate", "OfItsOwn")),
        ({}, Barrier("NotMigratable", "the virtual machine cannot migrate", "its condition Migratable is False")),
    ],
    ids=["reason and message", "reason alone", "neither"],
)
def test_a_condition_that_is_false_is_in_the_way(said: dict[str, Any], found: Barrier) -> None:
    vm = a_machine({"type": "Migratable", "status": "False", **said})

    assert barrier(vm, {}) == found
    assert why_not(vm, {}) == found.in_short


@pytest.mark.parametrize("status", ["True", "Unknown", None])
def test_any_other_condition_is_not(status: str | None) -> None:
    vm = a_machine(*([{"type": "Migratable", "status": status}] if status else []))

    assert barrier(vm, {}) is None
    assert why_not(vm, {}) == ""


def test_single_node_claims_block_migration_and_condition_wins() -> None:
    disk = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
    vm = a_machine(disks=[disk])
    short = "PersistentVolumeClaim data is not ReadWriteMany"

    assert barrier(vm, {"data": LONELY}) == Barrier(
        "DisksNotShared", (f"{short}: two nodes cannot mount it at the same time (disk 'root')"), short
    )
    assert barrier(vm, {"data": {"spec": {"accessModes": ["ReadWriteMany"]}}}) is None
    vm["status"]["conditions"] = [{"type": "Migratable", "status": "False", "reason": "NotMigratable", "message": "it has a host device"}]
    assert why_not(vm, {"data": LONELY}) == "it has a host device"


def test_recorded_pod_of_an_import_blocks_migration() -> None:
    disk = {"name": "x", "type": "PersistentVolumeClaim", "source": {"name": "data", "import": {"http": {"url": "http://images/x"}}}}
    vm = a_machine(disks=[disk])
    shared = {"data": {"spec": {"accessModes": ["ReadWriteMany"]}}}
    volume = {"attachPodName": hot_plug.pod_name(vm, hot_plug.kept(vm)[0]), "attachPodUID": "pod-of-the-claim"}
    vm["status"]["volumeStatus"] = [{"name": "x", "hotplugVolume": volume}]
    why = "disk 'x': its image is being imported"

    assert barrier(vm, shared) == Barrier("NotMigratable", why, why)
    vm["status"]["devices"] = [{"kind": "disk", "name": "x"}]
    assert barrier(vm, shared) is None


def test_unsupported_launcher_is_reported_first() -> None:
    ready = {"type": "Ready", "status": "Unknown", "reason": "LauncherNotUnderstood"}
    vm = a_machine(ready, {"type": "Migratable", "status": "False", "reason": "NotMigratable"})

    assert why_not(vm, {}) == "its node's virt-handler and its virt-launcher have incompatible versions"
