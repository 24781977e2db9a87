from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.client.rest import TransportError
from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, eventually
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAME = "through-the-move"


def node_of_etcd(system: Kubectl) -> str:
    return str(system.api.get("pod", "kubevirt-etcd-0")["spec"]["nodeName"])


def found(kubectl: Kubectl) -> Object | None:
    try:
        return kubectl.api.get("vm", NAME)
    except errors.NotFound:  # a 404 for an object that exists
        raise
    except (errors.StatusError, TransportError):
        return None


def move(system: Kubectl, node: str) -> str:
    path = f"{Path(system.binary).parent}{os.pathsep}{system.environment['PATH']}"  # the plugin calls kubectl from the PATH
    command = system.command("virt", "move-etcd", "--to", node)
    done = subprocess.run(command, env={**system.environment, "PATH": path}, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_etcd_moves_to_another_node_and_back_while_a_guest_runs(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    source = node_of_etcd(system)
    target = next(name for each in system.api.list("nodes") if (name := each["metadata"]["name"]) != source)
    kubectl.api.create(counting_vm(NAME))
    uid = kubectl.api.ready("vm", NAME, timeout=120)["metadata"]["uid"]
    counted = ticks(kubectl, NAME)[-1]

    for node in (target, source):
        kubectl.api.patch("vm", NAME, {"metadata": {"labels": {"last-write-before": node}}})
        said = move(system, node)
        assert re.search(rf"etcd runs on node {node}; it was unavailable for \d+ s", said), said
        assert node_of_etcd(system) == node
        vm = eventually(lambda: found(kubectl), timeout=60, what="the API is back")
        assert vm["metadata"]["uid"] == uid
        with never_again("a lost write"):
            assert vm["metadata"]["labels"]["last-write-before"] == node
        pods = "app.kubernetes.io/name=etcd-move"
        system.api.until_list("pods", lambda left: not left, timeout=60, what="the move's pods are deleted", label_selector=pods)
    counts_on(kubectl, NAME, counted)
    assert len(kubectl.api.ready("vm", NAME, timeout=120)["status"]["attempts"]) == 1
