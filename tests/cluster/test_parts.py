from __future__ import annotations

import json
import socket
import subprocess
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from tests.cluster.api import in_phase
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, tiny_vm
from tests.testbed import images
from tests.usb_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LEASES = names.node_lease_namespace("kubevirt")


@pytest.fixture(scope="module")
def running(kubectl: Kubectl) -> dict[str, Any]:
    vm = linux_vm("parts")
    vm["spec"]["domain"]["devices"]["redirectedDevices"] = {"filter": [{"class": "0x0b"}]}
    kubectl.api.create(vm)
    kubectl.api.ready("vm", "parts", timeout=90)
    with console(kubectl, "parts") as guest:
        guest.expect("GUEST-READY", timeout=120)
    return kubectl.api.get("vm", "parts")


def test_nodes_offer_tun_and_only_honest_kvm(kubectl: Kubectl, running: dict[str, Any]) -> None:
    leases = {
        each["spec"]["holderIdentity"]: each
        for each in kubectl.api.within(LEASES).list("leases", label_selector="kubevirt.io=virt-handler")
    }
    for node in kubectl.api.list("nodes"):
        allocatable = node["status"]["allocatable"]
        verdict = leases[node["metadata"]["name"]]["metadata"]["annotations"]["kubevirt.io/acceleration"]
        assert int(allocatable["devices.kubevirt.io/tun"]) > 0
        assert (int(allocatable.get("devices.kubevirt.io/kvm", "0")) > 0) == verdict.startswith("kvm")
        if node["metadata"]["name"] == running["status"]["nodeName"]:
            assert verdict.startswith(running["status"]["domain"]["type"])


def test_libvirt_uses_the_nodes_cache_of_qemus_capabilities(kubectl: Kubectl, running: dict[str, Any]) -> None:
    assert "probed QEMU" not in kubectl("logs", running["status"]["podName"])


def test_each_node_owns_the_lease_of_its_virt_handler(kubectl: Kubectl, running: dict[str, Any]) -> None:
    assert running["status"]["nodeName"]
    nodes = {each["metadata"]["name"]: each["metadata"]["uid"] for each in kubectl.api.list("nodes")}
    wanted = {name: [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}] for name, uid in nodes.items()}

    def have_owners(leases: list[dict[str, Any]]) -> bool:
        ours = [each for each in leases if each["metadata"]["name"].startswith(names.HANDLER)]  # not of guardians, which other tests ran
        return {each["spec"]["holderIdentity"]: each["metadata"].get("ownerReferences") for each in ours} == wanted

    kubectl.api.within(LEASES).until_list("leases", have_owners, timeout=90, what="an owner of each Lease")


REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SubjectAccessReview",
    "spec": {"user": "anyone", "resourceAttributes": {"verb": "get", "resource": "pods"}},
}


@pytest.mark.parametrize(
    ("account", "request_", "sent"),
    [
        ("virt-api", ("create", "--filename=-", "--validate=false"), json.dumps(REVIEW)),
        ("virt-controller", ("get", "lease", "virt-controller"), None),
        ("virt-handler", ("get", "lease", "virt-handler-node1", f"--namespace={LEASES}"), None),
    ],
)
def test_reviews_and_leases_have_seats_of_their_own(
    kubectl: Kubectl, account: str, request_: tuple[str, ...], sent: str | None
) -> None:  # fmt: skip
    uid = kubectl.json("get", "flowschema", "kubevirt-reviews-and-leases")["metadata"]["uid"]

    done = kubectl.within("kubevirt").try_run(*request_, "-v=8", f"--as=system:serviceaccount:kubevirt:{account}", stdin=sent)

    assert f"x-kubernetes-pf-flowschema-uid: {uid}" in done.stderr.lower()


def test_another_pod_reaches_the_guest_at_its_status_address(kubectl: Kubectl, running: dict[str, Any]) -> None:
    address = running["status"]["interfaces"][0]["ipAddress"]
    with console(kubectl, "parts") as guest:
        guest.type("\n")
        guest.run("echo served-by-the-guest > /tmp/index.html; httpd -p 8080 -h /tmp")
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "main", "image": images.BUSYBOX, "command": ["fetch", f"http://{address}:8080/"], "securityContext": restricted}
    kubectl.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "visitor"},
            "spec": {
                "restartPolicy": "OnFailure",
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [container],
            },
        }
    )
    kubectl.api.until("pod", "visitor", in_phase("Succeeded"), timeout=60, what="the end of the visitor")
    assert "served-by-the-guest" in kubectl("logs", "visitor")


def test_the_display_speaks_rfb_through_the_plugin(kubectl: Kubectl, running: dict[str, Any]) -> None:
    command = kubectl.command("virt", "vnc", "parts", "--proxy-only")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = json.loads(proxy.stdout.readline())["port"]
            with socket.create_connection(("127.0.0.1", port), timeout=60) as viewer:
                assert viewer.recv(12) == b"RFB 003.008\n"
        finally:
            proxy.terminate()


def test_usb_device_is_redirected_and_a_second_one_refused(kubectl: Kubectl, running: dict[str, Any]) -> None:
    command = kubectl.command("virt", "usbredir", "parts")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = json.loads(proxy.stdout.readline())["port"]
            with Peer(socket.create_connection(("127.0.0.1", port), timeout=20), vendor=0x1209, product=1) as peer:
                assert peer.hello.wait(90)
                assert peer.rejected.wait(90)
                for more in ([], ["--slot", "0"]):
                    second = kubectl.try_run("virt", "usbredir", "parts", *more)
                    assert second.returncode == 1
                    assert "Error from server (Conflict)" in second.stderr
                    assert "for redirected devices is in use" in second.stderr
        finally:
            proxy.terminate()
    absent = kubectl.try_run("virt", "usbredir", "parts", "--slot", "1")
    assert "spec.domain.devices.redirectedDevices.slots is 1" in absent.stderr


def test_a_stream_that_cannot_be_is_answered_before_the_upgrade(kubectl: Kubectl, running: dict[str, Any]) -> None:
    kubectl.api.create(tiny_vm("off", runStrategy="Halted"))

    absent = kubectl.try_run("virt", "console", "absent", stdin="")
    off = kubectl.try_run("virt", "console", "off", stdin="")

    assert absent.returncode != 0
    assert "not found" in absent.stderr
    assert off.returncode != 0
    assert "running" in off.stderr.lower()
