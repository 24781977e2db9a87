from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from apiserver.client.backoff import Backoff
from apiserver.client.config import Config
from apiserver.client.rest import Client
from certs import issuing, peers
from certs.issuing import Pair, Profile
from certs.reloading import ClientTls, ServerTls
from controller.reconcilers.certificates.node_certificates import Signing
from controller.runtime.clock import SystemClock
from handler.identity import keys
from handler.identity.keeping import Identity
from handler.identity.plan import Requeue
from tests.component.handler.tls import NAMESPACE, Operator, publish_trust
from tests.component.handler.world import eventually
from tests.fakes import rbac
from tests.fakes.kubeapi import SIGNING_REQUESTS, FakeAPI

SECRETS = "/api/v1/secrets"
DAY = timedelta(days=1)


class World:
    def __init__(self, root: Path, api: FakeAPI, config: Config, stack: AsyncExitStack) -> None:
        self.root, self.api, self.config, self._stack = root, api, config, stack
        self.operator = Operator(api)
        self.clock = Clock()
        self.authority = Pair(b"", b"")

    async def new_authority(self) -> None:
        self.authority = issuing.new_authority("kubevirt-ca", 30 * DAY, datetime.now(UTC))
        data = {"tls.crt": self.authority.certificate, "tls.key": self.authority.key}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        await self.api.put(SECRETS, {"metadata": {"name": "kubevirt-ca", "namespace": NAMESPACE}, "data": encoded})

    @asynccontextmanager
    async def controller(self, lifetime: timedelta = DAY) -> AsyncIterator[None]:
        async with Client(replace(self.config, token="controller"), user_agent="virt-controller") as client, asyncio.TaskGroup() as tasks:
            task = tasks.create_task(Signing(client, NAMESPACE, lifetime, SystemClock()).run())
            yield
            task.cancel()

    @asynccontextmanager
    async def node(self, node: str, token_of: str = "", directory: str = "") -> AsyncIterator[Identity]:
        self.api.users[f"token-{node}"] = claimed(token_of or node)
        async with Client(replace(self.config, token=f"token-{node}"), user_agent="test") as client, asyncio.TaskGroup() as tasks:
            identity = Identity(client, node, NAMESPACE, self.root / (directory or node), self.clock)
            task = tasks.create_task(identity.run())
            yield identity
            task.cancel()

    def requests(self) -> list[dict[str, Any]]:
        return self.api.all(SIGNING_REQUESTS)

    def denials(self) -> list[str]:
        conditions = [each for request in self.requests() for each in request["status"].get("conditions") or ()]
        return [each["message"] for each in conditions if each["type"] == "Denied"]


class Clock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def claimed(node: str) -> dict[str, Any]:
    return {
        "username": f"system:serviceaccount:{NAMESPACE}:virt-handler",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
        "extra": {names.NODE_CLAIM: [node]},
    }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    api = FakeAPI()
    handler, controller = rbac.authorizer("virt-handler"), rbac.authorizer("virt-controller")
    api.authorize = lambda *request: handler(*request) or controller(*request)
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(api.serving())
        made = World(tmp_path, api, config, stack)
        await made.new_authority()
        await publish_trust(api, made.authority.certificate)
        yield made
    assert api.forbidden == []


async def handshake(server: ServerTls, client: ClientTls, name: str) -> tuple[peers.Peer | None, peers.Peer | None]:
    seen: list[peers.Peer | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(peers.presented(writer.transport))
        writer.write(b"x")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server.context)
    port = listener.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client.context, server_hostname=name)
        assert await reader.read(1) == b"x"
        mine = peers.presented(writer.transport)
        writer.close()
    finally:
        listener.close()
    return seen[0], mine


async def test_new_node_obtains_a_certificate_accepted_both_ways(world: World) -> None:
    async with world.controller(), world.node("n1") as one, world.node("n2") as two:
        for identity in (one, two):
            async with asyncio.timeout(10):
                await identity.ready.wait()
            assert identity.problem() == ""

    at_two, at_one = await handshake(ServerTls(two.files, clients=ssl.CERT_REQUIRED), ClientTls(one.files), "n2.virt-handler")
    assert at_two is not None
    assert at_one is not None
    assert (at_two.common_name, at_two.dns_name) == ("virt-handler", "n1.virt-handler")
    assert (at_one.common_name, at_one.dns_name) == ("virt-handler", "n2.virt-handler")
    assert at_one.not_after - at_one.not_before <= DAY + timedelta(minutes=6)
    assert len(world.requests()) == 2
    assert one.files.key.read_bytes() != two.files.key.read_bytes()
    with pytest.raises(ssl.SSLCertVerificationError, match=r"n1\.virt-handler"):
        await handshake(ServerTls(two.files, clients=ssl.CERT_REQUIRED), ClientTls(one.files), "n1.virt-handler")


