"""Live migration between the two nodes, on real parts."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest

from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, migration, shared_claim, with_disks
from tests.cluster.policies import a_policy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WRITTEN_MIB = 12
COUNTER = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n"


def running(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    kubectl.apply(manifest)
    kubectl("wait", "vm", manifest["metadata"]["name"], "--for=condition=Ready", "--timeout=90s", timeout=100)
    vm: dict[str, Any] = kubectl.json("get", "vm", manifest["metadata"]["name"])
    return vm


def other_node(kubectl: Kubectl, node: str) -> str:
    names = [each["metadata"]["name"] for each in kubectl.json("get", "nodes")["items"]]
    return str(next(name for name in names if name != node))


def final_phase(kubectl: Kubectl, name: str) -> str:
    """Return the phase in which a migration ends; it may wait for its turn before, behind those of other tests."""
    return str(
        eventually(
            lambda: (
                (found := kubectl.json("get", "migration", name).get("status", {}).get("phase")) in ("Succeeded", "Failed", "Cancelled")
                and found
            ),
            timeout=300,
            what=f"the end of migration {name}",
        )
    )


def last_tick(text: str) -> int:
    return int(re.findall(r"tick (\d+)", text)[-1])


def test_a_running_guest_moves_and_its_counter_goes_on(kubectl: Kubectl) -> None:
    vm = running(kubectl, linux_vm("mover"))
    target = other_node(kubectl, vm["status"]["nodeName"])
    with console(kubectl, "mover") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type(COUNTER)
        before = int(guest.expect(r"tick (\d+)").group(1))

    made = kubectl.create(migration("mover", node=target))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"

    moved = kubectl.json("get", "vm", "mover")
    assert moved["status"]["nodeName"] == target
    assert moved["status"]["podName"] != vm["status"]["podName"]
    with console(kubectl, "mover") as guest:
        ticks = [int(guest.expect(r"tick (\d+)\r?\n").group(1)) for _ in range(3)]
    assert ticks[-1] > before
    assert ticks == list(range(ticks[0], ticks[0] + 3))
    eventually(lambda: kubectl.try_run("get", "pod", vm["status"]["podName"]).returncode != 0, timeout=60, what="the source pod is gone")


def test_a_guest_with_a_shared_disk_moves_there_and_back(kubectl: Kubectl) -> None:
    kubectl.apply(shared_claim("travels"), blank_disk("travels"))
    kubectl("wait", "job", "make-travels", "--for=condition=Complete", "--timeout=120s", timeout=130)
    vm = running(kubectl, with_disks(linux_vm("traveller"), claim_disk("travels")))
    with console(kubectl, "traveller") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run("echo written-at-home | dd of=/dev/vda conv=fsync 2>/dev/null")
    home = vm["status"]["nodeName"]
    for target in (other_node(kubectl, home), home):
        made = kubectl.create(migration("traveller", node=target))
        assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, "traveller") as guest:
        guest.type("\n")
        assert "written-at-home" in guest.run("head -c 15 /dev/vda")


def test_disks_of_the_pod_alone_move_with_the_guest_there_and_back(kubectl: Kubectl) -> None:
    """An empty disk, and an overlay over a claim, while the guest writes to one of them."""
    kubectl.apply(shared_claim("golden"), blank_disk("golden"))
    kubectl("wait", "job", "make-golden", "--for=condition=Complete", "--timeout=120s", timeout=130)
    golden = claim_disk("golden")
    golden["source"]["ephemeral"] = True
    scratch = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "64Mi"}}
    manifest = with_disks(linux_vm("porter"), scratch, golden)
    manifest["metadata"]["labels"] = {"moves": "slowly"}
    vm = running(kubectl, manifest)
    read = "sync; echo 3 > /proc/sys/vm/drop_caches; for d in a b; do dd if=/dev/vd$d bs=1M iflag=direct skip=1 2>/dev/null | md5sum; done"

    def sums(guest: Console) -> list[str]:
        found = re.findall(r"\b[0-9a-f]{32}\b", guest.run(read, timeout=120))
        assert len(found) == 2
        return found

    with console(kubectl, "porter") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run(f"dd if=/dev/urandom of=/dev/vda bs=1M seek=1 count={WRITTEN_MIB} conv=fsync 2>/dev/null", timeout=120)
        guest.run("dd if=/dev/urandom of=/dev/vdb bs=1M seek=2 count=2 conv=notrunc,fsync 2>/dev/null")
        before = sums(guest)
        guest.run("(i=0; while :; do i=$((i+1)); echo $i | dd of=/dev/vda conv=notrunc,fsync 2>/dev/null; sleep 1; done) & true")
    home = vm["status"]["nodeName"]
    # So slowly that its figures are written while memory moves, after the disks: later than five seconds after the first ones.
    slowly = a_policy(kubectl, "slowly", machines={"moves": "slowly"}, bandwidth="8Mi")
    for target, policy in ((other_node(kubectl, home), slowly), (home, contextlib.nullcontext())):
        with policy:
            name = kubectl.create(migration("porter", node=target))["metadata"]["name"]
            assert final_phase(kubectl, name) == "Succeeded"
        status = kubectl.json("get", "migration", name)["status"]
        done = status["progress"]
        assert done["elapsedMilliseconds"] > 0
        if status.get("policy"):
            assert done["totalBytes"] > (128 + WRITTEN_MIB) << 20, done
            assert done["processedBytes"] > WRITTEN_MIB << 20, done
        with console(kubectl, "porter") as guest:
            guest.type("\n")
            assert sums(guest) == before
    conditions = kubectl.json("get", "vm", "porter")["status"]["conditions"]
    assert next(each["status"] for each in conditions if each["type"] == "Migratable") == "True"


def test_there_is_at_most_one_unfinished_migration_of_a_machine(kubectl: Kubectl) -> None:
    running(kubectl, linux_vm("once"))
    first = kubectl.create(migration("once", node="no-such-node"))

    second = kubectl.try_run("create", "-f", "-", stdin=json.dumps(migration("once")))

    assert second.returncode != 0
    assert first["metadata"]["name"] in second.stderr
    kubectl("delete", "migration", first["metadata"]["name"], "--timeout=60s", timeout=70)
    third = kubectl.create(migration("once"))
    assert final_phase(kubectl, third["metadata"]["name"]) == "Succeeded"


def test_deleting_an_unfinished_migration_leaves_the_guest_where_it_was(kubectl: Kubectl) -> None:
    vm = running(kubectl, linux_vm("stays"))
    made = kubectl.create(migration("stays", node="no-such-node"))
    eventually(
        lambda: kubectl.json("get", "migration", made["metadata"]["name"]).get("status", {}).get("phase"), timeout=60, what="a phase"
    )

    kubectl("delete", "migration", made["metadata"]["name"], "--timeout=60s", timeout=70)

    after = kubectl.json("get", "vm", "stays")
    assert after["status"]["podName"] == vm["status"]["podName"]
    assert after["status"]["phase"] == "Running"
    pods = kubectl.json("get", "pods", "-l", "vm.kubevirt.io/name=stays")["items"]
    assert [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")] == [vm["status"]["podName"]]


def test_a_migration_is_shown_as_it_goes_and_one_that_waits_is_called_off(kubectl: Kubectl) -> None:
    vm = running(kubectl, linux_vm("shown"))
    with console(kubectl, "shown") as guest:  # one that looks for its devices may not move slowly: docs/decisions/migration.md
        guest.expect("GUEST-READY", timeout=90)
    done = kubectl.try_run("virt", "migrate", "shown", "--wait", "--timeout", "3m", timeout=200)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    name = lines[0].removeprefix("migration.kubevirt.io/").removesuffix(" created")
    assert re.search(
        rf"migration\.kubevirt\.io/{name}: the guest moved to node \S+, it took \d+ s, of which it stood still for \d+ ms", lines[-1]
    )
    assert any(line.startswith("Running") for line in lines)
    migrated = kubectl.json("get", "migration", name)
    found = migrated["status"]["progress"]
    assert found["totalBytes"] > 64 << 20
    assert found["processedBytes"] > 0
    assert found["remainingBytes"] == 0
    assert 0 < found["downtimeMilliseconds"] < found["elapsedMilliseconds"]
    assert "100%" in kubectl("get", "migration", name)
    moved = kubectl.json("get", "vm", "shown")
    assert moved["status"]["nodeName"] != vm["status"]["nodeName"]

    over = kubectl.try_run("virt", "cancel-migration", "shown")
    assert (over.returncode, over.stderr) == (
        1,
        f"error: nothing to cancel: virtual machine {kubectl.namespace}/shown is not being migrated; "
        f"migration {name} moved it to node {moved['status']['nodeName']}\n",
    )
    waiting = kubectl.create(migration("shown", node="no-such-node"))["metadata"]["name"]
    called_off = kubectl("virt", "cancel-migration", "shown", "--wait", "--timeout", "1m", timeout=70)
    assert called_off.splitlines()[-1] == f"migration.kubevirt.io/{waiting}: cancelled; the guest stays on its node"
    assert kubectl.json("get", "vm", "shown")["status"]["podName"] == moved["status"]["podName"]
