from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from apiserver.apis.meta.objects import Object
from apiserver.client.rest import Client, TransportError
from controller.manager import options, wiring
from controller.manager.metrics import Metrics
from controller.runtime.clock import SystemClock
from controller.runtime.recorder import Recorder
from tests.component.controller.test_controller import NODES, with_a_bad_node
from tests.fakes.kubeapi import FakeAPI
from tests.unit.controller.reconcilers.builders import a_migration

LEASES = "/apis/coordination.k8s.io/v1/leases"
MAX_EXCHANGES = 64


def test_the_launcher_image_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([])
    assert ended.value.code == 2
    assert "--launcher-image" in capsys.readouterr().err


async def a_process(*flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller.manager",
        "--launcher-image=launcher",
        "--health-port=0",
        "--metrics-port=0",
        "--webhook-port=0",
        *flags,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "POD_NAME": "pod", "KUBERNETES_SERVICE_HOST": ""},
    )


async def test_without_a_cluster_the_process_says_what_to_do() -> None:
    process = await a_process()
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"set a kubeconfig" in said


async def test_signal_ends_the_process_and_releases_the_lease(tmp_path: Path) -> None:
    api = FakeAPI()
    async with api.serving() as config:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(f"""
current-context: c
contexts: [{{name: c, context: {{cluster: c, namespace: kubevirt}}}}]
clusters: [{{name: c, cluster: {{server: "{config.server}"}}}}]
""")
        process = await a_process(f"--kubeconfig={kubeconfig}")
        async with asyncio.timeout(20):
            while not api.all(LEASES):
                await asyncio.sleep(0.05)
            assert api.all(LEASES)[0]["spec"]["holderIdentity"].startswith("pod_")
            assert api.all(LEASES)[0]["metadata"]["namespace"] == "kubevirt"
            process.send_signal(signal.SIGTERM)
            _, said = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert api.all(LEASES)[0]["spec"]["holderIdentity"] == ""


class HangingAPI(FakeAPI):
    """A fake API that never answers requests for objects with the name ``none``."""

    hanging = 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/none"):
            self.hanging += 1
            await asyncio.Event().wait()
        return await super()._handle(request)


class Busy:
    """A part with one request more than its client allows at once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(MAX_EXCHANGES + 1):
                tasks.create_task(self._client.request("GET", "/api/v1/namespaces/kubevirt/secrets/none"))


async def test_leader_renews_its_lease_while_loops_wait() -> None:
    api, clock = HangingAPI(), SystemClock()
    given = options.parse(["--launcher-image=launcher", "--health-port=0", "--metrics-port=0", "--webhook-port=0"])

    def renewed() -> str:
        return str(api.all(LEASES)[0]["spec"]["renewTime"])

    async with api.serving() as config, Client(config, user_agent="test") as client, Client(config, user_agent="test") as electing:
        recorder = Recorder(client, "virt-controller", clock)
        environment = wiring.Environment(client, recorder, clock, given, Metrics(), "kubevirt", electing=electing)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(wiring.run(environment, lambda made: [Busy(made.client)]))
            while api.hanging < MAX_EXCHANGES - 1:  # an informer of Migrations has one
                await asyncio.sleep(0.05)
            before = renewed()
            while renewed() == before:
                await asyncio.sleep(0.05)
            running.cancel()


@asynccontextmanager
async def measuring(api: FakeAPI, parts: Callable[[wiring.Environment], Sequence[wiring.Runnable]]) -> AsyncIterator[Metrics]:
    metrics, clock = Metrics(), SystemClock()
    given = options.parse(["--launcher-image=launcher", "--health-port=0", "--metrics-port=0", "--webhook-port=0", "--no-leader-elect"])
    async with api.serving() as config, Client(config, user_agent="virt-controller") as client:
        recorder = Recorder(client, "virt-controller", clock)
        environment = wiring.Environment(client, recorder, clock, given, metrics, "kubevirt", time.monotonic)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(wiring.run(environment, parts))
            yield metrics
            running.cancel()


async def test_a_replica_that_does_not_lead_counts_migrations_too() -> None:
    api = FakeAPI()
    await api.put("/apis/kubevirt.io/v1alpha1/migrations", a_migration(phase="Running"))
    async with measuring(api, lambda _: []) as metrics:
        while b'kubevirt_migrations{phase="Running"} 1' not in await metrics.page():
            await asyncio.sleep(0.05)


async def test_a_node_where_starts_fail_is_in_the_metrics() -> None:
    api = FakeAPI()
    await with_a_bad_node(api, minutes=1)
    async with measuring(api, lambda environment: [wiring.Machines(environment)]) as metrics:
        while b'kubevirt_node_non_operational{node="node2"} 1' not in await metrics.page():
            await asyncio.sleep(0.05)


class Waits:
    """A part that requests a machine from a virt-api that never answers."""

    def __init__(self, client: Client, given_up: asyncio.Event) -> None:
        self._client = client
        self._given_up = given_up

    async def run(self) -> None:
        with pytest.raises(TransportError):
            await self._client.request("GET", "/apis/kubevirt.io/v1alpha1/namespaces/ns/virtualmachines/none")
        self._given_up.set()
        await asyncio.Event().wait()


def a_node(ready: str) -> Object:
    return {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


async def test_requests_to_a_virt_api_lost_with_its_node_fail() -> None:
    api, given_up = HangingAPI(), asyncio.Event()
    await api.put(NODES, a_node("True"))
    async with measuring(api, lambda made: [wiring.Machines(made), Waits(made.client, given_up)]):
        while not api.hanging:
            await asyncio.sleep(0.05)
        await api.put(NODES, a_node("Unknown"))
        await given_up.wait()
