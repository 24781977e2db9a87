"""A node is drained: guests move before their pods go, in their turns, and one that cannot move is told."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt import phases
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import blank_disk, claim_disk, linux_vm, migration, shared_claim, with_disks
from tests.cluster.policies import a_policy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

COUNTER = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n"
GUESTS = ("drain-a", "drain-b", "drain-c")


def seen(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "vm", name)
    return found


def migrations(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    return [each for each in kubectl.json("get", "migrations")["items"] if each["spec"]["selector"]["name"] == name]


def draining(node: str, *names: str) -> list[str]:
    """Return kubectl's arguments that drain a node of these machines alone: what else is on it belongs to other tests."""
    chosen = f"--pod-selector=vm.kubevirt.io/name in ({','.join(names)})"
    return ["drain", node, chosen, "--ignore-daemonsets", "--delete-emptydir-data"]


def drain(kubectl: Kubectl, node: str, *names: str, timeout: int) -> subprocess.CompletedProcess[str]:
    return kubectl.try_run(*draining(node, *names), f"--timeout={timeout}s", timeout=timeout + 30)


@contextmanager
def uncordoned(kubectl: Kubectl, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        kubectl("uncordon", node)


def stop_in_the_middle(kubectl: Kubectl, node: str, names: Sequence[str], said: Path) -> None:
    """Begin to drain a node, and uncordon it; whoever is on it then stays, though kubectl asks on."""
    command = kubectl.command(*draining(node, *names))
    with said.open("w") as out, subprocess.Popen(command, env=kubectl.environment, stdout=out, stderr=subprocess.STDOUT) as going:
        try:
            eventually(lambda: "a migration begins" in said.read_text(), timeout=60, interval=0.05, what="guests begin to move")
            kubectl("uncordon", node)
            eventually(lambda: not any(map(phases.is_unfinished, moves(kubectl, names))), timeout=120, what="what has begun is over")
            stay = [name for name in names if seen(kubectl, name)["status"]["nodeName"] == node]
            assert stay, said.read_text()
            done = {each["metadata"]["uid"] for each in moves(kubectl, names)}
            over = [f"node {node} was uncordoned, so its drain is over: the guest of virtual machine {name} stays" for name in stay]
            was = [said.read_text().count(each) for each in over]
            eventually(
                lambda: all(said.read_text().count(each) >= count + 2 for each, count in zip(over, was, strict=True)),
                timeout=60,
                what="kubectl is told twice more",
            )
            assert {each["metadata"]["uid"] for each in moves(kubectl, names)} == done
            assert [seen(kubectl, name)["status"]["nodeName"] for name in stay] == [node] * len(stay)
            assert going.poll() is None
        finally:
            going.terminate()


def moves(kubectl: Kubectl, names: Sequence[str]) -> list[dict[str, Any]]:
    return [each for name in names for each in migrations(kubectl, name)]


def has_begun(migration: dict[str, Any]) -> bool:
    """Return whether a Migration is none that waited for its turn when its drain was over."""
    return all(each["reason"] != "DrainEnded" for each in migration["status"]["conditions"])


@pytest.fixture(scope="module")
def together(kubectl: Kubectl) -> tuple[str, ...]:
    """Machines whose guests count, on one node, which they may leave."""
    names = GUESTS
    kubectl.apply(linux_vm(names[0]))
    kubectl("wait", "vm", names[0], "--for=condition=Ready", "--timeout=90s", timeout=100)
    node = seen(kubectl, names[0])["status"]["nodeName"]
    for name in names[1:]:
        kubectl.apply(linux_vm(name, evictionStrategy="LiveMigrate", nodeSelector={"kubernetes.io/hostname": node}))
    kubectl("wait", "vm", *names, "--for=condition=Ready", "--timeout=120s", timeout=130)
    for name in names:
        with console(kubectl, name) as guest:
            guest.expect("GUEST-READY", timeout=120)
            guest.type(COUNTER)
            guest.expect(r"tick 1\b")
    for name in names[1:]:  # it counts from the next migration on
        kubectl("patch", "vm", name, "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": None}}))
    return names


