"""A virt-handler of another contract than virt-controller's, as in the middle of an upgrade: its node gets no guests, and its own go on.

The virt-handler of one node is replaced by one that differs in the number of its contract alone.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt import conditions, contract, names
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.test_migrations import COUNTER, final_phase, other_node
from tests.cluster.test_upgrade import ticks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OTHER = contract.VERSION + 1
MODULE = contract.__name__
CONFIG_MAP = "another-contract"
HANDLER = "virt-handler"
STAYS, MOVES = "stays", "moves"
"""Machines whose guests count: on the node of that virt-handler, and on the other one."""


def handler_on(system: Kubectl, node: str) -> dict[str, Any]:
    """Return the pod of a node's virt-handler, if it is the only one there and ready; otherwise nothing."""
    found = system.json("get", "pods", "-l", f"kubevirt.io={HANDLER}", f"--field-selector=spec.nodeName={node}")["items"]
    is_ready = len(found) == 1 and (condition(found[0]["status"].get("conditions"), "Ready") or {}).get("status") == "True"
    return found[0] if is_ready else {}


def spoken(system: Kubectl, node: str) -> str:
    """Return what the Lease of a node says of its virt-handler's contract."""
    lease = system.within(names.node_lease_namespace(system.namespace)).json("get", "lease", names.handler_lease(node))
    return str(lease["metadata"]["annotations"][contract.ANNOTATION])


def change(system: Kubectl, strategy: dict[str, Any], template: dict[str, Any]) -> None:
    """Give the DaemonSet of virt-handlers another pod template, and a way in which pods come to have it."""
    changed = {"updateStrategy": strategy, "template": template}
    patch = [{"op": "replace", "path": f"/spec/{field}", "value": value} for field, value in changed.items()]
    system("patch", "daemonset", HANDLER, "--type=json", "-p", json.dumps(patch))


def of_another_contract(template: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the pod template with the other contract in place of the one at this path, which Python is not to have compiled before."""
    found = copy.deepcopy(template)
    (container,) = found["spec"]["containers"]
    container["command"] = ["python3", "-Iu", "--check-hash-based-pycs", "always", f"/usr/local/bin/{HANDLER}"]
    container["volumeMounts"].append({"name": "contract", "mountPath": path, "subPath": "contract.py", "readOnly": True})
    found["spec"]["volumes"].append({"name": "contract", "configMap": {"name": CONFIG_MAP}})
    return found


@contextmanager
def speaking_another_contract(system: Kubectl, node: str) -> Iterator[None]:
    """Have the virt-handler of a node speak another version of the contract alone, until the block ends and it is of this release again."""
    before, pod = system.json("get", "daemonset", HANDLER)["spec"], handler_on(system, node)["metadata"]["name"]
    inside = ("exec", pod, "--container", HANDLER, "--")
    path = system(*inside, "python3", "-c", f"import {MODULE} as found; print(found.__file__)").strip()
    source, said = system(*inside, "cat", path), "VERSION: Final = {}\n"
    other = source.replace(said.format(contract.VERSION), said.format(OTHER))
    assert other != source
    system.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {"contract.py": other}})
    try:
        change(system, {"type": "OnDelete"}, of_another_contract(before["template"], path))
        system("delete", "pod", pod, "--timeout=90s", timeout=100)
        eventually(lambda: handler_on(system, node), timeout=120, what=f"another virt-handler on {node}")
        eventually(lambda: spoken(system, node) == str(OTHER), timeout=90, what=f"{node} says that it speaks version {OTHER}")
        yield
    finally:
        change(system, before["updateStrategy"], before["template"])
        system("rollout", "status", f"daemonset/{HANDLER}", "--timeout=300s", timeout=310)
        system("delete", "configmap", CONFIG_MAP)
    eventually(lambda: spoken(system, node) == contract.written(), timeout=90, what=f"{node} speaks as this release does")


def counts(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Start the counter of a machine's guest, and return the machine."""
    kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=120s", timeout=130)
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=90)
        guest.type(COUNTER)
        guest.expect(r"tick 1\b", timeout=60)
    return seen(kubectl, name)


