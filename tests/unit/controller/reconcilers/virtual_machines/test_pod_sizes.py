from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import live_changes
from controller.reconcilers.actions import Action, ResizePod, WriteStatus
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.settings import Settings
from controller.reconcilers.virtual_machines import pod_sizes
from controller.reconcilers.virtual_machines.observed import Observed
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
MIB = 1 << 20


def a_machine(desired: int, runs: int, *, granted: int = 0, **status: Any) -> dict[str, Any]:
    domains = [{"memory": {"guest": f"{each}Mi", "maxGuest": "1Gi"}, "devices": {}} for each in (desired, runs)]
    vm = a_vm(phase="Running", attempts=[an_attempt(nodeName="node1")], domain=domains[0])
    vm["status"] |= {"nodeName": "node1", "observedGeneration": 1, "domain": {"liveChanges": list(live_changes.KNOWN)}}
    if desired != runs:
        vm["status"]["running"] = {"generation": 1, "domain": domains[1]}
    if granted:
        vm["status"]["podResize"] = {"guestMemoryBytes": granted * MIB}
    vm["status"] |= status
    return vm


def memory_for(vm: dict[str, Any], mebibytes: int) -> dict[str, Any]:
    return launcher_pod.resized(vm, {}, mebibytes * MIB)


def its_pod(vm: dict[str, Any], mebibytes: int, actual: int = 0, **condition: str) -> dict[str, Any]:
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": names.CONTAINER, "resources": memory_for(vm, mebibytes)}]
    pod["status"]["containerStatuses"] = [{"name": names.CONTAINER, "resources": memory_for(vm, actual or mebibytes)}]
    pod["status"]["conditions"] = [{"status": "True", **condition}] if condition else []
    return pod


def plan(vm: dict[str, Any], pod: dict[str, Any], **more: Any) -> tuple[Action, ...]:
    return pod_sizes.plan(Observed(vm=vm, pods=(pod,), claims={}, now=NOW, settings=Settings("launcher"), **more))


def told(actions: tuple[Action, ...]) -> Any:
    (write,) = actions
    assert isinstance(write, WriteStatus)
    return write.status["podResize"]


def resize(vm: dict[str, Any], pod: dict[str, Any], mebibytes: int) -> tuple[ResizePod, ...]:
    return (ResizePod(pod["metadata"]["name"], pod["metadata"]["uid"], memory_for(vm, mebibytes)),)


def refused(vm: dict[str, Any], pod: dict[str, Any], mebibytes: int) -> dict[str, str]:
    (request,) = (each.request for each in resize(vm, pod, mebibytes))
    return {request: "exceeded quota"}


def test_pod_grows_before_the_guest() -> None:
    vm = a_machine(512, 256)
    small = its_pod(vm, 256)
    assert plan(vm, small) == resize(vm, small, 512)
    assert told(plan(vm, its_pod(vm, 512, actual=256)))["reason"] == "PodResizeInProgress"
    assert told(plan(vm, its_pod(vm, 512))) == {"guestMemoryBytes": 512 * MIB}
    assert plan(a_machine(512, 256, granted=512), its_pod(vm, 512)) == ()
    again = a_machine(768, 256, granted=512)
    assert plan(again, its_pod(vm, 512)) == resize(again, small, 768)
    assert told(plan(again, its_pod(vm, 768, actual=512)))["guestMemoryBytes"] == 512 * MIB


def test_pod_shrinks_after_the_guest() -> None:
    pending = a_machine(256, 512, granted=512)
    large = its_pod(pending, 512)
    assert plan(pending, large) == ()
    entry = {"path": "spec.domain.memory.guest", "state": "Pending"}
    assert plan(a_machine(256, 256, granted=512, changes=[entry]), large) == ()
    assert plan(a_machine(256, 256, granted=512, observedGeneration=0), large) == ()
    released = a_machine(256, 256, granted=512)
    assert told(plan(released, large)) == {"guestMemoryBytes": 256 * MIB}
    withdrawn = a_machine(256, 256, granted=256)
    assert plan(withdrawn, large) == resize(withdrawn, large, 256)
    assert plan(withdrawn, its_pod(withdrawn, 256)) == ()


def test_pod_that_was_never_resized_keeps_its_size() -> None:
    vm = a_machine(256, 256)
    assert plan(vm, its_pod(vm, 300)) == plan(vm, its_pod(vm, 200)) == ()


@pytest.mark.parametrize("kind", ["PodResizePending", "PodResizeInProgress"])
def test_kubelets_reason_is_told(kind: str) -> None:
    vm = a_machine(512, 256)
    pod = its_pod(vm, 512, actual=256, type=kind, reason="Deferred", message="Node didn't have enough resource: memory")
    found = {"reason": "Deferred", "message": "Node didn't have enough resource: memory"}
    assert told(plan(vm, pod)) == found
    assert plan(a_machine(512, 256, podResize=found), pod) == ()


def test_refused_resize_is_told_and_not_repeated_at_once() -> None:
    vm = a_machine(512, 256)
    small, large = its_pod(vm, 256), its_pod(vm, 512)

    assert told(plan(vm, small, refusals=refused(vm, small, 512))) == {"reason": "PodResizeRefused", "message": "exceeded quota"}
    assert plan(a_machine(256, 256, granted=256), large, refusals=refused(vm, large, 256)) == ()


def test_refusal_of_another_request_does_not_stop_a_resize() -> None:
    vm = a_machine(512, 256)
    small = its_pod(vm, 256)
    for each in ({"refusal": "exceeded quota"}, {"refusals": {"a-disks-pod": "no"}}, {"refusals": refused(vm, small, 768)}):
        assert plan(vm, small, **each) == resize(vm, small, 512)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        ({"phase": "Stopping"}, {}),
        ({"domain": {"liveChanges": ["cpu.sockets"]}}, {}),
        ({"podUID": "another"}, {}),
        ({}, {"migrations": (a_migration(phase="Running"),)}),
    ],
)
def test_pod_keeps_its_size_where_the_guest_keeps_its_memory(status: dict[str, Any], more: dict[str, Any]) -> None:
    vm = a_machine(512, 256, **status)
    assert plan(vm, its_pod(vm, 256), **more) == ()


def test_pod_that_ends_is_not_resized() -> None:
    vm = a_machine(512, 256)
    pod = its_pod(vm, 256)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert plan(vm, pod) == ()