def test_guests_move_before_their_node_is_drained(kubectl: Kubectl, together: tuple[str, ...], tmp_path: Path) -> None:
    """The first drain is stopped in its middle, and the second one is the rest of it."""
    names, node = together, seen(kubectl, together[0])["status"]["nodeName"]
    with uncordoned(kubectl, node):
        stop_in_the_middle(kubectl, node, names, tmp_path / "said")
        done = drain(kubectl, node, *names, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "moves to another node first" in done.stderr
        for name in names:
            vm = seen(kubectl, name)
            assert (vm["status"]["phase"], vm["status"]["nodeName"] != node, len(vm["status"]["attempts"])) == ("Running", True, 1)
            with console(kubectl, name) as guest:
                ticks = int(guest.expect(r"tick (\d+)\r?\n").group(1))  # without the line's end, it may be the first digits alone
                guest.expect(rf"tick {ticks + 1}\r?\n")
        begun = [each for each in moves(kubectl, names) if has_begun(each)]
        assert len(begun) == len(names)
        assert {each["status"]["phase"] for each in begun} == {"Succeeded"}
        assert {each["metadata"]["ownerReferences"][0]["kind"] for each in begun} == {"VirtualMachine"}


def waits(kubectl: Kubectl, name: str, place: str) -> bool:
    """Whether a machine's newest Migration is Pending, with this place in the queue of those that leave a full node."""
    newest = max(migrations(kubectl, name), key=lambda each: str(each["metadata"]["creationTimestamp"]))
    status = newest.get("status") or {}
    expected = f"2 migrations leave node {seen(kubectl, name)['status']['nodeName']}; {place} in the queue"
    return (status.get("phase"), status.get("message"), status.get("targetPod")) == ("Pending", expected, None)


def test_a_third_guest_waits_for_its_turn_and_one_of_higher_priority_overtakes_it(kubectl: Kubectl, together: tuple[str, ...]) -> None:
    node = seen(kubectl, together[0])["status"]["nodeName"]
    kubectl.apply(linux_vm("hurries", nodeSelector={"kubernetes.io/hostname": node}))
    kubectl("wait", "vm", "hurries", "--for=condition=Ready", "--timeout=120s", timeout=130)
    kubectl("patch", "vm", "hurries", "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": None}}))
    assert {seen(kubectl, name)["status"]["nodeName"] for name in together} == {node}
    *movers, third = together
    with a_policy(kubectl, "drain-slowly", bandwidth="1Mi", completionTimeoutPerGiB=600):
        begun = [kubectl.create(migration(name))["metadata"]["name"] for name in movers]
        for each in begun:
            kubectl("wait", "migration", each, "--for=jsonpath={.status.phase}=Running", "--timeout=120s", timeout=130)
        kubectl.create(migration(third))
        eventually(lambda: waits(kubectl, third, "1st"), timeout=60, what="the third one waits")
        kubectl("virt", "migrate", "hurries", "--priority", "50")
        eventually(lambda: waits(kubectl, "hurries", "1st"), timeout=60, what="the one in a hurry is the next")
        eventually(lambda: waits(kubectl, third, "2nd"), timeout=60, what="the third one is after it")

        kubectl("virt", "cancel-migration", begun[0], "--migration", "--wait", "--timeout", "1m", timeout=70)
        (hurried,) = migrations(kubectl, "hurries")
        eventually(
            lambda: (kubectl.json("get", "migration", hurried["metadata"]["name"])["status"]).get("targetPod"),
            timeout=60,
            what="the one in a hurry begins",
        )
        eventually(lambda: waits(kubectl, third, "1st"), timeout=60, what="the third one is the next")
        kubectl("delete", "migrations", "--all", "--timeout=100s", timeout=110)
    assert {seen(kubectl, name)["status"]["nodeName"] for name in (*together, "hurries")} == {node}


