from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.lifecycle import progress
from tests.cluster.api import condition_of, in_phase
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import migration, tiny_vm
from tests.cluster.policies import a_policy
from tests.cluster.test_migrations import final_phase, last_tick, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WRITES = "counter,dirty=500"
"""The tiny guest dirties 39 MiB/s, ten times the migration's rate."""
MEMORY = "16Mi"
"""Small: it takes several iterations to count as not converging."""
WRITES_LESS = "counter,dirty=200"
"""Twice the migration's rate; at the least tick a second that auto-converge leaves, a tenth."""
CONVERGE_SECONDS = 90


def labelled(machine: dict[str, Any]) -> dict[str, Any]:
    machine["metadata"]["labels"] = {"policy": machine["metadata"]["name"]}
    machine["spec"]["domain"]["resources"] = {"requests": {"cpu": "500m"}}
    return machine


def writing(kubectl: Kubectl, name: str, run: str = WRITES) -> dict[str, Any]:
    machine = labelled(tiny_vm(name, run=run))
    machine["spec"]["domain"]["memory"]["guest"] = MEMORY
    vm = running(kubectl, machine)
    ticks_on(kubectl, name)
    return vm


def memory_moves(migration: dict[str, Any]) -> bool:
    status = migration["status"]
    return bool(status["phase"] == "Running" and status["progress"]["processedBytes"] and status["progress"]["remainingBytes"])


def stays(kubectl: Kubectl, before: dict[str, Any]) -> None:
    name = before["metadata"]["name"]
    after = kubectl.api.get("vm", name)["status"]
    assert (after["podName"], after["phase"]) == (before["status"]["podName"], "Running")
    assert len(after["attempts"]) == 1
    ticks_on(kubectl, name)


def converging(kubectl: Kubectl, name: str) -> dict[str, Any]:
    def is_told(migration: dict[str, Any]) -> bool:
        assert not in_phase("Succeeded")(migration)
        return bool(condition_of(migration, progress.CONVERGING))

    told = kubectl.api.until("migration", name, is_told, timeout=300, what="the migration is told not to converge")
    return condition_of(told, progress.CONVERGING)


def event(kubectl: Kubectl, kind: str, name: str) -> None:
    kubectl.api.until_list(
        "events",
        lambda found: any("the guest writes its memory at" in each["message"] for each in found),
        field_selector=f"reason=MigrationNotConverging,involvedObject.kind={kind},involvedObject.name={name}",
        timeout=60,
        what=f"the Event of the {kind}",
    )


