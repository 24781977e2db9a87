"""An upgrade of the chart with guests on: they run on in pods of the release before, under new virt-handlers, and move out one by one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from apiserver.apis.meta import times
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import tiny_vm
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import release, release_before

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

GUESTS = ("first", "second", "third")
COUNTER = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n"
PACE_SECONDS = 10


@pytest.fixture(scope="module")
def before(kubectl: Kubectl, testguest: None) -> Iterator[str]:
    """The chart makes pods with virt-launcher of the release before; the digest of its image."""
    if not testbed_kubectl.is_own_cluster():
        pytest.skip("the image of the release before is built for the test cluster of this machine")
    digest = release_before.give_launcher()
    release.install(f"image.digests.virt-launcher={digest}", "workloadUpdate.strategy=None")
    try:
        yield digest
    finally:
        release.install()


def outdated(kubectl: Kubectl, name: str) -> dict[str, str]:
    conditions = (kubectl.json("get", "vm", name).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "LauncherOutdated"), {})


def is_current(kubectl: Kubectl, name: str) -> bool:
    return not outdated(kubectl, name)


def image(kubectl: Kubectl, name: str) -> str:
    vm = kubectl.json("get", "vm", name)
    pod: dict[str, Any] = kubectl.json("get", "pod", vm["status"]["podName"])
    return str(pod["spec"]["containers"][0]["image"])


def ticks(kubectl: Kubectl, name: str) -> list[int]:
    with console(kubectl, name) as guest:
        return [int(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(1)) for _ in range(3)]


def start(kubectl: Kubectl, *names: str) -> None:
    kubectl.apply(*(tiny_vm(name) for name in names))
    for name in names:
        kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=180s", timeout=190)
        with console(kubectl, name) as guest:
            guest.expect("GUEST-READY", timeout=120)
            guest.type(COUNTER)
            guest.expect(r"tick 1\b", timeout=60)


def test_guests_run_on_through_an_upgrade_and_move_into_the_release_at_the_chosen_pace(kubectl: Kubectl, before: str) -> None:
    start(kubectl, *GUESTS, "ends")
    assert {image(kubectl, name) for name in GUESTS} == {f"localhost/kubevirt/virt-launcher@{before}"}
    assert not any(outdated(kubectl, name) for name in GUESTS)
    counted = {name: ticks(kubectl, name)[-1] for name in GUESTS}

    release.install("workloadUpdate.strategy=None")
    release.restart(["virt-handler"])

    for name in (*GUESTS, "ends"):
        found = eventually(partial(outdated, kubectl, name), timeout=60, what=f"{name} is outdated")
        assert found["reason"] == "Stays"
        assert before in found["message"]
        assert "localhost/kubevirt/virt-launcher:dev" in found["message"]
    listed = kubectl("virt", "outdated")
    assert [line.split()[0] for line in listed.splitlines()] == ["NAME", "ends", *GUESTS]
    for name in GUESTS:  # under the new virt-handler: console, status, power
        assert ticks(kubectl, name)[0] > counted[name]
    kubectl("virt", "pause", "first")
    kubectl("wait", "vm", "first", "--for=condition=Paused", "--timeout=60s", timeout=70)
    kubectl("virt", "unpause", "first")
    kubectl("wait", "vm", "first", "--for=condition=Paused=false", "--timeout=60s", timeout=70)
    kubectl("virt", "stop", "ends")
    kubectl("wait", "vm", "ends", "--for=jsonpath={.status.phase}=Stopped", "--timeout=90s", timeout=100)
    eventually(lambda: not outdated(kubectl, "ends"), timeout=30, what="one that is off is not outdated")
    assert kubectl.json("get", "migrations")["items"] == []
    counted = {name: ticks(kubectl, name)[-1] for name in GUESTS}

    release.install("workloadUpdate.batchSize=1", f"workloadUpdate.batchInterval={PACE_SECONDS}s")

    for name in GUESTS:
        eventually(partial(is_current, kubectl, name), timeout=300, what=f"{name} is of this release")
        assert image(kubectl, name) == "localhost/kubevirt/virt-launcher:dev"
        seen = ticks(kubectl, name)
        assert seen[0] > counted[name]
        assert seen == list(range(seen[0], seen[0] + 3))
        assert len(kubectl.json("get", "vm", name)["status"]["attempts"]) == 1
    made = kubectl.json("get", "migrations", "-l", "kubevirt.io/workload-update")["items"]
    assert sorted(each["spec"]["selector"]["name"] for each in made) == sorted(GUESTS)
    assert {each["status"]["phase"] for each in made} == {"Succeeded"}
    times_of = sorted((each["metadata"]["creationTimestamp"], each["status"]["endTime"]) for each in made)
    for (began, ended), (following, _) in itertools.pairwise(times_of):
        assert following >= ended
        assert (times.parse(following) - times.parse(began)).total_seconds() >= PACE_SECONDS - 1
    assert re.search("No virtual machine in namespace .* has an outdated virt-launcher", kubectl("virt", "outdated"))
