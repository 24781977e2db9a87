from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from apiserver.apis.meta.objects import Object
from handler import __main__ as process
from handler import agent
from handler.devices.acceleration import Trials
from tests.component.handler.live import options
from tests.component.handler.world import MIGS, eventually
from tests.fakes.kubeapi import FakeAPI
from tests.ports import free_port
from tests.unit.handler.reconcilers.builders import a_migration

WAITS = "waiting for 1 running migrations"


@pytest.fixture
async def api(tmp_path: Path) -> FakeAPI:
    (tmp_path / "device-plugins").mkdir()
    found = FakeAPI()
    migration = a_migration("Running", attempt=1)
    del migration["metadata"]["resourceVersion"]
    await found.put(MIGS, {"apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", **migration})
    return found


@pytest.fixture
def port() -> int:
    return free_port()


@asynccontextmanager
async def running(
    api: FakeAPI, kubelet: Path, health_port: int, limits: agent.Limits = agent.DEFAULT_LIMITS, trials: Trials | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    given = replace(options(kubelet), health_port=health_port, acceleration="auto" if trials else "emulation")
    async with api.serving() as config, aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(process.run(given, config, limits, trials))
        try:
            async with asyncio.timeout(30):
                said = "migrations"
                while "migrations" in said:
                    with suppress(aiohttp.ClientError):
                        async with session.get(f"http://127.0.0.1:{health_port}/readyz") as response:
                            said = await response.text()
                    await asyncio.sleep(0.02)
            yield task
        finally:
            task.cancel()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def end_of(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(20):
        with suppress(asyncio.CancelledError):
            await task


def becomes(phase: str) -> Callable[[Object], None]:
    return lambda obj: obj["status"].update(phase=phase)


class Endless(Trials):
    async def run(self) -> tuple[str, bool]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError


async def test_guests_do_not_wait_for_the_trial_of_kvm(api: FakeAPI, tmp_path: Path, port: int) -> None:
    async with running(api, tmp_path, port, trials=Endless()) as task:
        assert not task.done()


async def test_a_migration_that_is_under_way_ends_first(api: FakeAPI, tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(api, tmp_path, port) as task:
        terminate()
        await eventually(lambda: WAITS in caplog.text)
        assert not task.done()
        await api.edit(MIGS, "default", "m", becomes("Succeeded"))
        await end_of(task)


@pytest.mark.parametrize("phase", ["TargetReady", "PreparingTarget", "Failed"])
async def test_unstarted_or_ended_migration_is_not_awaited(
    api: FakeAPI, tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    caplog.set_level(logging.INFO)
    await api.edit(MIGS, "default", "m", becomes(phase))
    async with running(api, tmp_path, port) as task:
        terminate()
        await end_of(task)
    assert WAITS not in caplog.text


async def test_a_migration_that_takes_long_is_waited_for_in_vain(
    api: FakeAPI, tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(api, tmp_path, port, agent.Limits(finish_seconds=0.3)) as task:
        terminate()
        await end_of(task)
    assert WAITS in caplog.text


async def test_a_second_signal_waits_for_nothing(api: FakeAPI, tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(api, tmp_path, port) as task:
        terminate()
        await eventually(lambda: WAITS in caplog.text)
        terminate()
        await end_of(task)
