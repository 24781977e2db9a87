"""Guests keep running under new virt-handlers, and move out one by one.

A client requests one of them throughout; one that cannot migrate is evicted if the chart says so.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig
from tests.cluster.api import in_phase, is_true
from tests.cluster.drains import counted
from tests.cluster.guests import counting_vm, counts_on
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm
from tests.cluster.serving import a_service, serve
from tests.cuts import client, judging, watching
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout, release, release_before

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

GUESTS = ("first", "second")
SERVED = "second"
GAP_SECONDS = 30
"""The switch-over, and the end of the previous version's virt-launcher."""
ASKS_PER_SECOND = 2
BOUND = "bound"
COUNTER = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n"
PACE_SECONDS = 10


@pytest.fixture(scope="module")
def before(kubectl: Kubectl, testguest: None) -> Iterator[str]:
    if not testbed_kubectl.is_own_cluster():
        pytest.skip("the image of the version before is built for the test cluster of this machine")
    digest = release_before.give_launcher()
    release.install(f"image.digests.virt-launcher={digest}", "workloadUpdate.strategy=None")
    try:
        yield digest
    finally:
        release.install()


def outdated(vm: Object) -> Mapping[str, Any]:
    return condition(dig(vm, "status", "conditions"), "LauncherOutdated") or {}


def is_current(vm: Object) -> bool:
    return not outdated(vm)


def image(kubectl: Kubectl, name: str) -> str:
    vm = kubectl.api.get("vm", name)
    pod = kubectl.api.get("pod", vm["status"]["podName"])
    return str(pod["spec"]["containers"][0]["image"])


