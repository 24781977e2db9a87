from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt.lifecycle import conditions
from tests.cluster.drains import counted, drain, ended, migrations, refused, refused_drain, rehearsed, runs_elsewhere, together, uncordoned
from tests.cluster.guests import counting_vm, counts_on
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import migration
from tests.testbed import release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DEFAULT = "LiveMigrateIfPossible"
BOUND = {"name": "default", "type": "bridge"}
"""This guest cannot migrate, because it has its pod's address."""


@pytest.fixture(scope="module", autouse=True)
def chart(system: Kubectl) -> Iterator[None]:
    try:
        yield
    finally:
        if not is_obeyed(DEFAULT)(controllers(system)):
            give(system, DEFAULT)


def give(system: Kubectl, strategy: str) -> None:
    release.install(*([] if strategy == DEFAULT else [f"evictionStrategy={strategy}"]))
    system.api.until_list("pods", is_obeyed(strategy), timeout=90, what=f"all of virt-controller obeys {strategy}", label_selector=LABEL)


LABEL = "kubevirt.io=virt-controller"


def controllers(system: Kubectl) -> list[Object]:
    return system.api.list("pods", label_selector=LABEL)


def is_obeyed(strategy: str) -> Callable[[list[Object]], bool]:
    flag = f"--eviction-strategy={strategy}"
    return lambda pods: bool(pods) and all(flag in pod["spec"]["containers"][0]["args"] for pod in pods)


def bound(name: str) -> dict[str, Any]:
    found = counting_vm(name)
    found["spec"]["domain"]["devices"]["interfaces"] = [BOUND]
    return found


def moved(kubectl: Kubectl, name: str, node: str, before: int) -> None:
    status = kubectl.api.get("vm", name)["status"]
    assert (status["nodeName"] != node, len(status["attempts"])) == (True, 1)
    assert [each["status"]["phase"] for each in migrations(kubectl, name)] == ["Succeeded"]
    counts_on(kubectl, name, before)


def starts_again(kubectl: Kubectl, name: str, node: str) -> None:
    status = runs_elsewhere(kubectl, name, node, timeout=150)["status"]
    ended, *_ = status["attempts"]
    assert ended["result"] == "Stopped"
    assert "evicted, as by kubectl drain" in ended["message"]
    assert not migrations(kubectl, name)
    counts_on(kubectl, name, 0)


def test_external_guests_stay_until_another_program_moves_them(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    give(system, "External")
    names = ("left-alone", "left-alone-too")
    node = together(kubectl, counting_vm(names[0]), bound(names[1]))
    before = counted(kubectl, *names)
    said = [f"virtual machine {name} has evictionStrategy External, so another program must move it" for name in names]
    pods = {name: kubectl.api.get("vm", name)["status"]["podName"] for name in names}
    with uncordoned(kubectl, node):
        for name, words in zip(names, said, strict=True):
            assert all(words in ask(kubectl, pods[name]) for ask in (rehearsed, refused))
        with refused_drain(kubectl, node, names, lambda text: all(words in text for words in said)):
            assert not migrations(kubectl, *names)
            for name, number in before.items():
                counts_on(kubectl, name, number)
        machines = {name: kubectl.api.get("vm", name)["status"] for name in names}
        assert {name: each["podName"] for name, each in machines.items()} == pods
        assert {len(each["attempts"]) for each in machines.values()} == {1}

        by_hand = kubectl.api.create(migration("left-alone"))["metadata"]["name"]
        assert ended(kubectl, by_hand)["status"]["phase"] == "Succeeded"
        done = drain(kubectl, node, "left-alone", timeout=60)
        assert done.returncode == 0, done.stderr
        moved(kubectl, "left-alone", node, before["left-alone"])


def test_shutdown_strategy_ends_guests_except_migrating_ones(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    give(system, "Shutdown")
    names = ("shut-down", "says-so")
    node = together(kubectl, counting_vm(names[0]), counting_vm(names[1], evictionStrategy="LiveMigrate"))
    before = counted(kubectl, *names)
    with uncordoned(kubectl, node):
        pod = kubectl.api.get("vm", "shut-down")["status"]["podName"]
        assert rehearsed(kubectl, pod) == ""
        status = kubectl.api.get("vm", "shut-down")["status"]
        assert (status["podName"], condition(status["conditions"], conditions.DISRUPTION_TARGET)) == (pod, None)
        done = drain(kubectl, node, *names, timeout=200)
        assert done.returncode == 0, done.stderr
        assert "virtual machine shut-down" not in done.stderr
        moved(kubectl, "says-so", node, before["says-so"])
        starts_again(kubectl, "shut-down", node)


def test_live_migrate_if_possible_shuts_unmovable_guests_down(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    give(system, DEFAULT)
    names = ("movable", "immovable")
    node = together(kubectl, counting_vm(names[0]), bound(names[1]))
    before = counted(kubectl, *names)
    with uncordoned(kubectl, node):
        assert "must move to another node first" in rehearsed(kubectl, kubectl.api.get("vm", "movable")["status"]["podName"])
        done = drain(kubectl, node, *names, timeout=200)
        assert done.returncode == 0, done.stderr
        assert "the guest of virtual machine movable must move to another node first" in done.stderr
        assert "immovable cannot migrate" not in done.stderr
        moved(kubectl, "movable", node, before["movable"])
        starts_again(kubectl, "immovable", node)
