from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.client.rest import Client
from certs import reading
from certs.reading import Certificate
from certs.renewal import Policy
from controller.reconcilers.certificates.consumers import API_SERVICE, ETCD, ETCD_BUNDLE_ANNOTATION, EtcdRestart
from controller.reconcilers.certificates.rotate_certificates import CertificateRotation, authorities
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI

NAMESPACE = "kubevirt"
SECRETS = "/api/v1/secrets"
CONFIG_MAPS = "/api/v1/configmaps"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
POLICY = Policy()
START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = {authority.secret for authority in authorities(NAMESPACE)} | {
    leaf.secret for authority in authorities(NAMESPACE) for leaf in authority.leaves
}


class World:
    def __init__(self, api: FakeAPI, client: Client) -> None:
        self.api, self.client = api, client
        self.now = START
        self.rotation = CertificateRotation(client, NAMESPACE, policy=POLICY, clock=lambda: self.now)

    async def settle(self, passes: int = 2) -> None:
        for _ in range(passes):
            await self.rotation.reconcile()
            self.roll_out()

    def roll_out(self) -> None:
        for stateful_set in self.api.all(STATEFUL_SETS):
            stateful_set["status"] |= {"observedGeneration": stateful_set["metadata"].get("generation", 0)}

    def data(self, name: str) -> dict[str, bytes]:
        secret = self.api.get(SECRETS, NAMESPACE, name)
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    def certificate(self, name: str) -> Certificate:
        certificate = reading.read_certificate(self.data(name)["tls.crt"])
        assert certificate is not None
        return certificate

    def bundle(self, name: str = "kubevirt-ca") -> list[bytes]:
        return [each.pem for each in reading.read_bundle(self.data(name)["ca.crt"])]

    def published(self) -> bytes:
        return base64.b64decode(self.api.get(API_SERVICES, "", API_SERVICE)["spec"]["caBundle"])

    def trust(self) -> dict[str, str]:
        data: dict[str, str] = self.api.get(CONFIG_MAPS, NAMESPACE, "kubevirt-trust")["data"]
        return data

    def snapshot(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.api.all(SECRETS)}

    def check(self) -> None:
        assert set(self.snapshot()) == ALL
        for authority in authorities(NAMESPACE):
            for leaf in authority.leaves:
                data = self.data(leaf.secret)
                certificate = self.certificate(leaf.secret)
                assert reading.matches(certificate, data["tls.key"])
                assert reading.signed_by(certificate, self.certificate(authority.secret))
                assert certificate.not_before < self.now < certificate.not_after
                assert data["ca.crt"] == self.data(authority.secret)["ca.crt"]
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=data["ca.crt"].decode())
        assert reading.read_bundle(self.published())
        assert {each.pem for each in reading.read_bundle(self.published())} == set(self.bundle())
        assert {each.pem for each in reading.read_bundle(self.trust()["ca.crt"].encode())} == set(self.bundle())


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-controller")
    async with api.serving() as config, Client(config, user_agent="test") as client:
        await api.put(API_SERVICES, {"metadata": {"name": API_SERVICE}, "spec": {"service": {"name": "virt-api"}}})
        await api.put(
            STATEFUL_SETS,
            {"metadata": {"name": ETCD, "namespace": NAMESPACE}, "spec": {"template": {"metadata": {}}}, "status": {}},
        )
        yield World(api, client)
    assert api.forbidden == []


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


async def test_first_pass_creates_everything_and_the_second_nothing(world: World) -> None:
    await world.settle()
    before = world.snapshot()
    writes = len(world.api.writes)

    await world.settle()

    world.check()
    assert world.snapshot() == before
    assert len(world.api.writes) == writes
    names = world.certificate("kubevirt-virt-api-tls").dns_names
    assert {"virt-api.kubevirt.svc", "localhost"} <= names
    assert "annotations" not in world.api.get(STATEFUL_SETS, NAMESPACE, ETCD)["spec"]["template"]["metadata"]


async def test_etcds_authority_signs_only_etcds_certificates(world: World) -> None:
    await world.settle()

    ca = world.certificate("kubevirt-ca")
    assert not reading.signed_by(world.certificate("kubevirt-etcd-client-tls"), ca)
    assert not reading.signed_by(world.certificate("kubevirt-virt-api-tls"), world.certificate("kubevirt-etcd-ca"))


