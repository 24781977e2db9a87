from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import acting, flags, verbs
from apiserver.kubectl.migrations import Waiting
from tests.component.test_kubectl_virt_reset import World, world  # noqa: F401 - a fixture

WAITING = Waiting(wait=True, seconds=30)
MOMENT = "2026-01-01T00:00:00Z"
IMAGE: dict[str, Any] = {"id": "s", "claimName": "memory", "file": "u/s", "digest": f"sha256:{64 * '0'}", "sizeBytes": 1}


@pytest.fixture
async def suspended(world: World) -> World:  # noqa: F811 - the fixture
    found = await world.client.get(VIRTUAL_MACHINES, "web", "ns")
    found["spec"]["managedSave"] = {"claimName": "memory"}
    found["spec"]["domain"]["memory"]["guest"] = "128Mi"
    await world.client.update(VIRTUAL_MACHINES, found)
    attempts = [{"number": 1, "result": "Suspended", "endTime": "2026-01-01T00:00:00Z"}]
    await world.write(phase="Suspended", attempts=attempts, managedSave=IMAGE, nodeName=None)
    return world


async def requested(world: World) -> None:  # noqa: F811 - not the fixture
    async with asyncio.timeout(30):
        while not (await world.status()).get("request"):
            await asyncio.sleep(0.02)


async def test_suspend_asks_once_and_is_refused_without_a_claim(
    world: World,  # noqa: F811 - the fixture
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await world.act("suspend", WAITING) == 1
    assert "has no place for its memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_terminal", "line", "rest"),
    [(False, "virtualmachine.kubevirt.io/web: suspend 40 %\n", ""), (True, "\rvirtualmachine.kubevirt.io/web: suspend [#########-", "\n")],
    ids=["lines", "a bar"],
)
async def test_suspend_shows_its_progress_until_it_is_done(
    world: World,  # noqa: F811 - the fixture
    capsys: pytest.CaptureFixture[str],
    line: str,
    rest: str,
    *,
    is_terminal: bool,
) -> None:
    await world.write(phase="Stopped", attempts=[{"number": 1, "result": "Stopped", "endTime": "2026-01-01T00:00:00Z"}])
    found = await world.client.get(VIRTUAL_MACHINES, "web", "ns")
    found["spec"]["managedSave"] = {"claimName": "memory"}
    await world.client.update(VIRTUAL_MACHINES, found)
    await world.write(phase="Running", attempt=2, attempts=[{"number": 2}])

    async def save() -> None:
        await world.answer(percent=40)
        async with asyncio.timeout(30):
            while "40 %" not in (shown := capsys.readouterr().out):
                await asyncio.sleep(0.02)
        assert line in shown
        await world.answer(result="Succeeded")

    async with asyncio.TaskGroup() as group:
        group.create_task(save())
        assert await world.act("suspend", replace(WAITING, is_terminal=is_terminal)) == 0
    assert capsys.readouterr().out == f"{rest}virtualmachine.kubevirt.io/web: suspend done\n"


async def test_resume_waits_until_the_guest_runs(suspended: World, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        await requested(suspended)
        assert (await suspended.status())["running"]["domain"]["memory"]["guest"] == "64Mi"
        old = (await suspended.status())["attempts"]
        await suspended.write(phase="Running", attempt=2, attempts=[*old, {"number": 2}], managedSave=None)

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        assert await suspended.act("resume", WAITING) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "virtualmachine.kubevirt.io/web: resume done"
    assert await suspended.act("resume", Waiting()) == 1
    assert "already on (Running)" in capsys.readouterr().err


async def test_a_wait_tells_each_state_that_lasts_once(suspended: World, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    async def told(state: str) -> None:
        async with asyncio.timeout(30):
            while state not in "".join(said):
                said.append(capsys.readouterr().err)
                await asyncio.sleep(0.02)

    async def run() -> None:
        await requested(suspended)
        for reason, message in (("ClaimNotFound", "claim memory"), ("PodNotScheduled", "0/2 nodes are available")):
            condition = {"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": MOMENT}
            await suspended.write(conditions=[condition])
            await told(message)
            await asyncio.sleep(0.2)
        old = (await suspended.status())["attempts"]
        await suspended.write(phase="Running", attempt=2, attempts=[*old, {"number": 2}], managedSave=None, conditions=[])

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        assert await suspended.act("resume", Waiting(wait=True, seconds=30, tell_seconds=0.05)) == 0
    said.append(capsys.readouterr().err)
    assert "".join(said).splitlines() == [
        "virtualmachine.kubevirt.io/web: resume waits: ClaimNotFound: claim memory",
        "virtualmachine.kubevirt.io/web: resume waits: PodNotScheduled: 0/2 nodes are available",
    ]


async def test_failed_resume_is_told(suspended: World, capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        await requested(suspended)
        old = (await suspended.status())["attempts"]
        await suspended.write(phase="Failed", attempt=2, attempts=[*old, {"number": 2, "result": "Failed", "message": "the CPU differs"}])

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        assert await suspended.act("resume", WAITING) == 1
    assert "resume virtual machine ns/web: the CPU differs" in capsys.readouterr().err
    assert (await suspended.status())["managedSave"] == IMAGE


async def test_discarding_takes_the_image_and_its_hardware_away(suspended: World) -> None:
    body = verbs.body_of(flags.parse(["start", "web", "--discard-state"]))
    assert await acting.act(suspended.load, ["web"], "start", body, Waiting()) == 0
    status = await suspended.status()
    assert status["request"]["attempt"] == 2
    assert not {"managedSave", "running"} & status.keys()
    assert verbs.body_of(flags.parse(["start", "web"])) == {}
