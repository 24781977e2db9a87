from __future__ import annotations

from typing import Any, Final

import pytest

from apiserver.apis.meta import errors, quantity
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, with_disks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VM: Final = "shares"
PROCESSORS: Final = 2


def a_machine() -> dict[str, Any]:
    disk = {"name": "root", "type": "Image", "source": {"reference": GUEST_IMAGE, "sizeLimit": "1Gi"}, "dedicatedIOThread": True}
    vm = with_disks(linux_vm(VM), disk)
    domain = vm["spec"]["domain"]
    domain["cpu"] = {"cores": PROCESSORS}
    domain["resources"] = {"requests": {"cpu": "150m", "memory": "96Mi"}, "limits": {"memory": "192Mi"}}
    domain["devices"] |= {"networkInterfaceMultiqueue": True, "blockMultiQueue": True}
    return vm


def resources_of(kubectl: Kubectl, vm: str) -> dict[str, dict[str, str]]:
    pod = kubectl.api.get("vm", vm)["status"]["podName"]
    (container,) = kubectl.api.get("pod", pod)["spec"]["containers"]
    found: dict[str, dict[str, str]] = container["resources"]
    return found


def test_machine_has_the_requested_shares_queues_and_threads(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(a_machine())
    try:
        kubectl.api.ready("vm", VM, timeout=120)
        resources = resources_of(kubectl, VM)
        assert resources["requests"]["cpu"] == "150m"
        assert "cpu" not in resources["limits"]
        asked, limit = (quantity.parse(resources[each]["memory"]).bytes for each in ("requests", "limits"))
        assert limit - asked == (192 - 96) << 20
        pod = kubectl.api.get("vm", VM)["status"]["podName"]
        threads = kubectl("exec", pod, "--", "sh", "-c", "cat /proc/[0-9]*/task/*/comm || :").split()
        assert any(each.startswith("IO") for each in threads), threads
        with console(kubectl, VM) as guest:
            guest.expect("press Enter for a prompt")
            guest.expect("GUEST-READY", timeout=120)
            seen = guest.run("echo cards-$(ls -d /sys/class/net/eth0/queues/tx-* | wc -l) disks-$(ls -d /sys/block/vda/mq/* | wc -l)")
            assert f"cards-{PROCESSORS} disks-{PROCESSORS}" in seen
    finally:
        kubectl.api.delete("vm", VM, timeout=60)


def test_invalid_resources_are_refused_at_creation(kubectl: Kubectl) -> None:
    vm = a_machine()
    vm["spec"]["domain"]["resources"] = {"limits": {"memory": "64Mi"}}
    vm["spec"]["domain"]["cpu"] |= {"model": "Pentium-9", "features": [{"name": "warp"}]}
    with pytest.raises(errors.Invalid) as refused:
        kubectl.api.apply(vm)
    for field in ("resources.limits.memory", "cpu.model", "cpu.features[0].name"):
        assert f"spec.domain.{field}" in str(refused.value)
