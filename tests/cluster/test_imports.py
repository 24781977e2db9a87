"""An image that is downloaded into a claim, from a server of the cluster's, and the guest that boots from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import test_claims
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, shared_claim, with_disks
from tests.cluster.test_testbed import a_pod
from tests.testbed import kubectl as testbed_kubectl

URL = "http://images/disk.img.gz"
SERVE = "mkdir /tmp/www && gzip -c /guest/disk/disk.img >/tmp/www/disk.img.gz && exec httpd -f -p 8080 -h /tmp/www"


def a_server() -> dict[str, Any]:
    """Return a pod that serves the test guest's disk, compressed."""
    volume = {"name": "guest", "image": {"reference": GUEST_IMAGE, "pullPolicy": "IfNotPresent"}}
    return a_pod("images", "sh", "-c", SERVE, restart="Always", volumes=[volume], volume_mounts=[{"name": "guest", "mountPath": "/guest"}])


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_guest_boots_from_an_image_that_was_downloaded_once(kubectl: Kubectl, testguest: None) -> None:
    vm = linux_vm("imported")
    del vm["spec"]["domain"]["firmware"]
    source = {"name": "imported", "import": {"http": {"url": f"{URL}?signature=secret"}}}
    kubectl.apply(shared_claim("imported"))
    kubectl.apply(with_disks(vm, {"name": "root", "type": "PersistentVolumeClaim", "source": source}))

    def failure() -> str:
        conditions = kubectl.json("get", "vm", "imported").get("status", {}).get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "DisksReady" and each["reason"] == "ImportFailed"), "")

    told = eventually(failure, timeout=120, what="condition DisksReady with reason ImportFailed")
    assert told.startswith(f"disk 'root': {URL}: ")  # nobody of this name, and no query
    assert "ImportFailed" in kubectl("get", "vm", "imported")
    (status,) = kubectl.json("get", "vm", "imported")["status"]["imports"]
    assert (status["disk"], status["phase"]) == ("root", "Retrying")

    kubectl.create(a_server())
    kubectl("create", "service", "clusterip", "images", "--tcp=80:8080")
    kubectl("wait", "vm", "imported", "--for=condition=Ready", "--timeout=300s", timeout=310)
    with console(kubectl, "imported") as guest:
        guest.expect("GUEST-READY", timeout=180)
        assert "vda" in guest.run("cat /proc/partitions")
    found = kubectl.json("get", "vm", "imported")["status"]
    assert "imports" not in found
    reasons = {each["reason"] for each in kubectl.json("get", "events")["items"] if each["involvedObject"]["name"] == "imported"}
    assert {"ImportStarted", "ImportFailed", "ImportSucceeded", "Started"} <= reasons
    assert "signature=" not in str(kubectl.json("get", "events")["items"])

    kubectl("delete", "pod", "images", "--wait=true")  # nobody asks it again
    kubectl("virt", "stop", "imported")
    eventually(lambda: kubectl.json("get", "vm", "imported")["status"]["phase"] == "Stopped", timeout=90, what="phase Stopped")
    kubectl("virt", "start", "imported")
    kubectl("wait", "vm", "imported", "--for=condition=Ready", "--timeout=120s", timeout=130)


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="needs devices of the test bed's nodes")
def test_a_guest_boots_from_a_block_device_that_an_image_was_downloaded_into(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    kubectl.create(a_server())
    kubectl.try_run("create", "service", "clusterip", "images", "--tcp=80:8080")
    with test_claims.device(kubectl, tmp_path, mebibytes=128) as claim:
        vm = linux_vm("imported-block")
        del vm["spec"]["domain"]["firmware"]
        source = {"name": claim, "import": {"http": {"url": URL}}}
        kubectl.apply(with_disks(vm, {"name": "root", "type": "PersistentVolumeClaim", "source": source}))
        try:
            kubectl("wait", "vm", "imported-block", "--for=condition=Ready", "--timeout=300s", timeout=310)
            with console(kubectl, "imported-block") as guest:
                guest.expect("GUEST-READY", timeout=180)
                assert str(128 << 10) in guest.run("cat /proc/partitions")
            kubectl("delete", "pod", "images", "--wait=true")  # nobody asks it again
            kubectl("virt", "stop", "imported-block")
            eventually(
                lambda: kubectl.json("get", "vm", "imported-block")["status"]["phase"] == "Stopped", timeout=90, what="phase Stopped"
            )
            kubectl("virt", "start", "imported-block")
            kubectl("wait", "vm", "imported-block", "--for=condition=Ready", "--timeout=120s", timeout=130)
        finally:
            kubectl("delete", "vm", "imported-block", "--timeout=120s", timeout=130)
            kubectl("delete", "pod", "images", "--ignore-not-found", "--wait=true")
