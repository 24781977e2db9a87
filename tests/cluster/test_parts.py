"""What the parts give each other on the real cluster: devices, networks, displays, certificates, leadership."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
from typing import Any

import pytest

from apiserver.apis.virt import names
from tests.cluster.kube import Kubectl, console, eventually, forwarded
from tests.cluster.manifests import linux_vm
from tests.testbed import images
from tests.usb_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(kubectl: Kubectl) -> dict[str, Any]:
    """A machine that runs and has its prompt."""
    vm = linux_vm("parts")
    vm["spec"]["domain"]["devices"]["redirectedDevices"] = {"filter": [{"class": "0x0b"}]}
    kubectl.apply(vm)
    kubectl("wait", "vm", "parts", "--for=condition=Ready", "--timeout=90s", timeout=100)
    with console(kubectl, "parts") as guest:
        guest.expect("GUEST-READY", timeout=120)
    started: dict[str, Any] = kubectl.json("get", "vm", "parts")
    return started


def test_nodes_offer_tun_and_only_honest_kvm(kubectl: Kubectl, running: dict[str, Any]) -> None:
    """Each node says in its Lease what its trial guest showed; kvm is offered exactly where that says ``kvm``."""
    leases = {
        each["spec"]["holderIdentity"]: each
        for each in kubectl.within(names.node_lease_namespace("kubevirt")).json("get", "leases", "-l", "kubevirt.io=virt-handler")["items"]
    }
    for node in kubectl.json("get", "nodes")["items"]:
        allocatable = node["status"]["allocatable"]
        verdict = leases[node["metadata"]["name"]]["metadata"]["annotations"]["kubevirt.io/acceleration"]
        assert int(allocatable["devices.kubevirt.io/tun"]) > 0
        assert (int(allocatable.get("devices.kubevirt.io/kvm", "0")) > 0) == verdict.startswith("kvm")
        if node["metadata"]["name"] == running["status"]["nodeName"]:
            assert verdict.startswith(running["status"]["domain"]["type"])


def test_each_node_owns_the_lease_of_its_virt_handler(kubectl: Kubectl, running: dict[str, Any]) -> None:
    """The garbage collector removes the Lease by its owner when the Node is deleted."""
    assert running["status"]["nodeName"]
    nodes = {each["metadata"]["name"]: each["metadata"]["uid"] for each in kubectl.json("get", "nodes")["items"]}
    wanted = {name: [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}] for name, uid in nodes.items()}

    def owners() -> dict[str, Any]:
        found = kubectl.within(names.node_lease_namespace("kubevirt")).json("get", "leases")["items"]
        return {each["spec"]["holderIdentity"]: each["metadata"].get("ownerReferences") for each in found}

    eventually(lambda: owners() == wanted, timeout=90, what="an owner of each Lease")


def test_another_pod_reaches_the_guest_at_the_address_in_its_status(kubectl: Kubectl, running: dict[str, Any]) -> None:
    address = running["status"]["interfaces"][0]["ipAddress"]
    with console(kubectl, "parts") as guest:
        guest.type("\n")
        guest.run("echo served-by-the-guest > /tmp/index.html; httpd -p 8080 -h /tmp")
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "main", "image": images.BUSYBOX, "command": ["fetch", f"http://{address}:8080/"], "securityContext": restricted}
    kubectl.apply(
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
    kubectl("wait", "pod", "visitor", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", timeout=70)
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


def test_a_usb_device_speaks_with_qemu_through_the_plugin_and_a_second_one_is_refused(kubectl: Kubectl, running: dict[str, Any]) -> None:
    command = kubectl.command("virt", "usbredir", "parts")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = json.loads(proxy.stdout.readline())["port"]
            with Peer(socket.create_connection(("127.0.0.1", port), timeout=20), vendor=0x1209, product=1) as peer:
                assert peer.hello.wait(90)
                assert peer.rejected.wait(90)  # by the machine's filter: QEMU has read what the device is
                for more in ([], ["--slot", "0"]):
                    second = kubectl.try_run("virt", "usbredir", "parts", *more)
                    assert second.returncode == 1
                    assert "Error from server (Conflict)" in second.stderr
                    assert "for redirected devices has a client" in second.stderr
        finally:
            proxy.terminate()
    absent = kubectl.try_run("virt", "usbredir", "parts", "--slot", "1")
    assert "spec.domain.devices.redirectedDevices.slots is 1" in absent.stderr


def test_a_stream_that_cannot_be_is_answered_before_the_upgrade(kubectl: Kubectl, running: dict[str, Any]) -> None:
    kubectl.apply(linux_vm("off", runStrategy="Halted"))

    absent = kubectl.try_run("virt", "console", "absent", stdin="")
    off = kubectl.try_run("virt", "console", "off", stdin="")

    assert absent.returncode != 0
    assert "not found" in absent.stderr
    assert off.returncode != 0
    assert "running" in off.stderr.lower()


def served(system: Kubectl, pod: dict[str, Any], authorities: str) -> bytes:
    """Return the certificate (DER) that a pod of virt-api presents; nothing if these authorities do not vouch for it, or it is silent."""
    (port,) = (each["containerPort"] for each in pod["spec"]["containers"][0]["ports"] if each["name"] == "https")
    tls = ssl.create_default_context(cadata=authorities)
    with forwarded(system, f"pod/{pod['metadata']['name']}", port) as here:
        try:
            with (
                socket.create_connection(("127.0.0.1", here), timeout=20) as plain,
                tls.wrap_socket(plain, server_hostname=f"virt-api.{system.namespace}.svc") as wrapped,
            ):
                return wrapped.getpeercert(binary_form=True) or b""
        except OSError:  # ssl.SSLCertVerificationError is one
            return b""


def test_a_lost_certificate_is_made_again_and_used_without_a_restart(system: Kubectl, running: dict[str, Any]) -> None:
    def pods() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = system.json("get", "pods", "-l", "kubevirt.io=virt-api")["items"]
        return items

    def starts() -> dict[str, int]:
        return {each["metadata"]["name"]: each["status"]["containerStatuses"][0]["restartCount"] for each in pods()}

    def secret() -> dict[str, str]:
        found = system.try_run("get", "secret", "kubevirt-virt-api-tls", "-o", "json")
        data: dict[str, str] = json.loads(found.stdout)["data"] if found.returncode == 0 else {}
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def presented() -> list[bytes]:
        return [served(system, pod, secret()["ca.crt"]) for pod in pods()]

    before, old = starts(), ssl.PEM_cert_to_DER_cert(secret()["tls.crt"])
    assert set(presented()) == {old}

    system("delete", "secret", "kubevirt-virt-api-tls")

    made = eventually(lambda: (now := secret().get("tls.crt")) and ssl.PEM_cert_to_DER_cert(now), timeout=60, what="a new certificate")
    assert made != old
    # Secret volumes follow after a minute or so; then every replica presents the new one on connections that begin.
    eventually(lambda: set(presented()) == {made}, timeout=180, what="the new certificate is served", interval=3)
    assert starts() == before
    eventually(lambda: system.try_run("get", "vms").returncode == 0, timeout=60, what="the API is served")


def test_the_other_controller_takes_over(system: Kubectl, kubectl: Kubectl, running: dict[str, Any]) -> None:
    holder = system.json("get", "lease", "virt-controller")["spec"]["holderIdentity"]
    pod = next(
        name
        for name in system("get", "pods", "-l", "kubevirt.io=virt-controller", "-o", "name").split()
        if name.partition("/")[2] in holder
    )

    system("delete", pod, "--wait=false")

    eventually(
        lambda: system.json("get", "lease", "virt-controller")["spec"].get("holderIdentity") not in (None, "", holder),
        timeout=60,
        what="a new leader",
    )
    kubectl.apply(linux_vm("after"))
    kubectl("wait", "vm", "after", "--for=condition=Ready", "--timeout=90s", timeout=100)
