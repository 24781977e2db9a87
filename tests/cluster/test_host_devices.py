"""Devices of the node, by a device plugin and the real kubelet.

The nodes have no IOMMU, so no guest gets a device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import pytest

from tests.cluster.device_plugin import DOMAIN, offered
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.testbed import layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NODE = layout.NODES[1]
ABSENT = "0000:ff:1f.7"


def with_device(name: str, resource: str) -> dict[str, Any]:
    vm = tiny_vm(name, runStrategy="Once")
    vm["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "card", "deviceName": f"{DOMAIN}/{resource}"}]
    return vm


def has_resources(node: dict[str, Any], names: Iterable[str]) -> bool:
    return all(int(node["status"]["allocatable"].get(f"{DOMAIN}/{each}", "0")) for each in names)


def failed(kubectl: Kubectl, name: str, what: str) -> dict[str, Any]:
    vm = kubectl.api.until("vm", name, lambda vm: vm["status"]["attempts"][-1]["result"] == "Failed", timeout=120, what=what)
    return dict(vm["status"]["attempts"][-1])


def test_machine_runs_on_its_devices_node_by_the_plugins_answer(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    with offered(NODE, {"card": {"PCI_RESOURCE_DEVICES_EXAMPLE_ORG_CARD": ABSENT}, "mute": {}}):
        known = functools.partial(has_resources, names=("card", "mute"))
        kubectl.api.until("node", NODE.name, known, timeout=90, what="the kubelet knows the resources")
        kubectl.api.apply(with_device("named", "card"), with_device("mute", "mute"))
        named = failed(kubectl, "named", "libvirt refuses a device that is not there")
        mute = failed(kubectl, "mute", "virt-launcher misses the address")
    assert {named["nodeName"], mute["nodeName"]} == {NODE.name}
    assert "devices.hostDevices" not in named["message"], named
    assert "pci" in named["message"].lower(), named
    variable = "PCI_RESOURCE_DEVICES_EXAMPLE_ORG_MUTE"
    problem = f"devices.hostDevices[0].deviceName: the pod's environment variable {variable} names no device of {DOMAIN}/mute"
    assert problem in mute["message"]


def test_machine_with_an_unavailable_device_says_so(kubectl: Kubectl) -> None:
    kubectl.api.apply(with_device("nowhere", "nowhere"))

    def is_told(vm: dict[str, Any]) -> bool:
        return any(f"Insufficient {DOMAIN}/nowhere" in each.get("message", "") for each in vm["status"]["conditions"])

    kubectl.api.until("vm", "nowhere", is_told, timeout=60, what="the scheduler's word")
    kubectl.api.delete("vm", "nowhere", timeout=60)
