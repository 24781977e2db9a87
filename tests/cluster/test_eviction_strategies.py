"""The cluster's evictionStrategy, a value of the chart: what an eviction does to guests of machines that say none themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt import conditions
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.test_drain import COUNTER, drain, evicted, migrations, seen, uncordoned
from tests.cluster.test_migrations import final_phase
from tests.cluster.test_upgrade import ticks
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DEFAULT = "LiveMigrateIfPossible"
"""The chart's."""
BOUND = {"name": "default", "type": "bridge"}
"""A card with which a guest cannot move: it has its pod's own address."""


@pytest.fixture(scope="module", autouse=True)
def chart(system: Kubectl) -> Iterator[None]:
    """The chart has its own default again afterwards."""
    try:
        yield
    finally:
        release.install()
        obeyed(system, DEFAULT)


def give(system: Kubectl, strategy: str) -> None:
    """Have a strategy be the cluster's."""
    release.install(f"evictionStrategy={strategy}")
    obeyed(system, strategy)


def obeyed(system: Kubectl, strategy: str) -> None:
    """Wait until there is no virt-controller of another strategy, which would judge evictions still."""
    flag = f"--eviction-strategy={strategy}"

    def holds() -> bool:
        pods = system.json("get", "pods", "-l", "kubevirt.io=virt-controller")["items"]
        return bool(pods) and all(flag in pod["spec"]["containers"][0]["args"] for pod in pods)

    eventually(holds, timeout=90, what=f"all of virt-controller has {flag}")


def bound(name: str) -> dict[str, Any]:
    found = linux_vm(name)
    found["spec"]["domain"]["devices"]["interfaces"] = [BOUND]
    return found


def together(kubectl: Kubectl, first: dict[str, Any], second: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """Start two machines whose guests count on one node, which they may leave; return it, and how far they have counted."""
    names = [each["metadata"]["name"] for each in (first, second)]
    kubectl.apply(first)
    kubectl("wait", "vm", names[0], "--for=condition=Ready", "--timeout=120s", timeout=130)
    node = str(seen(kubectl, names[0])["status"]["nodeName"])
    second["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    kubectl.apply(second)
    kubectl("wait", "vm", names[1], "--for=condition=Ready", "--timeout=120s", timeout=130)
    kubectl("patch", "vm", names[1], "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": None}}))  # counts from the next place on
    for name in names:
        with console(kubectl, name) as guest:
            guest.expect("GUEST-READY", timeout=90)
            guest.type(COUNTER)
            guest.expect(r"tick 1\b", timeout=60)
    return node, {name: ticks(kubectl, name)[-1] for name in names}


def counts_on(kubectl: Kubectl, name: str, counted: int) -> None:
    """See that a guest goes on counting where it was, and that its machine was not started anew."""
    now = ticks(kubectl, name)
    assert now == list(range(now[0], now[0] + 3))
    assert now[0] > counted
    assert len(seen(kubectl, name)["status"]["attempts"]) == 1


def moved(kubectl: Kubectl, name: str, node: str, counted: int) -> None:
    """See that a guest has left a node by one Migration, and counts on."""
    assert seen(kubectl, name)["status"]["nodeName"] != node
    assert [each["status"]["phase"] for each in migrations(kubectl, name)] == ["Succeeded"]
    counts_on(kubectl, name, counted)


def starts_again(kubectl: Kubectl, name: str, node: str) -> None:
    """See that an eviction had a guest power off, and that it boots on another node than the one that is drained."""

    def elsewhere() -> bool:
        status = seen(kubectl, name)["status"]
        return status["phase"] == "Running" and status.get("nodeName") not in (None, node)

    eventually(elsewhere, timeout=150, what=f"{name} runs on another node")
    ended, *_ = seen(kubectl, name)["status"]["attempts"]
    assert ended["result"] == "Stopped"
    assert "evicted, as by kubectl drain" in ended["message"]
    assert not migrations(kubectl, name)
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=90)


def test_by_external_guests_stay_until_another_program_has_moved_them(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    give(system, "External")
    node, counted = together(kubectl, linux_vm("left-alone"), bound("left-alone-too"))
    said = [f"virtual machine {name} is moved by another program (evictionStrategy External)" for name in counted]
    pods = {name: seen(kubectl, name)["status"]["podName"] for name in counted}
    with uncordoned(kubectl, node):
        for name, words in zip(counted, said, strict=True):
            assert all(words in evicted(kubectl, pods[name], dry=dry) for dry in (True, False))
        held = drain(kubectl, node, *counted, timeout=12)
        assert held.returncode != 0
        assert all(words in held.stderr for words in said), held.stderr
        assert not any(migrations(kubectl, name) for name in counted)
        assert {name: seen(kubectl, name)["status"]["podName"] for name in counted} == pods
        for name, count in counted.items():
            counts_on(kubectl, name, count)

        by_hand = kubectl.create(migration("left-alone"))["metadata"]["name"]
        assert final_phase(kubectl, by_hand) == "Succeeded"
        done = drain(kubectl, node, "left-alone", timeout=60)
        assert done.returncode == 0, done.stderr
        moved(kubectl, "left-alone", node, counted["left-alone"])


def test_by_live_migrate_if_possible_a_guest_moves_and_one_that_cannot_is_shut_down(
    kubectl: Kubectl, system: Kubectl, testguest: None
) -> None:
    give(system, "LiveMigrateIfPossible")
    node, counted = together(kubectl, linux_vm("movable"), bound("immovable"))
    with uncordoned(kubectl, node):
        assert "moves to another node first" in evicted(kubectl, seen(kubectl, "movable")["status"]["podName"], dry=True)
        done = drain(kubectl, node, *counted, timeout=200)
        assert done.returncode == 0, done.stderr
        assert "the guest of virtual machine movable moves to another node first" in done.stderr
        assert "immovable cannot migrate" not in done.stderr
        moved(kubectl, "movable", node, counted["movable"])
        starts_again(kubectl, "immovable", node)


def test_by_shutdown_a_guest_is_shut_down_that_could_move_and_one_moves_whose_machine_says_so(
    kubectl: Kubectl, system: Kubectl, testguest: None
) -> None:
    give(system, "Shutdown")
    node, counted = together(kubectl, linux_vm("shut-down"), linux_vm("says-so", evictionStrategy="LiveMigrate"))
    with uncordoned(kubectl, node):
        pod = seen(kubectl, "shut-down")["status"]["podName"]
        granted(kubectl, pod)
        status = seen(kubectl, "shut-down")["status"]
        assert (status["podName"], condition(status["conditions"], conditions.DISRUPTION_TARGET)) == (pod, None)
        done = drain(kubectl, node, *counted, timeout=200)
        assert done.returncode == 0, done.stderr
        assert "virtual machine shut-down" not in done.stderr
        moved(kubectl, "says-so", node, counted["says-so"])
        starts_again(kubectl, "shut-down", node)


def granted(kubectl: Kubectl, pod: str) -> None:
    """See that an eviction would be granted, as a dry run, which ends nobody."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kubectl.namespace}}
    body = json.dumps({**eviction, "deleteOptions": {"dryRun": ["All"]}})
    kubectl("create", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction", "-f", "-", stdin=body)