def ticks_on(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        guest.skip_replay()
        first = last_tick(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(0))
        guest.expect(rf"tick {first + 2}\r?\n", timeout=60)


@pytest.fixture
def hasty(kubectl: Kubectl, testguest: None) -> Iterator[dict[str, Any]]:
    yield writing(kubectl, "hasty", WRITES_LESS)
    kubectl.api.delete("vm", "hasty")


@pytest.fixture(scope="module")
def impatient(kubectl: Kubectl) -> dict[str, Any]:
    return writing(kubectl, "impatient")


def test_guest_stays_when_its_running_migration_is_cancelled(kubectl: Kubectl, impatient: dict[str, Any]) -> None:
    with a_policy(kubectl, "slow", machines={"policy": "impatient"}, bandwidth="2Mi", completionTimeoutPerGiB=600):
        made = kubectl.api.create(migration("impatient"))["metadata"]["name"]
        moving = kubectl.api.until("migration", made, memory_moves, timeout=300, what="memory moves")["status"]
        said = kubectl("virt", "cancel-migration", "impatient", "--wait", "--timeout", "1m", timeout=70)
    assert moving["policy"] == "slow"
    assert said.splitlines()[-1] == f"migration.kubevirt.io/{made}: cancelled; the guest stays on its node"
    stays(kubectl, impatient)
    kubectl.api.until_list(
        "pods",
        lambda found: [each["metadata"]["name"] for each in found] == [impatient["status"]["podName"]],
        label_selector="vm.kubevirt.io/name=impatient",
        timeout=60,
        what="the target's pod is gone",
    )


def test_endlessly_writing_guest_stays_after_the_timeout(kubectl: Kubectl, impatient: dict[str, Any]) -> None:
    chosen = {"policy": "impatient"}
    elsewhere = a_policy(kubectl, "a-namespace-without-it", machines=chosen, namespace="default", completionTimeoutPerGiB=900)
    with elsewhere, a_policy(kubectl, "impatient", machines=chosen, bandwidth="4Mi", completionTimeoutPerGiB=30):
        made = kubectl.api.create(migration("impatient"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Failed"
    status = kubectl.api.get("migration", made)["status"]
    assert status["policy"] == "impatient"
    assert status["options"]["completionTimeoutSeconds"] == 30
    assert (
        "timed out: the migration did not complete within 30 s (completionTimeoutPerGiB of MigrationPolicy impatient)" in status["message"]
    )
    assert "the guest writes memory as fast as the migration sends it" in status["message"]
    stays(kubectl, impatient)


def test_auto_converge_lets_a_writing_guest_arrive(kubectl: Kubectl, hasty: dict[str, Any]) -> None:
    terms: dict[str, Any] = {"machines": {"policy": "hasty"}, "bandwidth": "8Mi", "completionTimeoutPerGiB": CONVERGE_SECONDS}
    with a_policy(kubectl, "unslowed", **terms):
        made = kubectl.api.create(migration("hasty"))["metadata"]["name"]
        told = converging(kubectl, made)
        assert told["status"] == "False"
        assert "the guest writes its memory at" in told["message"]
        assert final_phase(kubectl, made) == "Failed"
    status = kubectl.api.get("migration", made)["status"]
    assert f"the migration did not complete within {CONVERGE_SECONDS} s" in status["message"]
    assert "the guest writes memory as fast as the migration sends it" in status["message"]
    assert "allowAutoConverge" in status["message"]
    assert status["progress"]["iteration"] > 1
    stays(kubectl, hasty)

    with a_policy(kubectl, "slowed", allowAutoConverge=True, **terms):
        made = kubectl.api.create(migration("hasty"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"
    status = kubectl.api.get("migration", made)["status"]
    assert (status["policy"], status["options"]["allowAutoConverge"]) == ("slowed", True)
    print(f"with auto-converge: {status['progress']}")
    after = kubectl.api.get("vm", "hasty")["status"]
    assert after["nodeName"] == status["targetNode"] != hasty["status"]["nodeName"]
    assert len(after["attempts"]) == 1
    ticks_on(kubectl, "hasty")


def test_endlessly_writing_guest_arrives_if_it_may_be_paused(kubectl: Kubectl) -> None:
    with a_policy(kubectl, "pauses", machines={"policy": "pauses"}, bandwidth="4Mi", completionTimeoutPerGiB=50, allowPause=True):
        vm = writing(kubectl, "pauses")
        made = kubectl.api.create(migration("pauses"))["metadata"]["name"]
        told = converging(kubectl, made)
        assert (told["status"], told["reason"]) == ("False", progress.WRITES_FASTER)
        for kind, name in (("Migration", made), ("VirtualMachine", "pauses")):
            event(kubectl, kind, name)
        assert final_phase(kubectl, made) == "Succeeded"
    after = kubectl.api.get("vm", "pauses")["status"]
    assert after["podName"] != vm["status"]["podName"]
    ticks_on(kubectl, "pauses")


def test_several_connections_carry_a_guest(kubectl: Kubectl) -> None:
    with a_policy(
        kubectl, "parallel", machines={"policy": "parallel"}, parallelConnections=4, allowAutoConverge=True, maxDowntimeMilliseconds=800
    ):
        machine = tiny_vm("parallel")
        machine["metadata"]["labels"] = {"policy": "parallel"}
        running(kubectl, machine)
        with console(kubectl, "parallel") as guest:
            guest.expect("GUEST-READY", timeout=120)  # a booting guest's QEMU grows
        made = kubectl.api.create(migration("parallel"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"


def test_post_copy_is_refused_with_the_reason(kubectl: Kubectl) -> None:
    policy = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "p"}, "spec": {"allowPostCopy": True}}
    with pytest.raises(errors.StatusError, match=r"spec\.allowPostCopy"):
        kubectl.api.create(policy)
