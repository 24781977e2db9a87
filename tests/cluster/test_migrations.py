from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from apiserver.apis.meta import errors
from tests.cluster.api import in_phase, is_true
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, migration, shared_claim, tiny_vm, with_disks
from tests.cluster.policies import a_policy
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WRITTEN_MIB = 12


def running(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    kubectl.api.apply(manifest)
    return kubectl.api.ready("vm", manifest["metadata"]["name"], timeout=90)


def other_node(kubectl: Kubectl, node: str) -> str:
    names = [each["metadata"]["name"] for each in kubectl.api.list("nodes")]
    return str(next(name for name in names if name != node))


def final_phase(kubectl: Kubectl, name: str) -> str:
    over = kubectl.api.until(
        "migration", name, in_phase("Succeeded", "Failed", "Cancelled"), timeout=300, what=f"the end of migration {name}"
    )
    return str(over["status"]["phase"])


def last_tick(text: str) -> int:
    return int(re.findall(r"tick (\d+)", text)[-1])


def test_a_running_guest_moves_and_its_counter_goes_on(kubectl: Kubectl) -> None:
    vm = running(kubectl, tiny_vm("mover", run="counter"))
    target = other_node(kubectl, vm["status"]["nodeName"])
    with console(kubectl, "mover") as guest:
        before = int(guest.expect(r"tick (\d+)").group(1))

    made = kubectl.api.create(migration("mover", node=target))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"

    moved = kubectl.api.get("vm", "mover")
    assert moved["status"]["nodeName"] == target
    assert moved["status"]["podName"] != vm["status"]["podName"]
    with console(kubectl, "mover") as guest:
        guest.skip_replay()
        ticks = [int(guest.expect(r"tick (\d+)\r?\n").group(1)) for _ in range(3)]
    assert ticks[-1] > before
    assert ticks == list(range(ticks[0], ticks[0] + 3))
    kubectl.api.gone("pod", vm["status"]["podName"], timeout=60)


def settings(greeting: str, size: int = 0) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"greeting": greeting, "more": "x" * size}}


@pytest.mark.sample(2, "disks of guests that move")
def test_a_guest_with_a_shared_disk_moves_there_and_back(kubectl: Kubectl) -> None:
    """Its other disk is from a ConfigMap that changes meanwhile: the guest reads the bytes of its start."""
    kubectl.api.apply(shared_claim("travels"), blank_disk("travels"), settings("hello-from-home"))
    kubectl.api.until("job", "make-travels", is_true("Complete"), timeout=120, what="job make-travels is Complete")
    made_disk = {"name": "settings", "type": "ConfigMap", "device": "disk", "source": {"name": "settings"}}
    vm = running(kubectl, with_disks(linux_vm("traveller"), claim_disk("travels"), made_disk))

    def settings_seen(guest: Console) -> tuple[str, ...]:
        said = guest.run(
            "echo 3 > /proc/sys/vm/drop_caches; echo sum=$(dd if=/dev/vdb bs=4k iflag=direct 2>/dev/null | md5sum | cut -c1-32)"
            " file=$(cat /tmp/cd/greeting) errors=$(dmesg | grep -c 'vdb.*I/O\\|I/O.*vdb')"
        )
        return tuple(re.findall(r"sum=([0-9a-f]{32}) file=(\S+) errors=(\d+)", said)[-1])

    with console(kubectl, "traveller") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run("echo written-at-home | dd of=/dev/vda conv=fsync 2>/dev/null; mkdir -p /tmp/cd; mount -t iso9660 -o ro /dev/vdb /tmp/cd")
        before = settings_seen(guest)
    assert before[1:] == ("hello-from-home", "0")
    kubectl.api.apply(settings("another-greeting", 200_000))
    home = vm["status"]["nodeName"]
    for target in (other_node(kubectl, home), home):
        made = kubectl.api.create(migration("traveller", node=target))
        assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, "traveller") as guest:
        guest.type("\n")
        with never_again("a lost write"):
            assert "written-at-home" in guest.run("head -c 15 /dev/vda")
        with never_again("wrong bytes"):
            assert settings_seen(guest) == before
    kubectl.api.delete("vm", "traveller", timeout=60)


