"""``make test-drain``: drain a node with twenty guests, stopped in the middle and repeated, in minutes."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import phases
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm
from tests.testbed import layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

GUESTS = int(os.environ.get("DRAIN_GUESTS", "20"))
FROM_A_NODE = 2
NAMES = [f"many-{number:02}" for number in range(GUESTS)]


def a_small_one(name: str, **spec: object) -> dict[str, Any]:
    manifest = tiny_vm(name, run="fill=64", evictionStrategy="LiveMigrate", **spec)
    manifest["spec"]["domain"]["resources"] = {"requests": {"cpu": "10m"}}
    return manifest


@pytest.fixture
def node(kubectl: Kubectl, system: Kubectl) -> Iterator[str]:
    etcd = system.api.get("pod", "kubevirt-etcd-0")["spec"]["nodeName"]
    (name,) = (each.name for each in layout.NODES if each.name != etcd)
    chosen = {"kubernetes.io/hostname": name}
    for start in range(0, GUESTS, 4):
        some = NAMES[start : start + 4]
        kubectl.api.apply(*(a_small_one(each, nodeSelector=chosen) for each in some))
        for each in some:
            kubectl.api.ready("vm", each, timeout=300)
    for each in NAMES:
        kubectl.api.patch("vm", each, {"spec": {"nodeSelector": None}})
    try:
        yield name
    finally:
        system("uncordon", name)


def places(kubectl: Kubectl) -> Counter[str]:
    found = kubectl.api.list("vms")
    assert {len(each["status"]["attempts"]) for each in found} == {1}
    return Counter(each["status"]["nodeName"] for each in found)


def under_way(kubectl: Kubectl) -> list[dict[str, Any]]:
    found = [each for each in kubectl.api.list("migrations") if phases.is_unfinished(each)]
    assert len([each for each in found if phases.phase_of(each) not in ("", phases.PENDING)]) <= FROM_A_NODE
    return found


def told_to_stay(said: Path, since: int) -> int:
    return len(re.findall(r"was uncordoned, which ended its drain: the guest of virtual machine many-\d+ stays", said.read_text()[since:]))


def test_drain_of_twenty_guests_is_shown_and_can_be_interrupted(kubectl: Kubectl, node: str, tmp_path: Path) -> None:
    said = tmp_path / "drain"
    command = kubectl.command(
        "drain", node, f"--pod-selector=vm.kubevirt.io/name in ({','.join(NAMES)})", "--ignore-daemonsets", "--delete-emptydir-data"
    )
    enough = min(5, GUESTS // 2)

    def moved(count: int) -> bool:
        under_way(kubectl)
        return GUESTS - places(kubectl)[node] >= count

    with said.open("w") as out, subprocess.Popen(command, env=kubectl.environment, stdout=out, stderr=subprocess.STDOUT) as drain:
        try:
            eventually(lambda: moved(enough), timeout=600, interval=1, what=f"{enough} guests have moved")
            print(kubectl("get", "migrations"))
            kubectl("uncordon", node)
            eventually(lambda: not under_way(kubectl), timeout=180, interval=1, what="what has begun is over")
            stay, before = places(kubectl)[node], len(said.read_text())
            assert stay > 0, "the drain went on"
            eventually(lambda: told_to_stay(said, before) >= 2 * stay, timeout=120, interval=1, what="each is told twice that it is over")
            assert (places(kubectl)[node], under_way(kubectl)) == (stay, [])
        finally:
            drain.terminate()
    assert len(set(re.findall(r"virtual machine (many-\d+) must move to another node first", said.read_text()))) >= enough

    with said.open("a") as out, subprocess.Popen(command, env=kubectl.environment, stdout=out, stderr=subprocess.STDOUT) as drain:
        try:
            eventually(lambda: moved(GUESTS), timeout=2400, interval=2, what="all guests have moved")
            assert drain.wait(60) == 0
        finally:
            drain.kill()
    print(said.read_text()[-3000:])
    print(kubectl("get", "migrations"))
    ends = Counter(phases.phase_of(each) for each in kubectl.api.list("migrations"))
    assert ends[phases.SUCCEEDED] == GUESTS
    assert ends.keys() <= {phases.SUCCEEDED, phases.FAILED}