@pytest.mark.parametrize("crash_at", range(1, 11))
async def test_a_crash_at_any_request_is_healed_by_the_next_pass(crash_at: int) -> None:
    async with a_world() as world:
        seen = 0
        wrote = len(world.api.writes)
        request = world.rotation._client.request

        async def crash(method: str, path: str, **given: Any) -> Any:
            nonlocal seen
            answer = await request(method, path, **given)
            seen += method != "GET"
            if method != "GET" and seen == crash_at:
                raise KeyError("the process is killed after this write")
            return answer

        world.rotation._client.request = crash  # type: ignore[method-assign]  # a fault of this one
        try:
            await world.settle()
        except KeyError:
            assert len(world.api.writes) > wrote
        world.rotation._client.request = request  # type: ignore[method-assign]  # as it was

        await world.settle()

        world.check()


@pytest.mark.parametrize("name", sorted(ALL))
async def test_a_secret_that_is_deleted_comes_back(world: World, name: str) -> None:
    await world.settle()
    await world.api.remove(SECRETS, NAMESPACE, name)

    await world.settle()

    world.check()


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("garbage", [{}, None, {"tls.crt": "bm9uc2Vuc2U=", "tls.key": "", "ca.crt": "###"}])
async def test_a_secret_full_of_garbage_is_replaced(world: World, name: str, garbage: dict[str, str] | None) -> None:
    await world.settle()
    world.api.get(SECRETS, NAMESPACE, name)["data"] = garbage

    await world.settle()

    world.check()


async def test_a_secret_of_another_type_is_replaced(world: World) -> None:
    await world.api.put(SECRETS, {"metadata": {"name": "kubevirt-ca", "namespace": NAMESPACE}, "type": "Opaque", "data": {}})

    await world.settle()

    world.check()
    assert world.api.get(SECRETS, NAMESPACE, "kubevirt-ca")["type"] == "kubernetes.io/tls"


async def test_leaves_are_renewed_after_two_thirds_of_their_life(world: World) -> None:
    await world.settle()
    authority, leaf = world.certificate("kubevirt-ca"), world.certificate("kubevirt-virt-api-tls")

    world.now += POLICY.leaf * 0.66
    await world.settle()
    assert world.certificate("kubevirt-virt-api-tls") == leaf
    world.now += POLICY.leaf * 0.02
    await world.settle()

    assert world.certificate("kubevirt-virt-api-tls") != leaf
    assert world.certificate("kubevirt-ca") == authority
    world.check()


async def test_authority_rotation_never_requires_missing_trust(world: World) -> None:
    await world.settle()
    world.api.get(STATEFUL_SETS, NAMESPACE, ETCD)["status"]["readyReplicas"] = 1
    old = world.certificate("kubevirt-ca")
    world.now += POLICY.authority * 0.67

    await world.settle(3)
    assert world.certificate("kubevirt-ca") == old
    assert len(world.bundle()) == 2
    assert world.bundle() == world.bundle("kubevirt-virt-api-tls") == [each.pem for each in reading.read_bundle(world.published())]
    template = world.api.get(STATEFUL_SETS, NAMESPACE, ETCD)["spec"]["template"]
    assert template["metadata"]["annotations"]["kubevirt.io/ca-bundle"]

    world.now += POLICY.spread - timedelta(seconds=1)
    await world.settle()
    assert world.certificate("kubevirt-ca") == old
    world.now += timedelta(seconds=2)
    await world.settle()
    new = world.certificate("kubevirt-ca")
    assert new != old
    assert reading.signed_by(world.certificate("kubevirt-virt-api-tls"), new)
    assert old.pem in world.bundle()
    world.check()

    world.now += POLICY.node - timedelta(seconds=2)
    await world.settle()
    assert old.pem in world.bundle()
    assert len(world.bundle("kubevirt-etcd-ca")) == 1
    world.now += timedelta(seconds=3)
    await world.settle()
    assert world.bundle() == [new.pem]
    assert set(world.data("kubevirt-ca")) == {"tls.crt", "tls.key", "ca.crt"}
    world.check()
    assert not [each for each in world.api.all(SECRETS) if len(each["data"]["ca.crt"]) > 2000]


