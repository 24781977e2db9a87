from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from apiserver.client.rest import Client
from certs.reloading import ClientTls
from handler import options
from handler.agent import Agent
from handler.devices.detection import Detection
from tests.component.handler import live
from tests.component.handler.test_identity import World, claimed
from tests.component.handler.test_identity import world as world  # noqa: PLC0414 - a fixture
from tests.component.handler.tls import NAMESPACE
from tests.component.handler.world import eventually
from tests.fakes.kubeapi import FakeAPI
from tests.ports import free_port


async def test_dial_before_machines_are_known_asks_to_retry(tmp_path: Path) -> None:
    api, machine = FakeAPI(), NamespacedName("default", "testvm")
    async with api.serving() as config, Client(config, user_agent="test") as client:
        agent = Agent(live.options(tmp_path), client, Detection("emulation"), node=live.PureNode(), disks=live.PureDisks())
        with pytest.raises(errors.ServiceUnavailable, match="has not read its machines yet"):
            agent._lookup(machine, "some-uid")
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(agent.machines.run())
            await agent.machines.synced.wait()
            assert agent._lookup(machine, "some-uid") is None
            watching.cancel()


async def test_node_without_a_certificate_obtains_and_serves_one(world: World, tmp_path: Path) -> None:
    streams_port, relay_port, health_port, metrics_port = (free_port() for _ in range(4))
    given = options.parse(
        [
            "--node-name=n1",
            "--pod-ip=127.0.0.1",
            f"--namespace={NAMESPACE}",
            f"--kubelet-directory={tmp_path}",
            f"--cert-dir={tmp_path / 'certificates'}",
            f"--streams-port={streams_port}",
            f"--relay-port={relay_port}",
            f"--health-port={health_port}",
            f"--metrics-port={metrics_port}",
        ],
        {},
    )
    (tmp_path / "device-plugins").mkdir()
    world.api.users["token-n1"] = claimed("n1")
    config = replace(world.config, token="token-n1")
    async with (
        world.controller(),
        world.node("n2") as other,
        Client(config, user_agent="test") as client,
        aiohttp.ClientSession() as session,
    ):

        async def readiness() -> str:
            try:
                async with session.get(f"http://127.0.0.1:{health_port}/readyz") as response:
                    return await response.text()
            except aiohttp.ClientError as error:
                return str(error)

        async def says(text: str) -> None:
            async with asyncio.timeout(20):
                while text not in (found := await readiness()):
                    await asyncio.sleep(0.05)
                    assert found

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(Agent(given, client, Detection("emulation")).run())
            await says("ok")
            await eventually(other.ready.is_set)
            context = ClientTls(other.files).context
            for port in (streams_port, relay_port):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="n1.virt-handler")
                writer.close()
            async with session.get(f"https://127.0.0.1:{metrics_port}/metrics", ssl=context, server_hostname="n1.virt-handler") as response:
                assert response.status == 401
            async with session.get(f"http://127.0.0.1:{health_port}/metrics") as response:
                assert response.status == 404
            await world.operator.revoke("n1")
            await says("not ready: certificate")
            running.cancel()