@pytest.mark.sample(2, "disks of guests that move")
def test_pod_only_disks_move_with_the_guest_and_back(kubectl: Kubectl) -> None:
    kubectl.api.apply(shared_claim("golden"), blank_disk("golden"))
    kubectl.api.until("job", "make-golden", is_true("Complete"), timeout=120, what="job make-golden is Complete")
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
    # Slow enough to write progress during the memory phase: over 5 s after the first figures.
    slowly = a_policy(kubectl, "slowly", machines={"moves": "slowly"}, bandwidth="8Mi")
    for target, policy in ((other_node(kubectl, home), slowly), (home, contextlib.nullcontext())):
        with policy:
            name = kubectl.api.create(migration("porter", node=target))["metadata"]["name"]
            assert final_phase(kubectl, name) == "Succeeded"
        status = kubectl.api.get("migration", name)["status"]
        done = status["progress"]
        assert done["elapsedMilliseconds"] > 0
        if status.get("policy"):
            assert done["totalBytes"] > (128 + WRITTEN_MIB) << 20, done
            assert done["processedBytes"] > WRITTEN_MIB << 20, done
        with console(kubectl, "porter") as guest:
            guest.type("\n")
            with never_again("wrong bytes"):
                assert sums(guest) == before
    conditions = kubectl.api.get("vm", "porter")["status"]["conditions"]
    assert next(each["status"] for each in conditions if each["type"] == "Migratable") == "True"
    kubectl.api.delete("vm", "porter", timeout=60)


def test_there_is_at_most_one_unfinished_migration_of_a_machine(kubectl: Kubectl) -> None:
    running(kubectl, tiny_vm("once"))
    first = kubectl.api.create(migration("once", node="no-such-node"))

    with pytest.raises(errors.StatusError, match=first["metadata"]["name"]):
        kubectl.api.create(migration("once"))
    kubectl.api.delete("migration", first["metadata"]["name"], timeout=60)
    third = kubectl.api.create(migration("once"))
    assert final_phase(kubectl, third["metadata"]["name"]) == "Succeeded"


def test_deleted_unfinished_migration_leaves_the_guest(kubectl: Kubectl) -> None:
    vm = running(kubectl, tiny_vm("stays"))
    made = kubectl.api.create(migration("stays", node="no-such-node"))
    kubectl.api.until("migration", made["metadata"]["name"], lambda found: found.get("status", {}).get("phase"), timeout=60, what="a phase")

    kubectl.api.delete("migration", made["metadata"]["name"], timeout=60)

    after = kubectl.api.get("vm", "stays")
    assert after["status"]["podName"] == vm["status"]["podName"]
    assert after["status"]["phase"] == "Running"
    pods = kubectl.api.list("pods", label_selector="vm.kubevirt.io/name=stays")
    assert [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")] == [vm["status"]["podName"]]


def test_migration_progress_is_shown_and_a_queued_one_cancelled(kubectl: Kubectl) -> None:
    vm = running(kubectl, tiny_vm("shown"))
    done = kubectl.try_run("virt", "migrate", "shown", "--wait", "--timeout", "3m", timeout=200)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    name = lines[0].removeprefix("migration.kubevirt.io/").removesuffix(" created")
    assert re.search(
        rf"migration\.kubevirt\.io/{name}: the guest moved to node \S+, it took \d+ s, with the guest paused for \d+ ms", lines[-1]
    )
    assert any(line.startswith("Running") for line in lines)
    migrated = kubectl.api.get("migration", name)
    found = migrated["status"]["progress"]
    assert found["totalBytes"] > 64 << 20
    assert found["processedBytes"] > 0
    assert found["remainingBytes"] == 0
    assert 0 < found["downtimeMilliseconds"] < found["elapsedMilliseconds"]
    assert "100%" in kubectl("get", "migration", name)
    moved = kubectl.api.get("vm", "shown")
    assert moved["status"]["nodeName"] != vm["status"]["nodeName"]

    over = kubectl.try_run("virt", "cancel-migration", "shown")
    assert (over.returncode, over.stderr) == (
        1,
        f"error: nothing to cancel: virtual machine {kubectl.namespace}/shown is not being migrated; "
        f"migration {name} moved it to node {moved['status']['nodeName']}\n",
    )
    waiting = kubectl.api.create(migration("shown", node="no-such-node"))["metadata"]["name"]
    called_off = kubectl("virt", "cancel-migration", "shown", "--wait", "--timeout", "1m", timeout=70)
    assert called_off.splitlines()[-1] == f"migration.kubevirt.io/{waiting}: cancelled; the guest stays on its node"
    assert kubectl.api.get("vm", "shown")["status"]["podName"] == moved["status"]["podName"]