async def test_next_authority_waits_for_an_unreachable_consumer(world: World) -> None:
    await world.settle()
    old = world.certificate("kubevirt-etcd-ca")
    stateful_set = world.api.get(STATEFUL_SETS, NAMESPACE, ETCD)
    stateful_set["status"]["updateRevision"] = "a rollout that does not end"
    world.now += POLICY.authority * 0.67

    for _ in range(5):
        world.now += POLICY.spread
        await world.settle()

    assert world.certificate("kubevirt-etcd-ca") == old
    assert world.certificate("kubevirt-ca").not_before > old.not_before


@pytest.mark.parametrize(("observed", "fingerprint"), [(1, ""), (2, "new")])
async def test_an_unobserved_template_has_restarted_no_pod(world: World, observed: int, fingerprint: str) -> None:
    stateful_set = world.api.get(STATEFUL_SETS, NAMESPACE, ETCD)
    stateful_set["metadata"] |= {"generation": 2, "annotations": {ETCD_BUNDLE_ANNOTATION: "new"}}
    stateful_set["status"] |= {"observedGeneration": observed, "currentRevision": "old", "updateRevision": "old"}
    assert await EtcdRestart(world.client, NAMESPACE).fingerprint() == fingerprint


async def test_everything_is_recreated_after_years_of_standstill(world: World) -> None:
    await world.settle()
    world.now += POLICY.authority * 2

    await world.settle()

    world.check()


async def test_an_api_service_that_skips_verification_is_corrected(world: World) -> None:
    await world.settle()
    world.api.get(API_SERVICES, "", API_SERVICE)["spec"] |= {"insecureSkipTLSVerify": True}

    await world.settle()

    assert world.api.get(API_SERVICES, "", API_SERVICE)["spec"]["insecureSkipTLSVerify"] is False


async def test_rotation_works_before_the_rest_of_the_chart_exists(world: World) -> None:
    await world.api.remove(API_SERVICES, "", API_SERVICE)
    await world.api.remove(STATEFUL_SETS, NAMESPACE, ETCD)

    await world.settle()

    assert set(world.snapshot()) == ALL


async def test_a_conflict_means_to_look_again_and_a_refusal_is_told(world: World) -> None:
    await world.settle()
    await world.api.remove(SECRETS, NAMESPACE, "kubevirt-virt-api-tls")
    world.api.refusals = [errors.Forbidden("secrets is forbidden: User cannot get")]

    with pytest.raises(errors.Forbidden):
        await world.rotation.reconcile()
    await world.settle()

    world.check()


async def test_private_keys_reach_no_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await world.settle()
        await world.api.remove(SECRETS, NAMESPACE, "kubevirt-ca")
        await world.settle()

    assert any(getattr(record, "secret", "") == "kubevirt-ca" for record in caplog.records)
    said = caplog.text + " ".join(str(vars(record)) for record in caplog.records if record.name.startswith("controller"))
    assert "PRIVATE" not in said
    for name in ALL:
        key = base64.b64encode(world.data(name)["tls.key"]).decode()
        assert key[40:80] not in said


async def test_revocations_survive_every_authority_change(world: World) -> None:
    await world.settle()
    await world.api.edit(CONFIG_MAPS, NAMESPACE, "kubevirt-trust", lambda found: found["data"].update({"revoked.node1": "stolen"}))
    await world.api.remove(SECRETS, NAMESPACE, "kubevirt-ca")

    await world.settle()

    assert world.trust()["revoked.node1"] == "stolen"
    world.check()


@pytest.mark.parametrize("garbage", [None, {}, {"ca.crt": "nonsense"}])
async def test_removed_or_garbled_authorities_are_restored(world: World, garbage: dict[str, str] | None) -> None:
    await world.settle()
    await world.api.remove(CONFIG_MAPS, NAMESPACE, "kubevirt-trust")
    if garbage is not None:
        await world.api.put(CONFIG_MAPS, {"metadata": {"name": "kubevirt-trust", "namespace": NAMESPACE}, "data": garbage})

    await world.settle()

    world.check()


async def test_the_key_that_all_nodes_shared_is_removed(world: World) -> None:
    shared = {"metadata": {"name": "kubevirt-virt-handler-tls", "namespace": NAMESPACE}, "type": "kubernetes.io/tls", "data": {}}
    await world.api.put(SECRETS, shared)

    await world.settle()

    world.check()