def seen(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "vm", name)
    return found


def ready(kubectl: Kubectl, name: str) -> tuple[str, str]:
    """Return reason and message of a machine's condition Ready."""
    found = condition((seen(kubectl, name).get("status") or {}).get("conditions"), "Ready") or {}
    return str(found.get("reason")), str(found.get("message"))


def at(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def refused(kubectl: Kubectl, node: str, words: str) -> None:
    """See that neither new machines nor a guest that runs come to the node, and that each says why; one that may be elsewhere is."""
    kubectl.apply(linux_vm("named", nodeName=node), linux_vm("selecting", nodeSelector=at(node)), linux_vm("free"))
    moving = kubectl.create(migration(MOVES, node=node))["metadata"]["name"]

    eventually(lambda: ready(kubectl, "named") == (conditions.HANDLER_NOT_UNDERSTOOD, words), timeout=60, what="the words of nodeName")
    eventually(lambda: ready(kubectl, "selecting")[0] == "Unschedulable", timeout=60, what="a pod that no node takes")
    assert ready(kubectl, "selecting")[1].endswith(f"; {words}")
    told = eventually(
        lambda: words in str(kubectl.json("get", "migration", moving).get("status")), timeout=60, what="the Migration's words"
    )
    assert told
    for name in ("named", "selecting"):
        on = [each["spec"].get("nodeName") for each in kubectl.json("get", "pods", "-l", f"vm.kubevirt.io/name={name}")["items"]]
        assert not any(on)
    kubectl("wait", "vm", "free", "--for=condition=Ready", "--timeout=120s", timeout=130)
    assert seen(kubectl, "free")["status"]["nodeName"] != node
    kubectl("virt", "cancel-migration", MOVES, "--wait", "--timeout", "1m", timeout=70)


def accepted(kubectl: Kubectl, node: str) -> None:
    """See that those that waited for the node come to it."""
    kubectl("wait", "vm", "named", "--for=condition=Ready", "--timeout=120s", timeout=130)
    kubectl("virt", "restart", "selecting")  # its pod avoids the node for ever
    made = kubectl.create(migration(MOVES, node=node))["metadata"]["name"]
    assert final_phase(kubectl, made) == "Succeeded"
    kubectl("wait", "vm", "selecting", "--for=condition=Ready", "--timeout=120s", timeout=130)
    assert {seen(kubectl, each)["status"]["nodeName"] for each in ("named", "selecting", MOVES)} == {node}


def test_a_node_whose_virt_handler_speaks_another_contract_gets_no_guests_until_it_speaks_this_one_and_its_own_go_on(
    kubectl: Kubectl, system: Kubectl, testguest: None
) -> None:
    kubectl.apply(linux_vm(STAYS))
    before = {STAYS: counts(kubectl, STAYS)}
    node = before[STAYS]["status"]["nodeName"]
    kubectl.apply(linux_vm(MOVES, nodeSelector=at(other_node(kubectl, node))))
    before[MOVES] = counts(kubectl, MOVES)
    kubectl("patch", "vm", MOVES, "--type=merge", "-p", json.dumps({"spec": {"nodeSelector": None}}))
    counted = {name: ticks(kubectl, name)[-1] for name in before}

    def go_on() -> None:
        for name in before:
            now = ticks(kubectl, name)
            assert now == list(range(now[0], now[0] + 3))
            assert now[0] > counted[name]
            assert len(seen(kubectl, name)["status"]["attempts"]) == len(before[name]["status"]["attempts"])
            counted[name] = now[-1]

    words = f"node {node} gets no guests: its virt-handler speaks version {OTHER} of the contract, and virt-controller speaks "
    with speaking_another_contract(system, node):
        refused(kubectl, node, words + contract.written())
        go_on()
        assert {name: seen(kubectl, name)["status"]["podName"] for name in before} == {
            name: each["status"]["podName"] for name, each in before.items()
        }
    accepted(kubectl, node)
    go_on()
    assert seen(kubectl, STAYS)["status"]["podName"] == before[STAYS]["status"]["podName"]
