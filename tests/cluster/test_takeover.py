from __future__ import annotations

import base64
import socket
import ssl
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import dig, is_deleting
from apiserver.client.rest import TransportError
from tests.cluster.kube import Kubectl, eventually, forwarded
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRET = "kubevirt-virt-api-tls"


def served(system: Kubectl, pod: dict[str, Any], authorities: str) -> bytes:
    (port,) = (each["containerPort"] for each in pod["spec"]["containers"][0]["ports"] if each["name"] == "https")
    tls = ssl.create_default_context(cadata=authorities)
    with forwarded(system, f"pod/{pod['metadata']['name']}", port) as here:
        try:
            with (
                socket.create_connection(("127.0.0.1", here), timeout=20) as plain,
                tls.wrap_socket(plain, server_hostname=f"virt-api.{system.namespace}.svc") as wrapped,
            ):
                return wrapped.getpeercert(binary_form=True) or b""
        except OSError:
            return b""


def text(secret: dict[str, Any], key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def test_lost_certificate_is_reissued_and_used_without_a_restart(system: Kubectl) -> None:
    def pods() -> list[dict[str, Any]]:
        return [each for each in system.api.list("pods", label_selector="kubevirt.io=virt-api") if not is_deleting(each)]

    def starts() -> dict[str, int]:
        return {each["metadata"]["name"]: each["status"]["containerStatuses"][0]["restartCount"] for each in pods()}

    def presented(authorities: str) -> list[bytes]:
        return [served(system, pod, authorities) for pod in pods()]

    secret = system.api.get("secret", SECRET)
    before, old = starts(), ssl.PEM_cert_to_DER_cert(text(secret, "tls.crt"))
    assert set(presented(text(secret, "ca.crt"))) == {old}

    system.api.delete("secret", SECRET)

    def is_made(found: dict[str, Any]) -> bool:
        return found["metadata"]["uid"] != secret["metadata"]["uid"] and bool(dig(found, "data", "tls.crt"))

    again = system.api.until("secret", SECRET, is_made, timeout=60, what="a new certificate")
    made = ssl.PEM_cert_to_DER_cert(text(again, "tls.crt"))
    assert made != old
    # The kubelet updates the volumes, then replicas present the new one.
    eventually(lambda: set(presented(text(again, "ca.crt"))) == {made}, timeout=180, what="the new certificate is served", interval=3)
    assert starts() == before
    eventually(lambda: is_served(system), timeout=60, what="the API is served")


def is_served(system: Kubectl) -> bool:
    try:
        system.api.list("vms")
    except (errors.StatusError, TransportError):
        return False
    return True


def test_the_other_controller_takes_over(system: Kubectl, kubectl: Kubectl, testguest: None) -> None:
    holder = system.api.get("lease", "virt-controller")["spec"]["holderIdentity"]
    pods = system.api.list("pods", label_selector="kubevirt.io=virt-controller")
    pod = next(name for each in pods if (name := each["metadata"]["name"]) in holder)

    system.api.delete("pod", pod)

    def is_another(lease: dict[str, Any]) -> bool:
        return lease["spec"].get("holderIdentity") not in (None, "", holder)

    system.api.until("lease", "virt-controller", is_another, timeout=60, what="a new leader")
    kubectl.api.create(tiny_vm("after"))
    kubectl.api.ready("vm", "after", timeout=90)
