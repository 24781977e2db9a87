from __future__ import annotations

import base64
import ssl

import pytest

from apiserver.apis.meta import errors
from apiserver.client.rest import TransportError
from controller.reconcilers.certificates.consumers import API_SERVICE
from tests.cluster.api import is_true
from tests.cluster.kube import Kubectl, eventually, forwarded
from tests.cluster.test_node_certificates import attached, handler_is_ready, handlers, openssl, restarts, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONTROLLERS = "kubevirt.io=virt-controller"


def certificate_of_virt_api(system: Kubectl) -> str:
    return base64.b64decode(system.api.get("secret", "kubevirt-virt-api-tls")["data"]["tls.crt"]).decode()


def all_present_another_certificate(system: Kubectl, old: str) -> bool:
    wanted = certificate_of_virt_api(system)
    pods = system.api.list("pods", label_selector="kubevirt.io=virt-api")
    assert pods
    if wanted == old:
        return False
    for pod in pods:
        with forwarded(system, f"pod/{pod['metadata']['name']}", 8443) as port:
            try:
                presented = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
            except OSError:  # the caller tries again
                return False
        if presented.strip() not in wanted:
            return False
    return True


def test_restarted_handler_serves_without_a_signer(system: Kubectl, kubectl: Kubectl, testguest: None) -> None:
    node = running(kubectl, "unsigned")
    replicas = system.api.get("deployment", "virt-controller")["spec"]["replicas"]
    system.api.patch("deployment", "virt-controller", {"spec": {"replicas": 0}})
    try:
        system.api.until_list("pods", lambda left: not left, timeout=90, what="no virt-controller", label_selector=CONTROLLERS)
        old = handlers(system)[node]["metadata"]
        system.api.delete("pod", old["name"])
        handler_is_ready(system, node, timeout=120, other_than=old["uid"])
        with attached(kubectl, "unsigned"):
            assert not system.api.list("pods", label_selector=CONTROLLERS)
    finally:
        system.api.patch("deployment", "virt-controller", {"spec": {"replicas": replicas}})
        system.api.rolled_out("deployment/virt-controller", timeout=300)


def is_served(kubectl: Kubectl, name: str) -> bool:
    try:
        kubectl.api.get("vm", name)
    except (errors.StatusError, TransportError):
        return False
    return True


def test_deleted_authority_is_replaced_without_a_restart(system: Kubectl, kubectl: Kubectl, testguest: None) -> None:
    node = running(kubectl, "renewed")
    before, old, presented = restarts(system), openssl(system, node, "-serial"), certificate_of_virt_api(system)

    system.api.delete("secret", "kubevirt-ca")

    eventually(lambda: openssl(system, node, "-serial") != old, timeout=120, what="a new certificate of the node", interval=1)
    # Wait for virt-api's new certificate: until both replicas have it, kube-apiserver sometimes reports the API as unavailable.
    eventually(
        lambda: all_present_another_certificate(system, presented), timeout=240, what="new certificates of all virt-apis", interval=2
    )
    system.api.until("apiservices", API_SERVICE, is_true("Available"), timeout=120, what="the API is available")
    eventually(lambda: is_served(kubectl, "renewed"), timeout=60, what="the API is served", interval=1)

    def answers_again() -> bool:
        try:
            with attached(kubectl, "renewed"):
                return True
        except AssertionError:
            return False

    eventually(answers_again, timeout=180, what="the console of the guest", interval=2)
    assert restarts(system) == before