def machine(name: str) -> dict[str, Any]:
    found = linux_vm(name) if name == SERVED else counting_vm(name)
    found["metadata"]["labels"] = {"app": name}
    if name == BOUND:
        found["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "type": "bridge"}]
    return found


@pytest.fixture(scope="module")
def guests(kubectl: Kubectl, before: str) -> dict[str, int]:
    names = (*GUESTS, "ends", BOUND)
    kubectl.api.apply(*map(machine, names))
    for name in names:
        kubectl.api.ready("vm", name, timeout=180)
    with console(kubectl, SERVED) as guest:
        guest.expect("GUEST-READY", timeout=120)
        serve(guest, client.WORD, "10.0.2.2")
        guest.type(COUNTER)
        guest.expect(r"tick 1\b", timeout=60)
    kubectl.api.apply(a_service(SERVED, SERVED))
    return {name: attempts(kubectl, name) for name in (*GUESTS, BOUND)}


def attempts(kubectl: Kubectl, name: str) -> int:
    return len(kubectl.api.get("vm", name)["status"]["attempts"])


@contextmanager
def served(kubectl: Kubectl) -> Iterator[None]:
    address = str(kubectl.api.get("service", SERVED)["spec"]["clusterIP"])
    with watching.asking(layout.NODES[0], address, ASKS_PER_SECOND) as answers:
        eventually(lambda: len(answers.times) >= 5, timeout=60, what="answers")
        begin = time.monotonic()
        yield
        end = time.monotonic()
        eventually(lambda: answers.times[-1] > end, timeout=GAP_SECONDS, what="an answer at the end")
    gap = judging.longest_silence(answers.times, begin, answers.times[-1])
    print(f"client: {len(answers.times)} answers, {len(answers.failures)} failures, longest gap {gap:.1f} s")
    assert gap <= GAP_SECONDS
    assert [each for each in answers.failures if each.words.startswith(client.ANOTHER)] == []


def test_guests_survive_an_upgrade_and_move_at_the_chosen_pace(kubectl: Kubectl, before: str, guests: dict[str, int]) -> None:
    assert {image(kubectl, name) for name in GUESTS} == {f"localhost/kubevirt/virt-launcher@{before}"}
    assert all(is_current(kubectl.api.get("vm", name)) for name in GUESTS)
    numbers = counted(kubectl, *GUESTS)

    with served(kubectl):
        upgrade(kubectl, before, numbers)
        check_moves(kubectl, guests)


def upgrade(kubectl: Kubectl, before: str, numbers: dict[str, int]) -> None:
    release.install("workloadUpdate.strategy=None")
    release.restart(["virt-handler"])

    for name in (*GUESTS, "ends", BOUND):
        found = outdated(kubectl.api.until("vm", name, outdated, timeout=60, what=f"{name} is outdated"))
        assert found["reason"] == "Stays"
        assert before in found["message"]
        assert "localhost/kubevirt/virt-launcher:dev" in found["message"]
    listed = kubectl("virt", "outdated")
    assert [line.split()[0] for line in listed.splitlines()] == ["NAME", BOUND, "ends", *GUESTS]
    for name in GUESTS:
        counts_on(kubectl, name, numbers[name])
    kubectl.api.verb("first", "pause")
    kubectl.api.until("vm", "first", is_true("Paused"), timeout=60, what="a guest that is paused")
    kubectl.api.verb("first", "unpause")
    kubectl.api.until("vm", "first", is_true("Paused", "False"), timeout=60, what="a guest that goes on")
    kubectl.api.verb("ends", "stop")
    kubectl.api.until("vm", "ends", in_phase("Stopped"), timeout=90, what="a machine that is off")
    kubectl.api.until("vm", "ends", is_current, timeout=90, what="one that is off is not outdated")
    assert kubectl.api.list("migrations") == []


def check_moves(kubectl: Kubectl, guests: dict[str, int]) -> None:
    numbers = counted(kubectl, *GUESTS)
    release.install("workloadUpdate.batchSize=1", f"workloadUpdate.batchInterval={PACE_SECONDS}s")

    for name in GUESTS:
        kubectl.api.until("vm", name, is_current, timeout=300, what=f"{name} is of this version")
        assert image(kubectl, name) == "localhost/kubevirt/virt-launcher:dev"
        counts_on(kubectl, name, numbers[name])
        assert attempts(kubectl, name) == guests[name]
    made = kubectl.api.list("migrations", label_selector="kubevirt.io/workload-update")
    assert sorted(each["spec"]["selector"]["name"] for each in made) == sorted(GUESTS)
    assert {each["status"]["phase"] for each in made} == {"Succeeded"}
    times_of = sorted((each["metadata"]["creationTimestamp"], each["status"]["endTime"]) for each in made)
    for (began, ended), (following, _) in itertools.pairwise(times_of):
        assert following >= ended
        assert (times.parse(following) - times.parse(began)).total_seconds() >= PACE_SECONDS - 1


@pytest.fixture
def moved(kubectl: Kubectl, before: str, guests: dict[str, int]) -> None:
    """Repeat the previous test's upgrade, in a second run."""
    if before in image(kubectl, SERVED):
        upgrade(kubectl, before, counted(kubectl, *GUESTS))
        check_moves(kubectl, guests)


@pytest.mark.sample(2, "guests that cannot move in an upgrade")
def test_unmovable_guest_stays_in_the_old_release_until_evicted(kubectl: Kubectl, moved: None, guests: dict[str, int]) -> None:
    assert outdated(kubectl.api.get("vm", BOUND))["reason"] == "Stays"
    assert [line.split()[0] for line in kubectl("virt", "outdated").splitlines()] == ["NAME", BOUND]

    release.install("workloadUpdate.strategy=Evict", f"workloadUpdate.batchInterval={PACE_SECONDS}s")

    def runs_again(vm: Object) -> bool:
        return (len(vm["status"]["attempts"]), vm["status"]["phase"], is_current(vm)) == (guests[BOUND] + 1, "Running", True)

    vm = kubectl.api.until("vm", BOUND, runs_again, timeout=180, what=f"{BOUND} is of this version")
    assert image(kubectl, BOUND) == "localhost/kubevirt/virt-launcher:dev"
    assert vm["status"]["attempts"][guests[BOUND] - 1]["result"] == "Stopped"
    assert not any(each["spec"]["selector"]["name"] == BOUND for each in kubectl.api.list("migrations"))
    assert re.search("No virtual machine in namespace .* has an outdated virt-launcher", kubectl("virt", "outdated"))
