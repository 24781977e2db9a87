from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import pytest

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.objects import Object, name_of, uid_of
from apiserver.client.informer import Informer
from apiserver.client.store import Store
from controller.reconcilers.indexes import (
    BY_HELD_STORAGE,
    BY_OWNER,
    BY_STORAGE,
    MAX_NAMESAKES,
    Informers,
    held_storage_of_vm,
    storage_of_vm,
)
from controller.reconcilers.nodes.node_reports import Unreachable, unreachable_of
from controller.reconcilers.pods.ownership import owners_of
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines.gathering import Gathering
from controller.reconcilers.virtual_machines.reconciler import VirtualMachines
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NONE: Any = None
SETTINGS = Settings("launcher")
RAN = "2026-01-01T00:00:10Z"


def claim(name: str = "data", **said: Any) -> Object:
    return {"name": name, "type": "PersistentVolumeClaim", "source": {"name": name}, **said}


def file(*, read_only: bool = False) -> Object:
    return {"name": "file", "type": "HostDisk", "source": {"path": "/srv/a"}, "readOnly": read_only}


def a_machine(name: str, *disks: Object, namespace: str = "default", phase: str = "", node: str = "", **spec: Any) -> Object:
    result = {"result": "Failed", "runningTime": RAN} if phase == "Failed" else {}
    vm = a_vm(phase=phase, attempts=[an_attempt(1, **result)] if phase else None, domain={"devices": {"disks": list(disks)}}, **spec)
    vm["metadata"] |= {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    if node:
        vm["status"]["nodeName"] = node
    return vm


def known(*machines: Object) -> Informers:
    vms = Store({BY_STORAGE: storage_of_vm, BY_HELD_STORAGE: held_storage_of_vm})
    for each in machines:
        vms.apply(each)
    return Informers(cast(Informer, vms), NONE, NONE, NONE, NONE, NONE, NONE, NONE)


def files_in_use(vm: Object, *others: Object, node: str = "node1") -> tuple[str, ...]:
    return Gathering(NONE, NONE, SETTINGS, known(vm, *others), NONE, targets=NONE, elapsed=NONE)._files_in_use(vm, a_pod(node=node))


def rivals(vm: Object, *others: Object) -> list[str]:
    found = Gathering(NONE, NONE, SETTINGS, known(*others), NONE, targets=NONE, elapsed=NONE)._rivals(vm)
    return [name_of(each) for each in found]


STARTS = a_machine("vm", file(), phase="Scheduling")
HELD = "/srv/a of node node1 by "


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (a_machine("other", file(), claim(), phase="Running", node="node1"), (f"{HELD}virtual machine other",)),
        (a_machine("vm", file(), namespace="elsewhere", phase="Running", node="node1"), (f"{HELD}a virtual machine of another namespace",)),
        (a_machine("other", file(), phase="Running", node="node2"), ()),
        (a_machine("other", file(), phase="Scheduling"), ()),
    ],
    ids=["on this node", "of another namespace", "on another node", "without a guest"],
)
def test_host_file_is_awaited_on_its_node_without_foreign_names(other: Object, found: tuple[str, ...]) -> None:
    assert files_in_use(STARTS, other) == found
    assert files_in_use(STARTS, other, node="") == ()


def test_host_file_that_both_only_read_is_not_awaited() -> None:
    reads = a_machine("vm", file(read_only=True), phase="Scheduling")
    assert files_in_use(reads, a_machine("other", file(read_only=True), phase="Running", node="node1")) == ()


def test_machines_of_one_name_are_two_that_have_a_file() -> None:
    others = (a_machine("other", file(), namespace=each, phase="Running", node="node1") for each in ("default", "elsewhere"))
    assert files_in_use(STARTS, *others) == (f"{HELD}virtual machine other", f"{HELD}a virtual machine of another namespace")


def test_machines_that_are_off_do_not_hide_who_has_a_file() -> None:
    off = (a_machine(f"a{number}", file(), namespace="a") for number in range(MAX_NAMESAKES))
    assert len(files_in_use(STARTS, *off, a_machine("other", file(), phase="Running", node="node1"))) == 1


def test_many_machines_with_the_same_storage_are_sampled() -> None:
    many = [a_machine(f"a{number:03}", claim(), file(), phase="Running", node="node1") for number in range(MAX_NAMESAKES + 9)]
    assert len(rivals(a_machine("vm", claim()), *many)) == MAX_NAMESAKES
    assert len(files_in_use(STARTS, *many)) == MAX_NAMESAKES - 1