async def test_the_key_never_leaves_the_node_and_only_root_can_read_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with world.controller(), world.node("n1") as identity:
            await eventually(identity.ready.is_set)

    key = identity.files.key
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    secret = "".join(key.read_text().splitlines()[1:-1])[:40]
    sent = str(world.api.writes) + str(world.api.objects)
    assert secret not in sent
    assert secret not in caplog.text
    assert "PRIVATE" not in caplog.text + str(world.requests())


@pytest.mark.parametrize("asked", ["n2", "virt-api", "n1.virt-handler"])
async def test_the_token_of_one_node_obtains_no_certificate_of_another(world: World, asked: str, caplog: pytest.LogCaptureFixture) -> None:
    async with world.controller(), world.node(asked, token_of="n1") as identity:
        await eventually(lambda: bool(world.denials()))
        await eventually(lambda: "Denied" in caplog.text)
        assert not identity.ready.is_set()
        assert identity.problem()

    assert "not one for node n1" in world.denials()[0]
    assert not [each for each in world.requests() if each["status"].get("certificate")]


async def test_request_cannot_name_its_own_requester(world: World) -> None:
    made = await keys.make("n2")
    spec = {"signerName": names.HANDLER_SIGNER, "usages": ["digital signature", "server auth", "client auth"], **claimed("n2")}
    spec["request"] = base64.b64encode(made.request).decode()
    world.api.users["token-n1"] = claimed("n1")
    async with world.controller(), Client(replace(world.config, token="token-n1"), user_agent="test") as client:
        await client.request("POST", SIGNING_REQUESTS, body={"metadata": {"name": "forged"}, "spec": spec})
        await eventually(lambda: bool(world.denials()))

    assert "not one for node n1" in world.denials()[0]


async def test_a_renewed_certificate_is_used_without_a_restart(world: World) -> None:
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
        server, client = ServerTls(identity.files, clients=ssl.CERT_REQUIRED), ClientTls(identity.files)
        before, key = identity.files.certificate.read_bytes(), identity.files.key.read_bytes()
        first = await handshake(server, client, "n1.virt-handler")
        world.clock.ahead = DAY * 0.75
        identity._reload()
        await eventually(lambda: identity.files.certificate.read_bytes() != before)
        server.refresh()
        client.refresh()
        second = await handshake(server, client, "n1.virt-handler")

    assert identity.files.key.read_bytes() != key
    assert first[1] is not None
    assert second[1] is not None
    assert second[1].dns_name == first[1].dns_name
    assert len(world.requests()) == 2


async def test_certificate_due_at_issue_is_not_requested_endlessly(world: World) -> None:
    """The node's clock is far ahead of the signer's."""
    world.clock.ahead = DAY * 0.8
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
        await asyncio.sleep(1.5)
    assert len(world.requests()) <= 3


async def test_a_certificate_that_is_not_due_ends_long_pauses(world: World, tmp_path: Path) -> None:
    backoff = Backoff(1.0, 100.0)
    async with Client(world.config, user_agent="test") as client:
        identity = Identity(client, "n1", NAMESPACE, tmp_path / "n1", world.clock)
        assert max(backoff.next() for _ in range(5)) > 1.0
        assert await identity._apply(Requeue(5.0), backoff) == 5.0
    assert backoff.next() <= 1.0


async def test_present_certificate_serves_while_none_is_signed(world: World) -> None:
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
    asked = len(world.requests())

    world.api.authorize = lambda *_: False
    async with world.node("n1") as again:
        assert again.ready.is_set()
        assert again.problem() == ""
        await handshake(ServerTls(again.files, clients=ssl.CERT_REQUIRED), ClientTls(again.files), "n1.virt-handler")
        world.clock.ahead = DAY * 0.8
        assert again.problem() == ""
        world.clock.ahead = DAY * 1.1
        assert again.problem() == "the certificate has expired"
    assert len(world.requests()) == asked
    world.api.forbidden.clear()


async def test_node_started_early_gets_its_certificate_later(world: World) -> None:
    async with world.node("n1") as identity:
        await eventually(lambda: len(world.requests()) == 1)
        await asyncio.sleep(0.5)
        assert not identity.ready.is_set()
        async with world.controller():
            await eventually(identity.ready.is_set, seconds=15)
    assert len(world.requests()) == 1


async def test_a_request_that_was_removed_is_made_again(world: World) -> None:
    async with world.node("n1") as identity:
        await eventually(lambda: len(world.requests()) == 1)
        await world.api.remove(SIGNING_REQUESTS, "", world.requests()[0]["metadata"]["name"])
        async with world.controller():
            await eventually(identity.ready.is_set, seconds=15)


