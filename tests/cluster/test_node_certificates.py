from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.core.resources import CERTIFICATE_SIGNING_REQUESTS
from apiserver.apis.meta import errors
from apiserver.client.config import Config
from apiserver.client.rest import Client
from handler.identity import keys
from handler.identity.keeping import signing_request
from tests.cluster.api import in_phase, is_true
from tests.cluster.guests import answers
from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import migration, tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


HANDLERS = "kubevirt.io=virt-handler"


def handlers(system: Kubectl) -> dict[str, dict[str, Any]]:
    pods = system.api.list("pods", label_selector=HANDLERS)
    return {pod["spec"]["nodeName"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def handler_is_ready(system: Kubectl, node: str, *, timeout: float, ready: bool = True, other_than: str = "") -> None:

    def is_so(pods: list[dict[str, Any]]) -> bool:
        mine = [each for each in pods if each["spec"].get("nodeName") == node and each["metadata"]["uid"] != other_than]
        return bool(mine) and all(is_true("Ready")(each) is ready for each in mine)

    what = f"virt-handler of {node} is {'ready' if ready else 'not ready'}"
    system.api.until_list("pods", is_so, timeout=timeout, what=what, label_selector=HANDLERS)


def restarts(system: Kubectl) -> dict[str, int]:
    return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in handlers(system).values()}


def openssl(system: Kubectl, node: str, *arguments: str) -> str:
    path = f"/run/kubevirt-handler/tls/{node}/tls.crt"
    return system("exec", handlers(system)[node]["metadata"]["name"], "--", "openssl", "x509", "-in", path, "-noout", *arguments)


def bound_to(system: Kubectl, node: str) -> Config:
    pod = handlers(system)[node]["metadata"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['name']}", f"--bound-object-uid={pod['uid']}")
    token = system("create", "token", "virt-handler", *bound).strip()
    admin = Config.load(str(system.kubeconfig))
    return Config(admin.server, ca_file=admin.ca_file, ca_data=admin.ca_data, token=token)


async def decided(config: Config, name: str) -> dict[str, Any]:
    async with Client(config, user_agent="test") as client, asyncio.timeout(90):
        made = await client.create(CERTIFICATE_SIGNING_REQUESTS, signing_request(name, (await keys.make(name)).request))
        while not made["status"].get("certificate") and "Denied" not in json.dumps(made["status"]):
            await asyncio.sleep(0.2)
            made = await client.get(CERTIFICATE_SIGNING_REQUESTS, made["metadata"]["name"])
        return made


def running(kubectl: Kubectl, name: str) -> str:
    kubectl.api.create(tiny_vm(name))
    return str(kubectl.api.ready("vm", name, timeout=90)["status"]["nodeName"])


@contextmanager
def attached(kubectl: Kubectl, name: str) -> Iterator[Console]:
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=120)
        answers(guest)
        yield guest


@contextmanager
def revoked(system: Kubectl, node: str) -> Iterator[None]:
    try:
        system.api.patch("configmap", "kubevirt-trust", {"data": {f"revoked.{node}": "lost"}})
        yield
    finally:
        system.api.patch("configmap", "kubevirt-trust", {"data": {f"revoked.{node}": None}})


def is_write_refused(system: Kubectl, node: str, name: str) -> bool:
    said = system("logs", handlers(system)[node]["metadata"]["name"], "-c", "virt-handler", "--since=10m").splitlines()
    return any(name in line and "is revoked, so its virt-handler may not write" in line for line in said)


def test_each_node_has_its_own_key_and_daily_certificate(system: Kubectl) -> None:
    seen = {}
    for node, pod in handlers(system).items():
        assert is_true("Ready")(pod)
        assert f"DNS:{node}.virt-handler" in openssl(system, node, "-ext", "subjectAltName")
        openssl(system, node, "-checkend", "3600")
        with pytest.raises(AssertionError):
            openssl(system, node, "-checkend", "172800")
        seen[node] = openssl(system, node, "-pubkey")

    assert len(set(seen.values())) == len(seen) >= 2
    assert system.api.find("secret", "kubevirt-virt-handler-tls") is None


async def test_node_token_obtains_only_its_own_certificate(system: Kubectl) -> None:
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


def test_revoked_node_loses_its_streams_and_its_guests_run_on(system: Kubectl, kubectl: Kubectl, testguest: None) -> None:
    node = running(kubectl, "lost")
    before = restarts(system)
    with attached(kubectl, "lost"), revoked(system, node):
        handler_is_ready(system, node, timeout=60, ready=False)
        refused = eventually(
            lambda: (found := kubectl.try_run("virt", "console", "lost", stdin="")).returncode and found.stderr,
            timeout=60,
            what="the console is refused",
        )
        assert "revoked" in refused
        assert kubectl.api.get("vm", "lost")["status"]["phase"] == "Running"
        made = kubectl.api.create(migration("lost"))["metadata"]["name"]
        kubectl.api.until("migrations", made, in_phase("TargetReady"), timeout=120, what="only the source is missing")
        eventually(lambda: is_write_refused(system, node, made), timeout=60, interval=2, what="a refused write of the source")
        assert kubectl.api.get("migrations", made)["status"]["phase"] == "TargetReady"
        assert kubectl.api.get("vm", "lost")["status"]["nodeName"] == node
        kubectl.api.delete("migrations", made)
    handler_is_ready(system, node, timeout=60)
    with attached(kubectl, "lost"):
        assert restarts(system) == before
