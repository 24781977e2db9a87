"""NBD over TLS from a pod, and iSCSI with CHAP from outside the cluster. Both fail and return."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.api import condition_of, has
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import linux_vm, migration, shared_claim, with_disks
from tests.cluster.serving import a_service
from tests.cluster.test_migrations import final_phase, other_node
from tests.cluster.test_testbed import a_pod
from tests.damage import never_again
from tests.host.launcher.servers import Certificates, IscsiTarget
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="the target runs on the machine of the test cluster"),
]

SERVER_IMAGE = "localhost/kubevirt/virt-launcher:dev"
USER, PASSWORD = "initiator-7", "correct-horse-7"
MIB = 1 << 20
SERVE = """\
set -e
image=/export/disk.img
[ -e $image ] || { truncate -s 16M $image.new; printf from-nbd | dd of=$image.new conv=notrunc; mv $image.new $image; }
exec qemu-nbd --persistent --shared=8 --format=raw --tls-creds=tls --export-name=vm-1 \
  --object=tls-creds-x509,id=tls,endpoint=server,verify-peer=yes,dir=/certificates $image
"""


def a_secret(name: str, kind: str, values: dict[str, bytes]) -> dict[str, Any]:
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": data}


def a_server() -> dict[str, Any]:
    pod = a_pod(
        "nbd",
        "sh",
        "-c",
        SERVE,
        volumes=[
            {"name": "export", "persistentVolumeClaim": {"claimName": "nbd"}},
            {"name": "certificates", "secret": {"secretName": "nbd-server"}},
        ],
        volume_mounts=[{"name": "export", "mountPath": "/export"}, {"name": "certificates", "mountPath": "/certificates"}],
        securityContext={"fsGroup": 107, "runAsUser": 107, "runAsGroup": 107},
    )
    pod["spec"]["containers"][0] |= {"image": SERVER_IMAGE, "imagePullPolicy": "IfNotPresent"}
    return pod


def secrets() -> list[dict[str, Any]]:
    certificates = Certificates()
    server, client = certificates.of_server("nbd"), certificates.of_client()
    served = {"ca-cert.pem": certificates.authority, "server-cert.pem": server.certificate, "server-key.pem": server.key}
    used = {"ca.crt": certificates.authority, "tls.crt": client.certificate, "tls.key": client.key}
    login = {"node.session.auth.username": USER.encode(), "node.session.auth.password": PASSWORD.encode()}
    return [
        a_secret("nbd-server", "Opaque", served),
        a_secret("nbd-client", "kubernetes.io/tls", used),
        a_secret("chap", "kubernetes.io/iscsi-chap", login),
    ]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    path = tmp_path / "unit"
    path.write_bytes(b"from-target".ljust(16 * MIB, b"\xa5"))
    return path


@pytest.fixture
def target(unit: Path) -> Iterator[IscsiTarget]:
    found = IscsiTarget(unit, user=USER, password=PASSWORD, address=layout.CONTROL_PLANE_ADDRESS)
    try:
        yield found
    finally:
        found.__exit__()


def told(kubectl: Kubectl, *words: str) -> str:
    def is_told(vm: dict[str, Any]) -> bool:
        condition = condition_of(vm, "DisksReady")
        return condition["reason"] == "DiskServerSilent" and all(each in condition["message"] for each in words)

    vm = kubectl.api.until("vm", "served", is_told, timeout=180, what=f"DisksReady is DiskServerSilent for {words}")
    return str(condition_of(vm, "DisksReady")["message"])


def goes_on(kubectl: Kubectl, guest: Console) -> None:
    guest.expect("COPIED 0", timeout=180)
    kubectl.api.until(
        "vm", "served", lambda vm: not has("DisksReady", reason="DiskServerSilent")(vm), timeout=60, what="all servers answer"
    )
    kubectl.api.ready("vm", "served", timeout=90)


def test_network_disks_move_with_a_guest_and_survive_outages(kubectl: Kubectl, testguest: None, target: IscsiTarget, unit: Path) -> None:
    nbd = {"host": "nbd", "export": "vm-1", "tlsSecretRef": {"name": "nbd-client"}}
    iscsi = {"targetPortal": target.portal, "iqn": target.iqn, "lun": 1, "secretRef": {"name": "chap"}}
    vm = with_disks(linux_vm("served"), {"name": "data", "type": "NBD", "source": nbd}, {"name": "unit", "type": "ISCSI", "source": iscsi})
    service = a_service("nbd", "nbd")
    service["spec"]["ports"] = [{"port": 10809}]
    kubectl.api.apply(*secrets(), shared_claim("nbd"), service, vm)
    waits = told(kubectl, "'data'", "'unit'")
    assert "NBD server nbd port 10809 does not answer" in waits
    assert "WaitingForServer" in kubectl("get", "vm", "served")

    target.start()
    kubectl.api.create(a_server())
    kubectl.api.ready("vm", "served", timeout=240)
    with console(kubectl, "served") as guest:
        guest.expect("GUEST-READY", timeout=180)
        digest = hashlib.md5(unit.read_bytes(), usedforsecurity=False).hexdigest()
        with never_again("wrong bytes"):
            assert "from-nbd" in guest.run("head -c 8 /dev/vda")
            assert digest in guest.run("md5sum </dev/vdb", timeout=120)
        guest.run("echo before-the-move | dd of=/dev/vda conv=fsync; echo before-the-move | dd of=/dev/vdb conv=fsync")
    with never_again("a lost write"):
        assert unit.read_bytes().startswith(b"before-the-move")

    node = kubectl.api.get("vm", "served")["status"]["nodeName"]
    made = kubectl.api.create(migration("served", node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, "served") as guest:
        with never_again("a lost write"):
            assert "before-the-move" in guest.run("dd if=/dev/vda iflag=direct bs=512 count=1 2>/dev/null | head -c 15")
        guest.run("echo after-the-move | dd of=/dev/vdb conv=fsync")
        with never_again("a lost write"):
            assert unit.read_bytes().startswith(b"after-the-move")

        processes.kill(kubectl.api.get("pod", "nbd"), containing="qemu-nbd")
        guest.type("echo while-away | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
        assert "'unit'" not in told(kubectl, "disk 'data': NBD server nbd port 10809 does not answer")
        kubectl.api.delete("pod", "nbd", timeout=60)
        kubectl.api.create(a_server())
        goes_on(kubectl, guest)
        with never_again("a lost write"):
            assert "while-away" in guest.run("dd if=/dev/vda iflag=direct bs=512 count=1 2>/dev/null | head -c 10")

        target.kill()
        guest.type("echo while-away | dd of=/dev/vdb conv=fsync; echo CO''PIED $?\n")
        assert "'data'" not in told(kubectl, "disk 'unit': ISCSI server 10.100.0.1 port")
        target.start()
        goes_on(kubectl, guest)
    with never_again("a lost write"):
        assert unit.read_bytes().startswith(b"while-away")
    shown = json.dumps([kubectl.api.list(each) for each in ("vm", "pods", "events")])
    assert (PASSWORD in shown, USER in shown) == (False, False)
