"""Certificates of nodes on the real cluster: who obtains them, what a revocation does, and what goes on while nobody signs."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.core.resources import CERTIFICATE_SIGNING_REQUESTS
from apiserver.apis.meta import errors
from apiserver.client.config import Config
from apiserver.client.rest import Client
from controller.reconcilers.certificates.consumers import API_SERVICE
from handler.identity import keys
from handler.identity.keeping import signing_request
from tests.cluster.kube import Kubectl, console, eventually, forwarded
from tests.cluster.manifests import linux_vm, migration

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def handlers(system: Kubectl) -> dict[str, dict[str, Any]]:
    """Return virt-handler's pods that are not going, by node."""
    items = system.json("get", "pods", "-l", "kubevirt.io=virt-handler")["items"]
    return {pod["spec"]["nodeName"]: pod for pod in items if not pod["metadata"].get("deletionTimestamp")}


def is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


def restarts(system: Kubectl) -> dict[str, int]:
    return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in handlers(system).values()}


def openssl(system: Kubectl, node: str, *arguments: str) -> str:
    """Look at the certificate of a node, on the node."""
    path = f"/run/kubevirt-handler/tls/{node}/tls.crt"
    return system("exec", handlers(system)[node]["metadata"]["name"], "--", "openssl", "x509", "-in", path, "-noout", *arguments)


def bound_to(system: Kubectl, node: str) -> Config:
    """Return how virt-handler of a node reaches kube-apiserver: with a token that is bound to its pod, as the kubelet's are."""
    pod = handlers(system)[node]["metadata"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['name']}", f"--bound-object-uid={pod['uid']}")
    token = system("create", "token", "virt-handler", *bound).strip()
    admin = Config.load(str(system.kubeconfig))
    return Config(admin.server, ca_file=admin.ca_file, ca_data=admin.ca_data, token=token)


async def decided(config: Config, name: str) -> dict[str, Any]:
    """Ask for the certificate of a node; return the request once it is decided."""
    async with Client(config, user_agent="test") as client, asyncio.timeout(90):
        made = await client.create(CERTIFICATE_SIGNING_REQUESTS, signing_request(name, (await keys.make(name)).request))
        while not made["status"].get("certificate") and "Denied" not in json.dumps(made["status"]):
            await asyncio.sleep(0.2)
            made = await client.get(CERTIFICATE_SIGNING_REQUESTS, made["metadata"]["name"])
        return made


def running(kubectl: Kubectl, name: str) -> str:
    """Start a machine; return its node when its prompt is there."""
    kubectl.apply(linux_vm(name))
    kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=90s", timeout=100)
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=120)
    return str(kubectl.json("get", "vm", name)["status"]["nodeName"])


def certificate_of_virt_api(system: Kubectl) -> str:
    """Return the certificate in virt-api's Secret, as PEM."""
    return base64.b64decode(system.json("get", "secret", "kubevirt-virt-api-tls")["data"]["tls.crt"]).decode()


def all_present_another_certificate(system: Kubectl, old: str) -> bool:
    """True if each virt-api presents the certificate of its Secret, and that is no longer ``old``."""
    wanted = certificate_of_virt_api(system)
    pods = system.json("get", "pods", "-l", "kubevirt.io=virt-api")["items"]
    assert pods
    if wanted == old:
        return False
    for pod in pods:
        with forwarded(system, f"pod/{pod['metadata']['name']}", 8443) as port:
            try:
                presented = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
            except OSError:  # of a machine that is busy: whoever waits asks again
                return False
        if presented.strip() not in wanted:
            return False
    return True


@contextmanager
def revoked(system: Kubectl, node: str) -> Iterator[None]:
    """Revoke a node with the command of docs/operating/nodes.md; pardon it afterwards."""
    patch = ("patch", "configmap", "kubevirt-trust", "--type=merge", "--patch")
    system(*patch, json.dumps({"data": {f"revoked.{node}": "lost"}}))
    try:
        yield
    finally:
        system(*patch, json.dumps({"data": {f"revoked.{node}": None}}))


def test_each_node_has_a_key_and_a_certificate_of_its_own_name_for_a_day(system: Kubectl) -> None:
    seen = {}
    for node, pod in handlers(system).items():
        assert is_ready(pod)
        assert f"DNS:{node}.virt-handler" in openssl(system, node, "-ext", "subjectAltName")
        openssl(system, node, "-checkend", "3600")
        with pytest.raises(AssertionError):  # it ends within two days
            openssl(system, node, "-checkend", "172800")
        seen[node] = openssl(system, node, "-pubkey")

    assert len(set(seen.values())) == len(seen) >= 2
    assert system.try_run("get", "secret", "kubevirt-virt-handler-tls").returncode != 0


