from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt import node_protocol
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import names
from tests.cluster.api import is_true
from tests.cluster.drains import ANYWHERE, ended, on
from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import migration, tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OTHER = node_protocol.VERSION + 1
MODULE = node_protocol.__name__
CONFIG_MAP = "another-protocol"
HANDLER = "virt-handler"
STAYS, MOVES = "stays", "moves"


def handler_on(system: Kubectl, node: str, *, other_than: str = "") -> Object:
    def is_so(pods: list[Object]) -> bool:
        return len(pods) == 1 and pods[0]["metadata"]["uid"] != other_than and is_true("Ready")(pods[0])

    (found,) = system.api.until_list(
        "pods",
        is_so,
        timeout=120,
        what=f"a virt-handler on {node}",
        label_selector=f"kubevirt.io={HANDLER}",
        field_selector=f"spec.nodeName={node}",
    )
    return found


def await_protocol(system: Kubectl, node: str, version: str) -> None:
    def is_so(lease: Object) -> bool:
        return bool(dig(lease, "metadata", "annotations", node_protocol.ANNOTATION) == version)

    leases = system.api.within(names.node_lease_namespace(system.namespace))
    leases.until("lease", names.handler_lease(node), is_so, timeout=90, what=f"{node} speaks version {version}")


def change(system: Kubectl, strategy: dict[str, Any], template: dict[str, Any]) -> None:
    changed = {"updateStrategy": strategy, "template": template}
    system.api.patch(
        "daemonset", HANDLER, [{"op": "replace", "path": f"/spec/{field}", "value": value} for field, value in changed.items()]
    )


def of_another_protocol(template: dict[str, Any], path: str) -> dict[str, Any]:
    found = copy.deepcopy(template)
    (container,) = found["spec"]["containers"]
    container["command"] = ["python3", "-Iu", "--check-hash-based-pycs", "always", f"/usr/local/bin/{HANDLER}"]
    container["volumeMounts"].append({"name": "protocol", "mountPath": path, "subPath": "node_protocol.py", "readOnly": True})
    found["spec"]["volumes"].append({"name": "protocol", "configMap": {"name": CONFIG_MAP}})
    return found


@contextmanager
def speaking_another_protocol(system: Kubectl, node: str) -> Iterator[None]:
    before, pod = system.api.get("daemonset", HANDLER)["spec"], handler_on(system, node)["metadata"]
    inside = ("exec", pod["name"], "--container", HANDLER, "--")
    path = system(*inside, "python3", "-c", f"import {MODULE} as found; print(found.__file__)").strip()
    source, said = system(*inside, "cat", path), "VERSION: Final = {}\n"
    other = source.replace(said.format(node_protocol.VERSION), said.format(OTHER))
    assert other != source
    system.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {"node_protocol.py": other}})
    try:
        change(system, {"type": "OnDelete"}, of_another_protocol(before["template"], path))
        system.api.delete("pod", pod["name"])
        handler_on(system, node, other_than=pod["uid"])
        await_protocol(system, node, str(OTHER))
        yield
    finally:
        change(system, before["updateStrategy"], before["template"])
        system.api.rolled_out(f"daemonset/{HANDLER}", timeout=300)
        system.api.delete("configmap", CONFIG_MAP)
    await_protocol(system, node, node_protocol.written())


def seen(kubectl: Kubectl, name: str) -> Object:
    return kubectl.api.get("vm", name)


def await_reason(kubectl: Kubectl, name: str, reason: str) -> str:

    def ready(vm: Object) -> Mapping[str, Any]:
        return condition(dig(vm, "status", "conditions"), "Ready") or {}

    vm = kubectl.api.until("vm", name, lambda each: ready(each).get("reason") == reason, timeout=60, what=f"{name} has the reason {reason}")
    return str(ready(vm)["message"])


def refused(kubectl: Kubectl, node: str, words: str) -> None:
    kubectl.api.apply(tiny_vm("named", nodeName=node), tiny_vm("selecting", nodeSelector=on(node)), tiny_vm("free"))
    moving = kubectl.api.create(migration(MOVES, node=node))["metadata"]["name"]

    assert await_reason(kubectl, "named", conditions.HANDLER_NOT_UNDERSTOOD) == words
    assert await_reason(kubectl, "selecting", "Unschedulable").endswith(f"; {words}")
    kubectl.api.until("migrations", moving, lambda each: words in str(each.get("status")), timeout=60, what="the Migration's words")
    for name in ("named", "selecting"):
        pods = kubectl.api.list("pods", label_selector=f"vm.kubevirt.io/name={name}")
        assert not any(each["spec"].get("nodeName") for each in pods)
    assert kubectl.api.ready("vm", "free", timeout=120)["status"]["nodeName"] != node
    kubectl("virt", "cancel-migration", MOVES, "--wait", "--timeout", "1m", timeout=70)


def accepted(kubectl: Kubectl, node: str) -> None:
    kubectl.api.ready("vm", "named", timeout=120)
    kubectl.api.verb("selecting", "restart")
    made = kubectl.api.create(migration(MOVES, node=node))["metadata"]["name"]
    assert ended(kubectl, made)["status"]["phase"] == "Succeeded"
    kubectl.api.ready("vm", "selecting", timeout=120)
    assert {seen(kubectl, each)["status"]["nodeName"] for each in ("named", "selecting", MOVES)} == {node}


def test_node_of_another_protocol_gets_no_guests_until_upgraded(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    kubectl.api.create(counting_vm(STAYS))
    before = {STAYS: kubectl.api.ready("vm", STAYS, timeout=120)}
    node = before[STAYS]["status"]["nodeName"]
    (other,) = (name for each in kubectl.api.list("nodes") if (name := each["metadata"]["name"]) != node)
    kubectl.api.create(counting_vm(MOVES, nodeSelector=on(other)))
    before[MOVES] = kubectl.api.ready("vm", MOVES, timeout=120)
    kubectl.api.patch("vm", MOVES, ANYWHERE)
    counted = {name: ticks(kubectl, name)[-1] for name in before}

    def go_on() -> None:
        for name in before:
            counted[name] = counts_on(kubectl, name, counted[name])
            assert len(seen(kubectl, name)["status"]["attempts"]) == len(before[name]["status"]["attempts"])

    words = f"node {node} cannot run guests: its virt-handler uses version {OTHER} of the node protocol, but virt-controller uses "
    with speaking_another_protocol(system, node):
        refused(kubectl, node, f"{words}{node_protocol.written()}; upgrade both to the same version")
        go_on()
        assert {name: seen(kubectl, name)["status"]["podName"] for name in before} == {
            name: each["status"]["podName"] for name, each in before.items()
        }
    accepted(kubectl, node)
    go_on()
    assert seen(kubectl, STAYS)["status"]["podName"] == before[STAYS]["status"]["podName"]