async def test_revoked_node_gets_no_certificate_until_pardoned(world: World) -> None:
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
        key = identity.files.key.read_bytes()
        await world.operator.revoke("n1")
        await eventually(lambda: identity.problem() == "this node is revoked")
        async with world.node("n1", directory="thief"):
            await eventually(lambda: identity.problem() == "this node is revoked")
            await asyncio.sleep(0.3)
        assert len(world.requests()) == 1

        pardoned = datetime.now(UTC).replace(microsecond=0)
        await world.operator.revoke("n1", pardoned.strftime("%Y-%m-%dT%H:%M:%SZ"))
        await eventually(lambda: not identity.problem(), seconds=15)
        assert identity.files.key.read_bytes() != key
        assert identity._held is not None
        assert identity._held.not_before >= pardoned


async def test_a_thief_who_skips_our_code_is_denied_for_a_revoked_node(world: World) -> None:
    made = await keys.make("n1")
    world.api.users["token-n1"] = claimed("n1")
    await world.operator.revoke("n1")
    async with world.controller(), Client(replace(world.config, token="token-n1"), user_agent="test") as client:
        spec = {"signerName": names.HANDLER_SIGNER, "usages": ["digital signature", "server auth", "client auth"]}
        body = {"metadata": {"name": "thief"}, "spec": {**spec, "request": base64.b64encode(made.request).decode()}}
        await client.request("POST", SIGNING_REQUESTS, body=body)
        await eventually(lambda: bool(world.denials()))

    assert "n1 is revoked" in world.denials()[0]


async def test_a_replaced_authority_brings_a_new_certificate_at_once(world: World) -> None:
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
        before = identity.files.certificate.read_bytes()
        await world.new_authority()
        await publish_trust(world.api, world.authority.certificate)
        await eventually(lambda: identity.files.certificate.read_bytes() != before, seconds=15)
        await eventually(lambda: not identity.problem())
        assert identity.files.authorities is not None
        assert identity.files.authorities.read_bytes() == world.authority.certificate


async def test_without_an_authority_the_request_waits_for_it(world: World) -> None:
    await world.api.remove(SECRETS, NAMESPACE, "kubevirt-ca")
    async with world.controller(), world.node("n1") as identity:
        await eventually(lambda: len(world.requests()) == 1)
        await asyncio.sleep(0.3)
        assert not identity.ready.is_set()
        await world.new_authority()
        await publish_trust(world.api, world.authority.certificate)
        await eventually(identity.ready.is_set, seconds=15)


async def test_vanished_or_garbled_authorities_stay_trusted(world: World) -> None:
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
        await publish_trust(world.api, b"nonsense")
        await asyncio.sleep(0.2)
        await world.api.remove("/api/v1/configmaps", NAMESPACE, "kubevirt-trust")
        await asyncio.sleep(0.2)
        assert identity.problem() == ""
        assert identity.files.authorities is not None
        assert identity.files.authorities.read_bytes() == world.authority.certificate


async def test_a_certificate_of_another_key_or_name_is_not_taken(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with world.node("n1") as identity:
        await eventually(lambda: len(world.requests()) == 1)
        name = world.requests()[0]["metadata"]["name"]
        profile = Profile(names.HANDLER, ("n1.virt-handler",), server=True, client=True)
        other = issuing.issue(world.authority, profile, DAY, datetime.now(UTC))
        issued = base64.b64encode(other.certificate).decode()
        await world.api.edit(SIGNING_REQUESTS, "", name, lambda found: found["status"].update(certificate=issued))
        await eventually(lambda: "cannot get a new certificate" in caplog.text)
        assert not identity.ready.is_set()


async def test_files_of_an_earlier_run_that_are_garbage_are_replaced(world: World) -> None:
    directory = world.root / "n1"
    directory.mkdir()
    for name in ("tls.crt", "tls.key", "ca.crt", "revoked.json"):
        (directory / name).write_text("[[garbage")
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set, seconds=15)
        assert identity.problem() == ""


async def test_revocations_are_known_after_a_restart_without_any_api(world: World) -> None:
    await world.operator.revoke("n2")
    async with world.controller(), world.node("n1") as identity:
        await eventually(identity.ready.is_set)
    world.api.authorize = lambda *_: False
    async with world.node("n1") as again:
        assert again.trust.revocations.is_revoked("n2")
    world.api.forbidden.clear()


async def test_a_missing_openssl_is_told_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = monkeypatch.context
    with path() as patched:
        patched.setenv("PATH", "/nowhere")
        async with world.controller(), world.node("n1"):
            await eventually(lambda: "openssl: No such file" in caplog.text)