def test_a_guest_that_cannot_move_holds_its_drain_up_or_is_shut_down_as_its_machine_says(kubectl: Kubectl) -> None:
    cached = {**claim_disk("held"), "driver": {"cache": "writeback"}}
    lonely = shared_claim("lonely")
    lonely["spec"]["accessModes"] = ["ReadWriteOnce"]
    kubectl.apply(shared_claim("held"), blank_disk("held"), lonely, blank_disk("lonely"))
    kubectl("wait", "job", "make-held", "make-lonely", "--for=condition=Complete", "--timeout=120s", timeout=130)
    kubectl.apply(with_disks(linux_vm("stays", evictionStrategy="LiveMigrate"), cached))
    kubectl("wait", "vm", "stays", "--for=condition=Ready", "--timeout=90s", timeout=100)
    node = seen(kubectl, "stays")["status"]["nodeName"]
    there = {"kubernetes.io/hostname": node}
    kubectl.apply(with_disks(linux_vm("alone", evictionStrategy="LiveMigrate", nodeSelector=there), claim_disk("lonely")))
    kubectl("wait", "vm", "alone", "--for=condition=Ready", "--timeout=90s", timeout=100)
    why = "PersistentVolumeClaim lonely is not ReadWriteMany: two nodes cannot use it at once (disk 'data')"
    (told,) = (each for each in seen(kubectl, "alone")["status"]["conditions"] if each["type"] == "Migratable")
    assert (told["status"], told["reason"], told["message"]) == ("False", "DisksNotShared", why)
    with uncordoned(kubectl, node):
        held = drain(kubectl, node, "stays", "alone", timeout=12)
        assert held.returncode != 0
        assert f"virtual machine alone cannot migrate: {why}" in held.stderr
        assert "virtual machine stays cannot migrate: the page cache of its node has data of the disk 'data'" in held.stderr
        vm = seen(kubectl, "stays")
        assert (vm["status"]["phase"], vm["status"]["nodeName"]) == ("Running", node)
        assert not migrations(kubectl, "stays")

        kubectl("patch", "vm", "stays", "--type=merge", "-p", json.dumps({"spec": {"evictionStrategy": "LiveMigrateIfPossible"}}))
        gone = drain(kubectl, node, "stays", timeout=90)
        assert gone.returncode == 0, gone.stderr
        eventually(
            lambda: (vm := seen(kubectl, "stays"))["status"]["phase"] == "Running" and vm["status"]["nodeName"] != node,
            timeout=120,
            what="the guest runs on the other node",
        )


def evicted(kubectl: Kubectl, pod: str, *, dry: bool) -> str:
    """Evict a pod; return why kube-apiserver refuses that."""
    options = {"deleteOptions": {"dryRun": ["All"]}} if dry else {}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kubectl.namespace}, **options}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    refused = kubectl.try_run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    assert refused.returncode != 0
    return refused.stderr


def test_an_eviction_as_a_dry_run_or_of_a_guest_that_another_program_moves_moves_nobody_whatever_becomes_of_the_secret(
    kubectl: Kubectl,
) -> None:
    kubectl.apply(linux_vm("kept"))
    kubectl("wait", "vm", "kept", "--for=condition=Ready", "--timeout=90s", timeout=100)
    pod = seen(kubectl, "kept")["status"]["podName"]
    eventually(lambda: "moves to another node first" in evicted(kubectl, pod, dry=True), timeout=60, what="the eviction is judged")
    assert not migrations(kubectl, "kept")  # it would have been made before the answer

    changed = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": f"/evictions/{secrets.token_hex(24)}"}]
    kubectl("patch", "validatingwebhookconfiguration", "evictions.kubevirt.io", "--type=json", "-p", json.dumps(changed))
    said = [evicted(kubectl, pod, dry=True) for _ in range(12)]
    assert all("moves to another node first" in each or "ask again" in each for each in said), said
    eventually(lambda: "moves to another node first" in evicted(kubectl, pod, dry=True), timeout=90, what="the new secret is known")

    kubectl("patch", "vm", "kept", "--type=merge", "-p", json.dumps({"spec": {"evictionStrategy": "External"}}))
    for dry in (True, False):
        assert "virtual machine kept is moved by another program (evictionStrategy External)" in evicted(kubectl, pod, dry=dry)
    assert not migrations(kubectl, "kept")
    assert seen(kubectl, "kept")["status"]["podName"] == pod


