"""The drain of the README's first session, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.kube import ROOT, Kubectl, console
from tests.cluster.manifests import linux_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def the_drain() -> str:
    """Return the commands that drain a node, as they stand in the README."""
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (drain,) = (each for each in found if "kubectl drain" in each)
    return str(drain)


@pytest.fixture
def environment(kubectl: Kubectl, system: Kubectl, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What somebody has in their shell who follows the README; afterwards no node is cordoned, and what was evicted is back."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    path = f"{Path(kubectl.binary).parent}:{kubectl.environment['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    subprocess.run(["kubectl", "config", "set-context", "--current", f"--namespace={kubectl.namespace}"], env=given, check=True)
    try:
        yield given
    finally:
        for node in system.json("get", "nodes")["items"]:
            system("uncordon", node["metadata"]["name"])
        for each in ("virt-api", "virt-controller"):
            system("rollout", "status", f"deployment/{each}", "--timeout=300s", timeout=310)


def test_the_guest_of_the_first_session_moves_when_its_node_is_drained(kubectl: Kubectl, environment: dict[str, str]) -> None:
    kubectl.apply(linux_vm("testvm"))
    kubectl("wait", "vm", "testvm", "--for=condition=Ready", "--timeout=120s", timeout=130)
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=90)
        guest.run("echo here > /tmp/was")
    commands, delete = the_drain().split("kubectl delete vm testvm")
    done = subprocess.run(["sh", "-ec", commands], env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "virtual machine testvm moves to another node first" in done.stderr
    drained = re.search(r"node/(\S+) drained", done.stdout)
    assert drained
    vm = kubectl.json("get", "vm", "testvm")["status"]
    assert (vm["phase"], vm["nodeName"] != drained[1], len(vm["attempts"])) == ("Running", True, 1)
    with console(kubectl, "testvm") as guest:
        guest.type("\n")
        assert "here" in guest.run("cat /tmp/was")
    ended = subprocess.run(
        ["sh", "-ec", f"kubectl delete vm testvm{delete}"], env=environment, capture_output=True, timeout=100, check=False
    )
    assert ended.returncode == 0
