from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import dig
from apiserver.apis.virt.rights import trust
from apiserver.client.rest import Client
from certs import issuing, reading
from controller.reconcilers.certificates.node_certificates import Signing
from controller.runtime.clock import SystemClock
from tests.component.handler.test_identity import claimed
from tests.component.handler.world import eventually
from tests.fakes import rbac
from tests.fakes.kubeapi import SIGNING_REQUESTS, FakeAPI
from tests.unit.controller.reconcilers.signing import NAMESPACE, a_request

SECRETS = "/api/v1/secrets"
CONFIG_MAPS = "/api/v1/configmaps"


class World:
    def __init__(self, api: FakeAPI) -> None:
        self.api = api

    async def trust(self, **data: str) -> None:
        await self.api.put(CONFIG_MAPS, {"metadata": {"name": trust.CONFIG_MAP, "namespace": NAMESPACE}, "data": data})

    async def ask(self, name: str, **spec: Any) -> None:
        request = a_request(**spec)
        await self.api.put(SIGNING_REQUESTS, {**request, "metadata": {"name": name}})

    def status(self, name: str) -> dict[str, Any]:
        return self.api.get(SIGNING_REQUESTS, "", name).get("status") or {}

    def conditions(self, name: str) -> list[str]:
        return [each["type"] for each in self.status(name).get("conditions") or ()]

    def reads(self, kind: str) -> int:
        return sum(method == "GET" and f"/{kind}/" in path for method, path, _ in self.api.requests)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-controller")
    api.users["controller"] = claimed("node1")
    pair = issuing.new_authority("kubevirt-ca", timedelta(days=30), datetime.now(UTC))
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    async with api.serving() as config, signing(replace(config, token="controller")):
        await api.put(SECRETS, {"metadata": {"name": "kubevirt-ca", "namespace": NAMESPACE}, "data": encoded})
        yield World(api)
    assert api.forbidden == []


@asynccontextmanager
async def signing(config: Any) -> AsyncIterator[None]:
    async with Client(config, user_agent="virt-controller") as client, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Signing(client, NAMESPACE, timedelta(days=1), SystemClock()).run())
        yield
        task.cancel()


async def test_while_the_revocations_stand_nowhere_nothing_is_signed(world: World) -> None:
    """Verifiers keep the last revocations. A revoked node must not get a certificate while the ConfigMap is deleted."""
    await world.ask("one")
    await eventually(lambda: world.reads("configmaps") > 1)
    assert world.status("one") == {}
    await world.trust(**{"revoked.node1": "stolen"})
    await eventually(lambda: world.conditions("one") == ["Denied"])


async def test_a_certificate_begins_where_the_revoked_ones_end(world: World) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    await world.trust(**{"revoked.node1": now.isoformat().replace("+00:00", "Z")})
    await world.ask("one")
    await eventually(lambda: bool(world.status("one").get("certificate")))
    issued = reading.read_certificate(base64.b64decode(world.status("one")["certificate"]))
    assert issued is not None
    assert issued.not_before == now
    assert timedelta(hours=23) < issued.not_after - now <= timedelta(days=1, minutes=1)


async def test_decided_requests_cause_no_reads(world: World) -> None:
    for number in range(20):
        await world.ask(f"denied-{number}", conditions=("Denied",))
    await world.trust()
    await world.ask("open")
    await eventually(lambda: world.conditions("open") == ["Approved"] and bool(dig(world.status("open"), "certificate")))
    assert world.reads("configmaps") <= 3


async def test_a_request_of_a_megabyte_is_denied(world: World) -> None:
    await world.trust()
    await world.ask("long", request="x" * 1_000_000)
    await eventually(lambda: world.conditions("long") == ["Denied"])
    assert len(world.api.get(SIGNING_REQUESTS, "", "long")["spec"]["request"]) == 1_000_000
    [denial] = [body for _, path, body in world.api.writes if path.endswith("/approval")]
    assert "request" not in denial["spec"]
