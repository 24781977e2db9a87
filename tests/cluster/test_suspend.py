from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import in_phase
from tests.cluster.guests import answers, counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import shared_claim
from tests.cluster.test_bad_days import await_recovery, kill_all
from tests.cluster.test_migrations import other_node
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="looks at the files of a claim"),
]

COMPONENTS = ("virt-api", "virt-controller", "virt-handler", "etcd")


def a_vm(name: str, claim: str, **spec: Any) -> dict[str, Any]:
    return counting_vm(name, managedSave={"claimName": claim}, **spec)


def boot_of(kubectl: Kubectl, vm: str) -> str:
    with console(kubectl, vm) as guest:
        answers(guest)
        guest.type("uptime\n")
        return guest.expect(r"boot=(\S+) commands=")[1]


def pods(kubectl: Kubectl, vm: str) -> list[dict[str, Any]]:
    found = kubectl.api.list("pods", label_selector=f"vm.kubevirt.io/name={vm}")
    return [each for each in found if each["status"].get("phase") not in ("Succeeded", "Failed")]


def files(vm: dict[str, Any]) -> set[str]:
    return {each.name for each in layout.shared_volumes().rglob(f"{vm['metadata']['uid']}/*")}


def test_a_suspended_guest_goes_on_on_the_other_node(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(shared_claim("memory"), a_vm("sleeper", "memory", runStrategy="Always"))
    vm = kubectl.api.ready("vm", "sleeper", timeout=120)
    boot, count, node = boot_of(kubectl, "sleeper"), ticks(kubectl, "sleeper")[-1], vm["status"]["nodeName"]

    kubectl("virt", "suspend", "sleeper", "--wait", timeout=120)
    vm = kubectl.api.until("vm", "sleeper", in_phase("Suspended"), timeout=60, what="Suspended")
    image = vm["status"]["managedSave"]
    assert (image["claimName"], image["file"].split("/")[0]) == ("memory", vm["metadata"]["uid"])
    assert image["sizeBytes"] > 0
    assert vm["status"]["attempts"][-1]["result"] == "Suspended"
    assert "Suspended" in kubectl("get", "vm", "sleeper")

    killed = {component: kill_all(system, component) for component in COMPONENTS}
    for component in COMPONENTS:
        await_recovery(system, component, killed[component])
    vm = kubectl.api.get("vm", "sleeper")
    assert (vm["status"]["phase"], vm["status"]["managedSave"]) == ("Suspended", image)
    assert pods(kubectl, "sleeper") == []

    other = other_node(kubectl, node)
    kubectl.api.patch("vm", "sleeper", {"spec": {"nodeSelector": {"kubevirt.io/hostname": other}}})
    kubectl("virt", "resume", "sleeper", "--wait", timeout=180)
    vm = kubectl.api.ready("vm", "sleeper", timeout=60)
    assert vm["status"]["nodeName"] == other
    assert "managedSave" not in vm["status"]
    counts_on(kubectl, "sleeper", count)
    assert boot_of(kubectl, "sleeper") == boot

    kubectl.api.verb("sleeper", "suspend")
    kubectl.api.until("vm", "sleeper", in_phase("Suspended"), timeout=60, what="Suspended")
    kubectl("virt", "start", "sleeper", "--discard-state")
    kubectl.api.ready("vm", "sleeper", timeout=120)
    assert boot_of(kubectl, "sleeper") != boot

    kubectl.api.verb("sleeper", "suspend")
    vm = kubectl.api.until("vm", "sleeper", in_phase("Suspended"), timeout=60, what="Suspended")
    assert files(vm) == {vm["status"]["managedSave"]["id"]}
    kubectl.api.delete("vm", "sleeper")
    kubectl.api.gone("vm", "sleeper", timeout=120)
    assert files(vm) == set()