async def test_the_token_of_one_node_obtains_its_own_certificate_and_no_other(system: Kubectl) -> None:
    one, two = sorted(handlers(system))[:2]
    config = bound_to(system, one)

    own, others = await decided(config, one), await decided(config, two)

    assert own["status"]["certificate"]
    assert "certificate" not in others["status"]
    assert f"the request is not one for node {one}" in others["status"]["conditions"][0]["message"]
    async with Client(config, user_agent="test") as client:
        with pytest.raises(errors.Forbidden):
            await client.update(CERTIFICATE_SIGNING_REQUESTS, others, subresource="approval")
        with pytest.raises(errors.Forbidden):
            await client.update(CERTIFICATE_SIGNING_REQUESTS, others, subresource="status")


def test_a_revoked_node_loses_its_streams_at_once_and_its_guests_go_on(system: Kubectl, kubectl: Kubectl) -> None:
    node = running(kubectl, "lost")
    before = restarts(system)
    with console(kubectl, "lost") as guest:
        guest.type("\n")
        guest.run("echo before")
        with revoked(system, node):
            eventually(lambda: not is_ready(handlers(system)[node]), timeout=60, what="virt-handler says that its node is revoked")
            refused = eventually(
                lambda: (found := kubectl.try_run("virt", "console", "lost", stdin="")).returncode and found.stderr,
                timeout=60,
                what="the console is refused",
            )
            assert "revoked" in refused
            assert kubectl.json("get", "vm", "lost")["status"]["phase"] == "Running"
            made = kubectl.create(migration("lost"))["metadata"]["name"]
            time.sleep(30)
            assert kubectl.json("get", "migration", made).get("status", {}).get("phase") != "Succeeded"
            assert kubectl.json("get", "vm", "lost")["status"]["nodeName"] == node
            kubectl("delete", "migration", made, "--wait=false")
    eventually(lambda: is_ready(handlers(system)[node]), timeout=60, what="virt-handler of the pardoned node is ready")
    with console(kubectl, "lost") as guest:
        guest.type("\n")
        assert "after" in guest.run("echo after")
    assert restarts(system) == before


def test_a_restarted_handler_serves_while_nobody_signs(system: Kubectl, kubectl: Kubectl) -> None:
    node = running(kubectl, "unsigned")
    replicas = system.json("get", "deployment", "virt-controller")["spec"]["replicas"]
    system("scale", "deployment/virt-controller", "--replicas=0")
    try:
        eventually(
            lambda: not system.json("get", "pods", "-l", "kubevirt.io=virt-controller")["items"], timeout=90, what="no virt-controller"
        )
        old = handlers(system)[node]["metadata"]
        system("delete", "pod", old["name"], "--wait=false")
        eventually(
            lambda: (pod := handlers(system).get(node)) and pod["metadata"]["uid"] != old["uid"] and is_ready(pod),
            timeout=120,
            what="another virt-handler is ready",
        )
        with console(kubectl, "unsigned") as guest:
            guest.type("\n")
            assert "there" in guest.run("echo there")
    finally:
        system("scale", "deployment/virt-controller", f"--replicas={replicas}")
        system("rollout", "status", "deployment/virt-controller", "--timeout=300s", timeout=310)


def test_everything_is_signed_anew_without_a_restart_when_the_authority_is_deleted(system: Kubectl, kubectl: Kubectl) -> None:
    node = running(kubectl, "renewed")
    before, old, presented = restarts(system), openssl(system, node, "-serial"), certificate_of_virt_api(system)

    system("delete", "secret", "kubevirt-ca")

    eventually(lambda: openssl(system, node, "-serial") != old, timeout=120, what="a new certificate of the node", interval=1)
    # virt-api gets its own by the kubelet, which takes a minute or two. Requests reach either replica: as long as one of them presents its
    # old certificate, kube-apiserver says now and then that the API is not available, in this test and in those after it.
    eventually(
        lambda: all_present_another_certificate(system, presented), timeout=240, what="new certificates of all virt-apis", interval=2
    )
    system("wait", f"apiservice/{API_SERVICE}", "--for=condition=Available", "--timeout=120s", timeout=130)
    eventually(lambda: kubectl.try_run("get", "vm", "renewed").returncode == 0, timeout=60, what="the API is served", interval=1)

    def echoes() -> bool:
        with console(kubectl, "renewed") as guest:
            guest.type("\n")
            try:
                return "again" in guest.run("echo again", timeout=10)
            except AssertionError:
                return False

    eventually(echoes, timeout=180, what="the console of the guest", interval=2)
    assert restarts(system) == before
