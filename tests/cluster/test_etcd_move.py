"""etcd, with all virtual machines in it, is taken to another node and back; a guest runs on, and no acknowledged write is lost."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def node_of_etcd(system: Kubectl) -> str:
    return str(system.json("get", "pod", "kubevirt-etcd-0")["spec"]["nodeName"])


def move(system: Kubectl, node: str) -> str:
    """Move etcd; return what the command says."""
    path = f"{Path(system.binary).parent}{os.pathsep}{system.environment['PATH']}"  # the plugin calls the kubectl that it finds there
    command = system.command("virt", "move-etcd", "--to", node)
    done = subprocess.run(command, env={**system.environment, "PATH": path}, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_etcd_moves_to_another_node_and_back_while_a_guest_runs(kubectl: Kubectl, system: Kubectl) -> None:
    source = node_of_etcd(system)
    target = next(name for each in system.json("get", "nodes")["items"] if (name := each["metadata"]["name"]) != source)
    kubectl.apply(linux_vm("through-the-move"))
    kubectl("wait", "vm", "through-the-move", "--for=condition=Ready", "--timeout=120s", timeout=130)
    with console(kubectl, "through-the-move") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.type("i=0; while :; do i=$((i+1)); echo tick $i; sleep 1; done\n")
        guest.expect(r"tick 1\b")
    uid = kubectl.json("get", "vm", "through-the-move")["metadata"]["uid"]

    for node in (target, source):
        kubectl("label", "vm", "through-the-move", f"last-write-before={node}", "--overwrite")
        said = move(system, node)
        assert re.search(rf"etcd runs on node {node}; it was away for \d+ s", said), said
        assert node_of_etcd(system) == node
        vm = eventually(
            lambda: found if (found := kubectl.try_run("get", "vm", "through-the-move", "-o", "json")).returncode == 0 else None,
            timeout=60,
            what="the API is back",
        )
        assert uid in vm.stdout
        with never_again("a lost write"):
            assert f'"last-write-before": "{node}"' in vm.stdout
        eventually(
            lambda: not system("get", "pods", "-l", "app.kubernetes.io/name=etcd-move", "-o", "name"), timeout=60, what="they are deleted"
        )
    with console(kubectl, "through-the-move") as guest:
        ticks = int(guest.expect(r"tick (\d+)\r?\n").group(1))  # without the line's end, it may be the first digits alone
        guest.expect(rf"tick {ticks + 1}\r?\n")
    kubectl("wait", "vm", "through-the-move", "--for=condition=Ready", "--timeout=120s", timeout=130)
    assert len(kubectl.json("get", "vm", "through-the-move")["status"]["attempts"]) == 1
