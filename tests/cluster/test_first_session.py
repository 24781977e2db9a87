from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import losses
from tests.cluster.api import is_true
from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import ROOT, Kubectl, console
from tests.cluster.manifests import blank_disk, linux_vm, shared_claim, with_disks
from tests.cluster.test_node_shutdown import cordoned
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def block(word: str) -> str:
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (one,) = (each for each in found if word in each)
    return str(one)


@pytest.fixture
def environment(kubectl: Kubectl, system: Kubectl, tmp_path: Path) -> Iterator[dict[str, str]]:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    path = f"{Path(kubectl.binary).parent}:{kubectl.environment['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    subprocess.run(["kubectl", "config", "set-context", "--current", f"--namespace={kubectl.namespace}"], env=given, check=True)
    try:
        yield given
    finally:
        for node in system.api.list("nodes"):
            system.api.patch("node", node["metadata"]["name"], {"spec": {"unschedulable": None}})
        for each in ("virt-api", "virt-controller"):
            system("rollout", "status", f"deployment/{each}", "--timeout=300s", timeout=310)


def run(line: str, environment: dict[str, str]) -> str:
    done = subprocess.run(["sh", "-ec", line], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_guest_of_the_first_session_gets_a_disk_and_loses_it(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> None:
    first = {"name": "first", "type": "EmptyDisk", "source": {"size": "8Mi"}}
    kubectl.api.apply(shared_claim("logs"), with_disks(linux_vm("testvm"), first))
    kubectl.api.ready("vm", "testvm", timeout=240)
    add, look, get, remove = (line for line in block("--create 64Mi").splitlines() if "logs" in line.lower())
    seen = re.search(r'"(.+)" prints (\S+)', look)
    assert seen
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=120)
        run(add, environment)
        guest.run(f"until grep -qs {seen[2]} /sys/block/vd*/serial; do sleep 1; done")
        assert seen[2] in guest.run(seen[1])
        kubectl.api.events("DiskAttached", of="testvm", timeout=30)
        assert json.loads(run(get, environment)).items() >= {"kind": "disk", "name": "logs", "target": "vdb"}.items()
        run(remove, environment)
        guest.run("while test -e /sys/block/vdb; do sleep 1; done")
    kubectl.api.events("DiskDetached", of="testvm", timeout=30)
    kubectl.api.delete("vm", "testvm")
    kubectl.api.gone("vm", "testvm", timeout=120)


def test_guest_of_the_first_session_resumes_where_it_was(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> None:
    kubectl.api.apply(shared_claim("memory"), counting_vm("testvm"))
    kubectl.api.ready("vm", "testvm", timeout=120)
    restart, suspend = (line for line in block("virt suspend").splitlines() if "managedSave" in line or "suspend" in line)
    assert "virt resume" in suspend
    run(restart, environment)
    counted, pod = ticks(kubectl, "testvm")[-1], kubectl.api.get("vm", "testvm")["status"]["podName"]
    run(suspend, environment)
    assert kubectl.api.get("vm", "testvm")["status"]["podName"] != pod
    counts_on(kubectl, "testvm", counted)
    kubectl.api.delete("vm", "testvm")
    kubectl.api.gone("vm", "testvm", timeout=120)


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
