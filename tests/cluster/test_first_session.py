from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import losses
from tests.cluster.api import is_true
from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import blank_disk, linux_vm, shared_claim, with_disks
from tests.cluster.readme import block, environment_of, run
from tests.cluster.test_node_shutdown import cordoned
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not testbed_kubectl.is_own_cluster(),
        reason="drains a node of all pods, and uncordons all nodes",
    ),
]


@pytest.fixture
def environment(kubectl: Kubectl, system: Kubectl, tmp_path: Path) -> Iterator[dict[str, str]]:
    try:
        yield environment_of(kubectl, tmp_path)
    finally:
        for node in system.api.list("nodes"):
            system.api.patch("node", node["metadata"]["name"], {"spec": {"unschedulable": None}})
        system.api.rolled_out("deployment/virt-api", "deployment/virt-controller", timeout=300)


@pytest.mark.sample(2, "guests of the first session")
def test_guest_of_the_first_session_moves_on_a_drain(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> None:
    kubectl.api.create(counting_vm("testvm"))
    kubectl.api.ready("vm", "testvm", timeout=120)
    counted = ticks(kubectl, "testvm")[-1]
    commands, _ = block("kubectl drain").split("kubectl virt migrate testvm --wait                 ")
    done = subprocess.run(["sh", "-ec", commands], env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "virtual machine testvm must move to another node first" in done.stderr
    drained = re.search(r"node/(\S+) drained", done.stdout)
    assert drained
    vm = kubectl.api.get("vm", "testvm")["status"]
    assert (vm["phase"], vm["nodeName"] != drained[1], len(vm["attempts"])) == ("Running", True, 1)
    counts_on(kubectl, "testvm", counted)
    kubectl.api.delete("vm", "testvm")
    kubectl.api.gone("vm", "testvm", timeout=120)


@pytest.mark.sample(2, "guests of the first session")
def test_guest_of_the_first_session_survives_its_node(
    kubectl: Kubectl, system: Kubectl, testguest: None, environment: dict[str, str]
) -> None:
    node, etcd = losses.other_than_etcds(system)
    first = {"name": "first", "type": "EmptyDisk", "source": {"size": "8Mi"}}
    kubectl.api.apply(shared_claim("logs"), blank_disk("logs"))
    kubectl.api.until("jobs", "make-logs", is_true("Complete"), timeout=120, what="the disk of claim logs")
    with cordoned(system, etcd):
        kubectl.api.create(with_disks(linux_vm("testvm"), first))
        kubectl.api.ready("vm", "testvm", timeout=240)
    add, *rest = block("kill-node").splitlines()
    add, write = re.findall(r"^(.+?); kubectl virt console testvm +# (.+)$", add)[0]
    kill, *rest = rest
    fenced = rest[: next(number for number, line in enumerate(rest) if "console" in line)]
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=120)
        run(add, environment)
        guest.run("until test -e /dev/vdb; do sleep 1; done")
        guest.type(f"{write.replace('conv=fsync', 'conv=fsync 2>/dev/null && echo wrote $i')}\n")
        guest.expect(r"wrote [3-9]\r?\n", timeout=60)
        with losses.runs_once(f"{kubectl.namespace}_testvm"), losses.without_power(system, node):
            run(f"node={node.name}; {kill}", environment)
            for line in fenced:
                run(f"node={node.name}; {line}", environment)
            vm = kubectl.api.get("vm", "testvm")["status"]
            assert (vm["phase"], vm["nodeName"]) == ("Running", etcd)
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=180)
        with never_again("a lost write"):
            assert re.search(r"last=([3-9]|\d\d)", guest.run("echo last=$(head -n 1 /dev/vdb)"))
