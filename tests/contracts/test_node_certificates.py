from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.core.resources import CERTIFICATE_SIGNING_REQUESTS, CONFIG_MAPS, SECRETS
from apiserver.apis.meta import errors
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.client.config import Config
from apiserver.client.rest import Client
from certs import issuing, reading
from certs.reloading import ClientTls, ServerTls
from controller.reconcilers.certificates.node_certificates import Signing
from controller.reconcilers.certificates.rotate_certificates import CertificateRotation
from controller.runtime.clock import SystemClock
from handler.identity import keys
from handler.identity.keeping import Identity, signing_request
from tests.component.handler.test_identity import claimed, handshake
from tests.component.handler.world import eventually
from tests.fakes import chart
from tests.fakes.kubeapi import FakeAPI
from tests.reference_server.environment import Environment, environment

NAMESPACE = "kubevirt"
NODES = ("node1", "node2")
KUBERNETES = pytest.param("kubernetes", marks=pytest.mark.slow)


class Cluster:
    def __init__(self, here: Environment) -> None:
        self._here = here
        self.config = Config.load(str(here.kubeconfig()))
        for each in (NAMESPACE, names.node_lease_namespace(NAMESPACE)):
            self._ensure("/api/v1/namespaces", "Namespace", each)
        for manifest in chart.objects():
            kind = manifest["kind"]
            namespace = manifest["metadata"].get("namespace")
            if kind == "ServiceAccount":
                here.ensure(f"/api/v1/namespaces/{namespace}/serviceaccounts", manifest)
            elif kind in {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}:
                scope = f"/namespaces/{namespace}" if namespace else ""
                here.ensure(f"/apis/rbac.authorization.k8s.io/v1{scope}/{kind.lower()}s", manifest)
        for node in NODES:
            self._ensure("/api/v1/nodes", "Node", node)
            spec = {"nodeName": node, "serviceAccountName": "virt-handler", "containers": [{"name": "a", "image": "a"}]}
            self._ensure(f"/api/v1/namespaces/{NAMESPACE}/pods", "Pod", f"virt-handler-{node}", spec=spec)

    def _ensure(self, path: str, kind: str, name: str, **more: Any) -> None:
        self._here.ensure(path, {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more})

    def token(self, account: str, node: str = "") -> Config:
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if node:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/virt-handler-{node}"
            pod = self._here.call("GET", path)[1]["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        code, answer = self._here.call("POST", path, body)
        assert code == 201, answer
        return Config(self.config.server, ca_file=str(self._here.certificates.authority), token=answer["status"]["token"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with environment(tmp_path_factory.mktemp("kubernetes")) as here:
        yield Cluster(here)


@asynccontextmanager
async def fake() -> AsyncIterator[tuple[Config, Config]]:
    api = FakeAPI()
    api.users["token-node1"] = claimed("node1")
    async with api.serving() as config:
        yield config, replace(config, token="token-node1")


@pytest.fixture(params=["fake", KUBERNETES])
async def clients(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        if request.param == "kubernetes":
            cluster: Cluster = request.getfixturevalue("cluster")
            configs = cluster.config, cluster.token("virt-handler", "node1")
        else:
            configs = await stack.enter_async_context(fake())
        admin, node = [await stack.enter_async_context(Client(each, user_agent="test")) for each in configs]
        yield admin, node


def with_condition(request: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = [*(request["status"].get("conditions") or []), {"type": kind, "status": "True", "reason": "Test", "message": "test"}]
    return {**request, "status": {**request["status"], "conditions": conditions}}


async def test_requester_is_set_by_the_server_and_immutable(clients: tuple[Client, Client]) -> None:
    admin, node = clients
    wanted = signing_request("node1", (await keys.make("node1")).request)
    wanted["spec"] |= {"username": "system:admin", "groups": ["system:masters"], "extra": {names.NODE_CLAIM: ["node2"]}}
    wanted["status"] = {"certificate": "LS0t", "conditions": [{"type": "Approved", "status": "True"}]}
    made = await node.create(CERTIFICATE_SIGNING_REQUESTS, wanted)

    for found in (made, await node.get(CERTIFICATE_SIGNING_REQUESTS, made["metadata"]["name"])):
        assert found["spec"]["username"] == "system:serviceaccount:kubevirt:virt-handler"
        assert found["spec"]["extra"][names.NODE_CLAIM] == ["node1"]
        assert "system:masters" not in found["spec"]["groups"]
        assert not found["status"].get("certificate")
        assert not found["status"].get("conditions")
        assert found["metadata"]["name"].startswith("virt-handler-node1-")
    forged = {**made, "spec": {**made["spec"], "extra": {names.NODE_CLAIM: ["node2"]}}}
    for subresource in (None, "approval", "status"):
        forged["metadata"].pop("resourceVersion", None)
        changed = await admin.update(CERTIFICATE_SIGNING_REQUESTS, forged, subresource=subresource)
        assert changed["spec"]["extra"][names.NODE_CLAIM] == ["node1"]


async def test_approval_and_certificate_are_written_apart_and_once(clients: tuple[Client, Client]) -> None:
    admin, node = clients
    made = await node.create(CERTIFICATE_SIGNING_REQUESTS, signing_request("node1", (await keys.make("node1")).request))
    with pytest.raises(errors.Invalid):
        await admin.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(made, "Approved"), subresource="status")
    approved = await admin.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(made, "Approved"), subresource="approval")
    with pytest.raises(errors.Invalid):
        await admin.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(approved, "Denied"), subresource="approval")
    with pytest.raises(errors.Conflict):
        await admin.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(made, "Denied"), subresource="approval")
    failed = await admin.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(approved, "Failed"), subresource="status")
    assert [each["type"] for each in failed["status"]["conditions"]] == ["Approved", "Failed"]


