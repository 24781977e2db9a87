"""Migrations that do not converge are told of, and end as their MigrationPolicy says, on real parts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt import progress
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.policies import a_policy
from tests.cluster.test_migrations import COUNTER, final_phase, last_tick, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WRITER = (
    "dd if=/dev/urandom of=/x bs=1M count=12 2>/dev/null; "
    "(while :; do dd if=/x of=/y bs=1M conv=notrunc 2>/dev/null; done) & echo WRIT''ES\n"
)
"""Writes memory faster than it is sent at 4 MiB a second: it copies, since random bytes are slow to come by where guests are emulated."""


CONVERGE_SECONDS = 90
"""Several times what a guest takes whose processors QEMU may slow down, and no time is enough for one that writes on as before."""


def writing(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Return a machine, chosen by the policy of its name, whose guest counts, and writes memory without end."""
    machine = linux_vm(name)
    machine["metadata"]["labels"] = {"policy": name}
    vm = running(kubectl, machine)
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type(WRITER)
        guest.expect("WRITES", timeout=60)
        guest.type(COUNTER)
        guest.expect(r"tick (\d+)")
    return vm


def memory_moves(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    """Return a Migration's status once some of the memory was sent, and some remains; None before that."""
    status: dict[str, Any] = kubectl.json("get", "migration", name).get("status") or {}
    figures = status.get("progress") or {}
    return status if figures.get("processedBytes") and figures.get("remainingBytes") and status["phase"] == "Running" else None


def stays(kubectl: Kubectl, before: dict[str, Any]) -> None:
    """See that a machine's guest is in the pod in which it was, and counts."""
    name = before["metadata"]["name"]
    after = kubectl.json("get", "vm", name)["status"]
    assert (after["podName"], after["phase"]) == (before["status"]["podName"], "Running")
    assert len(after["attempts"]) == 1
    ticks_on(kubectl, name)


def converging(kubectl: Kubectl, name: str) -> Mapping[str, Any] | None:
    """Return a Migration's condition that says whether it converges; None before it has one."""
    status = kubectl.json("get", "migration", name).get("status") or {}
    assert status.get("phase") != "Succeeded"
    return objects.condition(status.get("conditions"), progress.CONVERGING)


def events(kubectl: Kubectl, kind: str, name: str) -> list[str]:
    """Return what Events say of an object whose migration does not converge."""
    chosen = f"reason=MigrationNotConverging,involvedObject.kind={kind},involvedObject.name={name}"
    found = kubectl.json("get", "events", f"--field-selector={chosen}")["items"]
    return [each["message"] for each in found if "the guest writes its memory at" in each["message"]]


def ticks_on(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        first = last_tick(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(0))
        guest.expect(rf"tick {first + 2}\r?\n", timeout=60)


@pytest.fixture(scope="module")
def impatient(kubectl: Kubectl) -> dict[str, Any]:
    """A machine whose guest counts, and writes memory without end."""
    return writing(kubectl, "impatient")


def test_a_guest_whose_memory_moves_stays_and_counts_on_when_its_migration_is_called_off(
    kubectl: Kubectl, impatient: dict[str, Any]
) -> None:
    with a_policy(kubectl, "slow", machines={"policy": "impatient"}, bandwidth="2Mi", completionTimeoutPerGiB=600):
        made = kubectl.create(migration("impatient"))["metadata"]["name"]
        moving = eventually(lambda: memory_moves(kubectl, made), timeout=300, what="memory moves")
        said = kubectl("virt", "cancel-migration", "impatient", "--wait", "--timeout", "1m", timeout=70)
    assert moving["policy"] == "slow"
    assert said.splitlines()[-1] == f"migration.kubevirt.io/{made}: cancelled; the guest stays on its node"
    stays(kubectl, impatient)
    eventually(
        lambda: (
            [each["metadata"]["name"] for each in kubectl.json("get", "pods", "-l", "vm.kubevirt.io/name=impatient")["items"]]
            == [impatient["status"]["podName"]]
        ),
        timeout=60,
        what="the target's pod is gone",
    )


def test_a_guest_that_never_stops_writing_stays_when_its_time_is_over(kubectl: Kubectl, impatient: dict[str, Any]) -> None:
    chosen = {"policy": "impatient"}
    elsewhere = a_policy(kubectl, "a-namespace-without-it", machines=chosen, namespace="default", completionTimeoutPerGiB=900)
    with elsewhere, a_policy(kubectl, "impatient", machines=chosen, bandwidth="4Mi", completionTimeoutPerGiB=30):
        made = kubectl.create(migration("impatient"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Failed"
    status = kubectl.json("get", "migration", made)["status"]
    assert status["policy"] == "impatient"  # the other one would come first by its name
    assert status["options"]["completionTimeoutSeconds"] == 30
    assert "timed out: the guest did not arrive within 30 s (completionTimeoutPerGiB of MigrationPolicy impatient)" in status["message"]
    assert "the guest writes memory as fast as it is sent" in status["message"]
    stays(kubectl, impatient)


def test_of_two_migrations_of_such_a_guest_only_the_one_with_auto_converge_arrives(kubectl: Kubectl, impatient: dict[str, Any]) -> None:
    """On the same terms but for that one."""
    terms: dict[str, Any] = {"machines": {"policy": "impatient"}, "bandwidth": "8Mi", "completionTimeoutPerGiB": CONVERGE_SECONDS}
    with a_policy(kubectl, "unslowed", **terms):
        made = kubectl.create(migration("impatient"))["metadata"]["name"]
        told = eventually(lambda: converging(kubectl, made), timeout=300, what="the migration is told not to converge")
        assert told["status"] == "False"
        assert "the guest writes its memory at" in told["message"]
        assert final_phase(kubectl, made) == "Failed"
    status = kubectl.json("get", "migration", made)["status"]
    assert f"the guest did not arrive within {CONVERGE_SECONDS} s" in status["message"]
    assert "the guest writes memory as fast as it is sent" in status["message"]
    assert "allowAutoConverge" in status["message"]
    assert status["progress"]["iteration"] > 1
    stays(kubectl, impatient)

    with a_policy(kubectl, "slowed", allowAutoConverge=True, **terms):
        made = kubectl.create(migration("impatient"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"
    status = kubectl.json("get", "migration", made)["status"]
    assert (status["policy"], status["options"]["allowAutoConverge"]) == ("slowed", True)
    print(f"with auto-converge: {status['progress']}")
    after = kubectl.json("get", "vm", "impatient")["status"]
    assert after["nodeName"] == status["targetNode"] != impatient["status"]["nodeName"]
    assert len(after["attempts"]) == 1
    ticks_on(kubectl, "impatient")


def test_a_guest_that_never_stops_writing_arrives_where_it_may_be_paused(kubectl: Kubectl) -> None:
    with a_policy(kubectl, "pauses", machines={"policy": "pauses"}, bandwidth="4Mi", completionTimeoutPerGiB=50, allowPause=True):
        vm = writing(kubectl, "pauses")
        made = kubectl.create(migration("pauses"))["metadata"]["name"]
        told = eventually(lambda: converging(kubectl, made), timeout=300, what="the migration is told not to converge")
        assert (told["status"], told["reason"]) == ("False", progress.WRITES_FASTER)
        for kind, name in (("Migration", made), ("VirtualMachine", "pauses")):
            eventually(partial(events, kubectl, kind, name), timeout=60, what=f"the Event of the {kind}")
        assert final_phase(kubectl, made) == "Succeeded"
    after = kubectl.json("get", "vm", "pauses")["status"]
    assert after["podName"] != vm["status"]["podName"]
    ticks_on(kubectl, "pauses")


def test_several_connections_carry_a_guest(kubectl: Kubectl) -> None:
    with a_policy(
        kubectl, "parallel", machines={"policy": "parallel"}, parallelConnections=4, allowAutoConverge=True, maxDowntimeMilliseconds=800
    ):
        machine = linux_vm("parallel")
        machine["metadata"]["labels"] = {"policy": "parallel"}
        running(kubectl, machine)
        with console(kubectl, "parallel") as guest:
            guest.expect("GUEST-READY", timeout=120)  # QEMU's memory grows while a guest that boots moves
        made = kubectl.create(migration("parallel"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"


def test_post_copy_is_refused_with_the_reason(kubectl: Kubectl) -> None:
    refused = kubectl.try_run(
        "create",
        "-f",
        "-",
        stdin='{"apiVersion":"kubevirt.io/v1alpha1","kind":"MigrationPolicy","metadata":{"name":"p"},"spec":{"allowPostCopy":true}}',
    )
    assert refused.returncode != 0
    assert "spec.allowPostCopy" in refused.stderr
