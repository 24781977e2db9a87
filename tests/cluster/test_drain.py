from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import phases
from tests.cluster.api import is_true
from tests.cluster.drains import counted, drain, draining, migrations, on, refused_drain, runs_elsewhere, together, uncordoned
from tests.cluster.guests import counting_vm, counts_on
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import blank_disk, claim_disk, shared_claim, tiny_vm, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GUESTS = ("drain-a", "drain-b", "drain-c")


def stop_in_the_middle(kubectl: Kubectl, node: str, names: Sequence[str], said: Path) -> None:
    command = kubectl.command(*draining(node, *names))
    with said.open("w") as out, subprocess.Popen(command, env=kubectl.environment, stdout=out, stderr=subprocess.STDOUT) as going:
        try:
            eventually(lambda: "its migration is starting" in said.read_text(), timeout=60, interval=0.05, what="guests begin to move")
            kubectl.api.patch("node", node, {"spec": {"unschedulable": None}})
            kubectl.api.until_list("migrations", all_ended, timeout=120, what="what has begun is over")
            places = {name: kubectl.api.get("vm", name)["status"]["nodeName"] for name in names}
            stay = [name for name in names if places[name] == node]
            assert stay, said.read_text()
            done = {each["metadata"]["uid"] for each in migrations(kubectl, *names)}
            over = [f"node {node} was uncordoned, which ended its drain: the guest of virtual machine {name} stays" for name in stay]
            was = [said.read_text().count(each) for each in over]
            eventually(
                lambda: all(said.read_text().count(each) >= count + 2 for each, count in zip(over, was, strict=True)),
                timeout=60,
                what="kubectl is told twice more",
            )
            assert {each["metadata"]["uid"] for each in migrations(kubectl, *names)} == done
            assert [kubectl.api.get("vm", name)["status"]["nodeName"] for name in stay] == [node] * len(stay)
            assert going.poll() is None
        finally:
            going.terminate()


def all_ended(found: list[Object]) -> bool:
    return not any(map(phases.is_unfinished, found))


def has_begun(migration: Object) -> bool:
    return all(each["reason"] != "DrainEnded" for each in migration["status"]["conditions"])


@pytest.mark.sample(2, "drains")
def test_guests_move_before_their_node_is_drained(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    first, *others = GUESTS
    node = together(kubectl, counting_vm(first), *(counting_vm(name, evictionStrategy="LiveMigrate") for name in others))
    before = counted(kubectl, *GUESTS)
    with uncordoned(kubectl, node):
        stop_in_the_middle(kubectl, node, GUESTS, tmp_path / "said")
        done = drain(kubectl, node, *GUESTS, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "must move to another node first" in done.stderr
        for name in GUESTS:
            vm = kubectl.api.get("vm", name)
            assert (vm["status"]["phase"], vm["status"]["nodeName"] != node, len(vm["status"]["attempts"])) == ("Running", True, 1)
            counts_on(kubectl, name, before[name])
        begun = [each for each in migrations(kubectl, *GUESTS) if has_begun(each)]
        assert len(begun) == len(GUESTS)
        assert {each["status"]["phase"] for each in begun} == {"Succeeded"}
        assert {each["metadata"]["ownerReferences"][0]["kind"] for each in begun} == {"VirtualMachine"}


@pytest.mark.sample(2, "drains")
def test_unmovable_guest_blocks_its_drain_or_is_shut_down(kubectl: Kubectl, testguest: None) -> None:
    cached = {**claim_disk("held"), "driver": {"cache": "writeback"}}
    lonely = shared_claim("lonely")
    lonely["spec"]["accessModes"] = ["ReadWriteOnce"]
    kubectl.api.apply(shared_claim("held"), blank_disk("held"), lonely, blank_disk("lonely"))
    for name in ("held", "lonely"):
        kubectl.api.until("jobs", f"make-{name}", is_true("Complete"), timeout=120, what=f"the disk of claim {name}")
    kubectl.api.create(with_disks(tiny_vm("stays", evictionStrategy="LiveMigrate"), cached))
    node = kubectl.api.ready("vm", "stays", timeout=90)["status"]["nodeName"]
    kubectl.api.create(with_disks(tiny_vm("alone", evictionStrategy="LiveMigrate", nodeSelector=on(node)), claim_disk("lonely")))
    alone = kubectl.api.ready("vm", "alone", timeout=90)
    why = "PersistentVolumeClaim lonely is not ReadWriteMany: two nodes cannot mount it at the same time (disk 'data')"
    (told,) = (each for each in alone["status"]["conditions"] if each["type"] == "Migratable")
    assert (told["status"], told["reason"], told["message"]) == ("False", "DisksNotShared", why)
    words = (
        f"virtual machine alone cannot migrate: {why}",
        "virtual machine stays cannot migrate: data of the disk 'data'",
    )
    with uncordoned(kubectl, node):
        with refused_drain(kubectl, node, ("stays", "alone"), lambda said: all(each in said for each in words)):
            status = kubectl.api.get("vm", "stays")["status"]
            assert (status["phase"], status["nodeName"]) == ("Running", node)
            assert not migrations(kubectl, "stays")

        kubectl.api.patch("vm", "stays", {"spec": {"evictionStrategy": "LiveMigrateIfPossible"}})
        gone = drain(kubectl, node, "stays", timeout=90)
        assert gone.returncode == 0, gone.stderr
        runs_elsewhere(kubectl, "stays", node, timeout=120)