@asynccontextmanager
async def controlled(cluster: Cluster, lifetime: timedelta = timedelta(days=1)) -> AsyncIterator[None]:
    async with Client(cluster.token("virt-controller"), user_agent="virt-controller") as client, asyncio.TaskGroup() as tasks:
        parts = CertificateRotation(client, NAMESPACE, interval=1), Signing(client, NAMESPACE, lifetime, SystemClock())
        running = [tasks.create_task(part.run()) for part in parts]
        yield
        for each in running:
            each.cancel()


@asynccontextmanager
async def identified(cluster: Cluster, node: str, root: Path, token_of: str = "") -> AsyncIterator[Identity]:
    async with Client(cluster.token("virt-handler", token_of or node), user_agent=node) as client, asyncio.TaskGroup() as tasks:
        identity = Identity(client, node, NAMESPACE, root / node, SystemClock())
        running = tasks.create_task(identity.run())
        yield identity
        running.cancel()


@pytest.mark.slow
async def test_two_nodes_obtain_their_certificates_and_know_each_other(cluster: Cluster, tmp_path: Path) -> None:
    async with controlled(cluster), identified(cluster, "node1", tmp_path) as one, identified(cluster, "node2", tmp_path) as two:
        await eventually(lambda: not one.problem() and not two.problem(), seconds=30)
        server, client = ServerTls(two.files, clients=ssl.CERT_REQUIRED), ClientTls(one.files)
        seen = await handshake(server, client, "node2.virt-handler")

    assert [each.dns_name for each in seen if each is not None] == ["node1.virt-handler", "node2.virt-handler"]


