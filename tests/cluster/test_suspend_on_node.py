from __future__ import annotations

import pytest

from apiserver.apis.meta.objects import name_of
from handler.storage import node_disk_sweep
from tests.cluster.api import in_phase
from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, until_in

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HANDLER = "virt-handler"


def handler_on(system: Kubectl, node: str) -> str:
    (handler,) = system.api.list("pods", label_selector=f"kubevirt.io={HANDLER}", field_selector=f"spec.nodeName={node}")
    return name_of(handler)


@pytest.mark.sample(2, "guests suspended on their node")
def test_a_suspended_guest_goes_on_from_the_disk_of_its_node(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(counting_vm("dozer"))
    vm = kubectl.api.ready("vm", "dozer", timeout=120)
    count, node = ticks(kubectl, "dozer")[-1], vm["status"]["nodeName"]
    kubectl.api.patch("vm", "dozer", {"spec": {"managedSave": {"nodeDisk": {}}}})
    kubectl("virt", "suspend", "dozer", "--wait", timeout=120)
    vm = kubectl.api.until("vm", "dozer", in_phase("Suspended"), timeout=60, what="Suspended")
    image = vm["status"]["managedSave"]
    assert (image["nodeName"], image.get("claimName")) == (node, None)
    file = f"{kubectl.namespace}.dozer.{vm['metadata']['uid']}.{image['id']}"
    images = f"ls /var/lib/kubevirt-managed-save/{node}"
    assert file in system("exec", handler_on(system, node), "--container", HANDLER, "--", *images.split()).split()

    kubectl("virt", "resume", "dozer", "--wait", timeout=180)
    vm = kubectl.api.ready("vm", "dozer", timeout=60)
    assert vm["status"]["nodeName"] == node
    counts_on(kubectl, "dozer", count)

    kubectl.api.verb("dozer", "suspend")
    kubectl.api.until("vm", "dozer", in_phase("Suspended"), timeout=60, what="Suspended")
    kubectl.api.delete("vm", "dozer")
    kubectl.api.gone("vm", "dozer", timeout=30)
    after_a_look = node_disk_sweep.LOOK_SECONDS + 30
    none_is_left = f"found=$({images}) && case $found in *.dozer.*) false;; esac"
    until_in(system, handler_on(system, node), none_is_left, timeout=after_a_look, what="no image is left", container=HANDLER)
