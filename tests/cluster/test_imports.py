from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import test_claims
from tests.cluster.api import condition_of, has, in_phase
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, shared_claim, with_disks
from tests.cluster.serving import a_service
from tests.cluster.test_testbed import a_pod
from tests.testbed import kubectl as testbed_kubectl

URL = "http://images/disk.img.gz"
SERVE = "mkdir /tmp/www && gzip -c /guest/disk/disk.img >/tmp/www/disk.img.gz && exec httpd -f -p 8080 -h /tmp/www"


def a_server() -> dict[str, Any]:
    volume = {"name": "guest", "image": {"reference": GUEST_IMAGE, "pullPolicy": "IfNotPresent"}}
    return a_pod("images", "sh", "-c", SERVE, restart="Always", volumes=[volume], volume_mounts=[{"name": "guest", "mountPath": "/guest"}])


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_guest_boots_from_an_image_that_was_downloaded_once(kubectl: Kubectl, testguest: None) -> None:
    vm = linux_vm("imported")
    del vm["spec"]["domain"]["firmware"]
    source = {"name": "imported", "import": {"http": {"url": f"{URL}?signature=secret"}}}
    kubectl.api.apply(shared_claim("imported"))
    kubectl.api.apply(with_disks(vm, {"name": "root", "type": "PersistentVolumeClaim", "source": source}))

    failed = kubectl.api.until("vm", "imported", has("DisksReady", reason="ImportFailed"), timeout=120, what="DisksReady is ImportFailed")
    assert condition_of(failed, "DisksReady")["message"].startswith(f"disk 'root': {URL}: ")
    assert "ImportFailed" in kubectl("get", "vm", "imported")
    (status,) = kubectl.api.get("vm", "imported")["status"]["imports"]
    assert (status["disk"], status["phase"]) == ("root", "Retrying")

    kubectl.api.create(a_server())
    kubectl.api.create(a_service("images", "images"))
    kubectl.api.ready("vm", "imported", timeout=300)
    with console(kubectl, "imported") as guest:
        guest.expect("GUEST-READY", timeout=180)
        assert "vda" in guest.run("cat /proc/partitions")
    found = kubectl.api.get("vm", "imported")["status"]
    assert "imports" not in found
    reasons = {each["reason"] for each in kubectl.api.list("events") if each["involvedObject"]["name"] == "imported"}
    assert {"ImportStarted", "ImportFailed", "ImportSucceeded", "Started"} <= reasons
    assert "signature=" not in str(kubectl.api.list("events"))

    kubectl.api.delete("pod", "images", timeout=60)
    kubectl.api.verb("imported", "stop")
    kubectl.api.until("vm", "imported", in_phase("Stopped"), timeout=90, what="phase Stopped")
    kubectl.api.verb("imported", "start")
    kubectl.api.ready("vm", "imported", timeout=120)


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="needs devices of the test bed's nodes")
def test_guest_boots_from_an_imported_block_device(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    kubectl.api.create(a_server())
    kubectl.api.apply(a_service("images", "images"))
    with test_claims.device(kubectl, tmp_path, mebibytes=128) as claim:
        vm = linux_vm("imported-block")
        del vm["spec"]["domain"]["firmware"]
        source = {"name": claim, "import": {"http": {"url": URL}}}
        kubectl.api.apply(with_disks(vm, {"name": "root", "type": "PersistentVolumeClaim", "source": source}))
        try:
            kubectl.api.ready("vm", "imported-block", timeout=300)
            with console(kubectl, "imported-block") as guest:
                guest.expect("GUEST-READY", timeout=180)
                assert str(128 << 10) in guest.run("cat /proc/partitions")
            kubectl.api.delete("pod", "images", timeout=60)
            kubectl.api.verb("imported-block", "stop")
            kubectl.api.until("vm", "imported-block", in_phase("Stopped"), timeout=90, what="phase Stopped")
            kubectl.api.verb("imported-block", "start")
            kubectl.api.ready("vm", "imported-block", timeout=120)
        finally:
            kubectl.api.delete("vm", "imported-block", timeout=120)
            if kubectl.api.find("pod", "images"):
                kubectl.api.delete("pod", "images", timeout=60)