@pytest.mark.slow
async def test_node_token_obtains_no_certificate_of_another_node(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled(cluster), identified(cluster, "node2", tmp_path, token_of="node1") as thief:
        await eventually(lambda: "Denied: the request is not one for node node1" in caplog.text, seconds=30)
        assert not thief.ready.is_set()


@pytest.mark.slow
async def test_revoked_node_gets_no_certificate_and_others_learn_it(cluster: Cluster, tmp_path: Path) -> None:
    async with (
        controlled(cluster),
        identified(cluster, "node1", tmp_path) as one,
        identified(cluster, "node2", tmp_path) as two,
        Client(cluster.config, user_agent="operator") as operator,
    ):
        await eventually(lambda: not one.problem() and not two.problem(), seconds=30)
        await operator.patch(CONFIG_MAPS, trust.CONFIG_MAP, {"data": {"revoked.node1": "stolen"}}, NAMESPACE)
        await eventually(lambda: two.trust.revocations.is_revoked("node1") and one.problem() == "this node is revoked", seconds=5)
        async with Client(cluster.token("virt-handler", "node1"), user_agent="thief") as thief:
            made = await thief.create(CERTIFICATE_SIGNING_REQUESTS, signing_request("node1", (await keys.make("node1")).request))
            while not made["status"].get("conditions"):
                await asyncio.sleep(0.1)
                made = await thief.get(CERTIFICATE_SIGNING_REQUESTS, made["metadata"]["name"])
            assert made["status"]["conditions"][0]["message"].startswith("node node1 is revoked")
            with pytest.raises(errors.Forbidden):
                await thief.patch(CONFIG_MAPS, trust.CONFIG_MAP, {"data": {"revoked.node1": None}}, NAMESPACE)
        await operator.patch(CONFIG_MAPS, trust.CONFIG_MAP, {"data": {"revoked.node1": None}}, NAMESPACE)
        await eventually(lambda: not one.problem(), seconds=5)


@pytest.mark.slow
async def test_no_node_approves_signs_or_reads_what_is_not_its_own(cluster: Cluster) -> None:
    async with Client(cluster.token("virt-handler", "node1"), user_agent="node1") as node:
        made = await node.create(CERTIFICATE_SIGNING_REQUESTS, signing_request("node2", (await keys.make("node2")).request))
        for subresource in ("approval", "status"):
            with pytest.raises(errors.Forbidden):
                await node.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(made, "Approved"), subresource=subresource)
        for name in ("kubevirt-ca", "kubevirt-virt-api-tls"):
            with pytest.raises(errors.Forbidden):
                await node.get(SECRETS, name, NAMESPACE)


@pytest.mark.slow
async def test_virt_controller_signs_for_no_other_signer(cluster: Cluster) -> None:
    """Otherwise its right to approve could create administrators."""
    async with (
        Client(cluster.config, user_agent="admin") as admin,
        Client(cluster.token("virt-controller"), user_agent="virt-controller") as controller,
    ):
        wanted = signing_request("node1", (await keys.make("node1")).request)
        wanted["spec"] |= {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
        made = await admin.create(CERTIFICATE_SIGNING_REQUESTS, wanted)
        with pytest.raises(errors.Forbidden, match="signerName"):
            await controller.update(CERTIFICATE_SIGNING_REQUESTS, with_condition(made, "Approved"), subresource="approval")
        certificate = issuing.new_authority("mine", timedelta(days=1), datetime.now(UTC)).certificate
        signed = {**made, "status": {"certificate": base64.b64encode(certificate).decode()}}
        with pytest.raises(errors.Forbidden, match="signerName"):
            await controller.update(CERTIFICATE_SIGNING_REQUESTS, signed, subresource="status")


@pytest.mark.slow
async def test_stored_certificate_is_the_nodes(cluster: Cluster, tmp_path: Path) -> None:
    async with controlled(cluster), identified(cluster, "node1", tmp_path) as one:
        await eventually(lambda: not one.problem(), seconds=30)

    found = reading.read_certificate(one.files.certificate.read_bytes())
    assert found is not None
    assert (found.common_name, sorted(found.dns_names), sorted(found.ip_addresses)) == ("virt-handler", ["node1.virt-handler"], [])
    assert (found.server, found.client, found.authority) == (True, True, False)
    assert found.not_after - found.not_before <= timedelta(days=1, minutes=5, seconds=5)