def pods(kubectl: Kubectl, name: str) -> list[str]:
    return [each["metadata"]["name"] for each in kubectl.json("get", "pods", "-l", f"vm.kubevirt.io/name={name}")["items"]]


def test_a_guest_that_fits_no_other_node_stays_and_its_migration_ends(kubectl: Kubectl) -> None:
    kubectl.apply(linux_vm("pinned"))
    kubectl("wait", "vm", "pinned", "--for=condition=Ready", "--timeout=90s", timeout=100)
    node = seen(kubectl, "pinned")["status"]["nodeName"]
    kubectl("patch", "vm", "pinned", "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}))
    pod = seen(kubectl, "pinned")["status"]["podName"]
    assert "a migration begins" in evicted(kubectl, pod, dry=False)
    target = eventually(
        lambda: next((each for each in pods(kubectl, "pinned") if each != pod), None), timeout=60, what="a pod for the guest to go to"
    )
    for dry in (True, False):
        assert "the guest of virtual machine pinned is on its way here: migration pinned-evacuation-" in evicted(kubectl, target, dry=dry)

    def ended() -> Any:
        return [each["status"] for each in migrations(kubectl, "pinned") if (each.get("status") or {}).get("phase") == "Failed"]

    (status,) = eventually(ended, timeout=150, what="the migration ends")
    assert "no node for the target within 60 s" in status["message"]
    eventually(lambda: pods(kubectl, "pinned") == [pod], timeout=60, what="the target is deleted")
    assert seen(kubectl, "pinned")["status"]["podName"] == pod


def test_a_guest_that_runs_once_or_by_hand_goes_on_elsewhere_when_an_eviction_ended_it_and_not_when_somebody_deleted_its_pod(
    kubectl: Kubectl,
) -> None:
    names = ("once", "by-hand")
    kubectl.apply(linux_vm("once", runStrategy="Once", evictionStrategy="Shutdown"))
    kubectl("wait", "vm", "once", "--for=condition=Ready", "--timeout=90s", timeout=100)
    node = seen(kubectl, "once")["status"]["nodeName"]
    there = {"kubernetes.io/hostname": node}
    kubectl.apply(linux_vm("by-hand", runStrategy="Manual", evictionStrategy="Shutdown", nodeSelector=there))
    kubectl("virt", "start", "by-hand")
    kubectl("wait", "vm", "by-hand", "--for=condition=Ready", "--timeout=90s", timeout=100)
    kubectl("patch", "vm", "by-hand", "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": None}}))  # counts from the next start on
    with uncordoned(kubectl, node):
        done = drain(kubectl, node, *names, timeout=120)
        assert done.returncode == 0, done.stderr
        eventually(
            lambda: all(
                (status := seen(kubectl, name)["status"])["phase"] == "Running" and status.get("nodeName") not in (None, node)
                for name in names
            ),
            timeout=120,
            what="both guests run on the other node",
        )
    for name in names:
        first = seen(kubectl, name)["status"]["attempts"][0]
        assert first["result"] == "Stopped"
        assert "was evicted, as by kubectl drain" in first["message"] or "was to be evicted, as by kubectl drain" in first["message"]

    kubectl("delete", "pod", *(seen(kubectl, name)["status"]["podName"] for name in names), timeout=90)
    for name in names:
        eventually(lambda: seen(kubectl, name)["status"]["phase"] == "Stopped", timeout=60, what="the machine is off")  # noqa: B023  # it is called at once
        assert len(seen(kubectl, name)["status"]["attempts"]) == 2


def test_etcds_only_member_is_not_evicted_and_says_what_moves_it(system: Kubectl) -> None:
    for dry in (True, False):
        said = evicted(system, "kubevirt-etcd-0", dry=dry)
        assert "is the only member of etcd" in said
        assert "kubectl virt move-etcd --to NODE" in said
    assert system.json("get", "pdb", "kubevirt-etcd")["status"]["disruptionsAllowed"] == 0
