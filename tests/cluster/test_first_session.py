from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import ROOT, Kubectl, console
from tests.cluster.manifests import linux_vm, shared_claim, with_disks

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
    add, look, get, remove = (line for line in block("addvolume").splitlines() if "logs" in line.lower())
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
    commands, delete = block("kubectl drain").split("kubectl delete vm testvm")
    done = subprocess.run(["sh", "-ec", commands], env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "virtual machine testvm must move to another node first" in done.stderr
    drained = re.search(r"node/(\S+) drained", done.stdout)
    assert drained
    vm = kubectl.api.get("vm", "testvm")["status"]
    assert (vm["phase"], vm["nodeName"] != drained[1], len(vm["attempts"])) == ("Running", True, 1)
    counts_on(kubectl, "testvm", counted)
    ended = subprocess.run(
        ["sh", "-ec", f"kubectl delete vm testvm{delete}"], env=environment, capture_output=True, timeout=100, check=False
    )
    assert ended.returncode == 0