def test_machine_is_not_its_own_rival() -> None:
    vm = a_machine("vm", claim("a"), claim("b"), phase="Failed")
    others = (a_machine("vm", claim("a"), phase="Running"), a_machine("other", claim("a"), claim("b"), phase="Running"))
    assert rivals(vm, *others) == ["other"]


def test_a_guest_that_runs_has_no_rivals() -> None:
    assert rivals(a_machine("vm", claim(), phase="Running"), a_machine("other", claim(), phase="Running")) == []


def woken(old: Object | None, new: Object | None) -> list[str]:
    waits = [a_machine("for-data", claim()), a_machine("for-other", claim("other"))]
    machines = VirtualMachines(NONE, NONE, Settings(launcher_image="i"), known(*waits), NONE, NONE)
    return [name_of(each) for each in machines._who_may_wait_for_its_disks(old, new)]


RUNS, CRASHED = (a_machine("first", claim(), phase=phase) for phase in ("Running", "Failed"))
HALTED = a_machine("first", claim(), phase="Failed", runStrategy="Halted")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (RUNS, CRASHED, ["for-data"]),
        (RUNS, None, ["for-data"]),
        (RUNS, HALTED, ["for-data"]),
        (CRASHED, HALTED, ["for-data"]),
        (CRASHED, None, ["for-data"]),
        (RUNS, RUNS, []),
        (CRASHED, CRASHED, []),
        (CRASHED, RUNS, []),
        (HALTED, HALTED, []),
        (None, RUNS, []),
        (RUNS, a_machine("first", claim("other"), phase="Failed"), ["for-data"]),
    ],
)
def test_waiting_machines_are_requeued_when_disks_are_released(old: Object | None, new: Object | None, found: list[str]) -> None:
    assert woken(old, new) == found


@pytest.mark.parametrize("phase", ["Failed", "Scheduling"])
def test_waiting_machines_are_requeued_when_disks_change(phase: str) -> None:
    old = a_machine("first", claim(), phase=phase)
    assert woken(old, a_machine("first", claim("other"), phase=phase)) == ["for-data"]
    assert woken(old, a_machine("first", claim(readOnly=True), phase=phase)) == ["for-data"]


def test_waiting_machines_are_requeued_when_a_guest_lost_a_disk() -> None:
    """The edit came earlier; the claim is free when the guest's running form loses the disk."""
    edited, done = (a_machine("first", phase="Running") for _ in range(2))
    edited["status"]["running"] = {"generation": 1, "domain": {"devices": {"disks": [claim()]}}}
    assert woken(edited, done) == ["for-data"]


@dataclass
class Server:
    """The API server, and reports of node1, which is lost."""

    vm: Object
    pods: list[Object]
    fenced: bool

    async def get(self, *_: Any) -> Object:
        return self.vm

    async def list(self, *_: Any, **__: Any) -> Object:
        return {"items": self.pods}

    def sealed_pods(self) -> dict[str, frozenset[str]]:
        return {} if self.fenced else {"node1": frozenset({uid_of(a_pod())})}

    def promised_pods(self, _: str) -> None:
        return None

    def is_virtual(self, _: str) -> bool:
        return False

    async def unreachable(self, _: Any) -> Unreachable:
        return unreachable_of({"node1": 0.0}, missing=(), off=("node1",) if self.fenced else ())


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_lost_pod_ends_nothing_in_an_old_copy(fenced: bool) -> None:
    """A migration moved the guest away before its source was lost, and the informers have not seen that."""
    old, moved = a_pod(), a_pod(migration="move", node="node2")
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    live = {**vm, "status": {**vm["status"], "podName": name_of(moved), "podUID": uid_of(moved), "nodeName": "node2"}}
    pods = Informer(NONE, PODS, indexers={BY_OWNER: owners_of})
    pods.remember(old)
    informers = dataclasses.replace(known(vm), pods=pods)
    server: Any = Server(live, [old, moved], fenced)
    gathering = Gathering(server, NONE, SETTINGS, informers, server, targets=NONE, elapsed=lambda: 0.0)
    found, its_pods, _ = await gathering._pods(vm, [])
    assert (found, its_pods) == (live, (old, moved))
