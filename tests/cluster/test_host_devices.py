"""Devices of the node, by a device plugin that is registered with the real kubelet.

No node here has an IOMMU, so that no guest gets a device: what is seen is that the pod comes to where the resource is, and that what the
plugin says of it reaches libvirt, or is missed by the field's path.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.device_plugin import DOMAIN, offered
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import linux_vm
from tests.testbed import layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NODE = layout.NODES[1]
ABSENT = "0000:ff:1f.7"


def with_device(name: str, resource: str) -> dict[str, Any]:
    vm = linux_vm(name, runStrategy="Once")
    vm["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "card", "deviceName": f"{DOMAIN}/{resource}"}]
    return vm


def allocatable(kubectl: Kubectl, resource: str) -> int:
    return int(kubectl.json("get", "node", NODE.name)["status"]["allocatable"].get(f"{DOMAIN}/{resource}", "0"))


def failed(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    attempts = kubectl.json("get", "vm", name).get("status", {}).get("attempts", [])
    return attempts[-1] if attempts and attempts[-1].get("result") == "Failed" else None


def test_a_machine_comes_to_the_node_of_its_device_and_its_plugins_word_is_what_counts(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    with offered(NODE, {"card": {"PCI_RESOURCE_DEVICES_EXAMPLE_ORG_CARD": ABSENT}, "mute": {}}):
        eventually(
            lambda: allocatable(kubectl, "card") and allocatable(kubectl, "mute"), timeout=90, what="the kubelet knows the resources"
        )
        kubectl.apply(with_device("named", "card"), with_device("mute", "mute"))
        named = eventually(lambda: failed(kubectl, "named"), timeout=120, what="libvirt refuses a device that is not there")
        mute = eventually(lambda: failed(kubectl, "mute"), timeout=120, what="virt-launcher misses the address")
    assert {named["nodeName"], mute["nodeName"]} == {NODE.name}
    assert "devices.hostDevices" not in named["message"], named
    assert "pci" in named["message"].lower(), named
    assert (
        f"devices.hostDevices[0].deviceName: no device of {DOMAIN}/mute is named in PCI_RESOURCE_DEVICES_EXAMPLE_ORG_MUTE"
        in mute["message"]
    )


def test_a_machine_whose_device_no_node_has_says_so(kubectl: Kubectl) -> None:
    kubectl.apply(with_device("nowhere", "nowhere"))

    def told() -> str:
        conditions = kubectl.json("get", "vm", "nowhere").get("status", {}).get("conditions", [])
        return " ".join(each.get("message", "") for each in conditions)

    eventually(lambda: f"Insufficient {DOMAIN}/nowhere" in told(), timeout=60, what="the scheduler's word")
    kubectl("delete", "vm", "nowhere", "--timeout=60s", timeout=70)
