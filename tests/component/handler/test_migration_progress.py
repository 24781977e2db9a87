from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors, objects
from apiserver.apis.virt.lifecycle import progress
from launcher.protocol import messages
from tests.component.handler.test_migrations import Scene, both
from tests.component.handler.world import EVENTS, MIGS, a_world, eventually
from tests.fakes.launcher import FakeLauncher

MIB = 1 << 20


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_world(tmp_path) as world:
        await world.vm()
        source, target = await world.launcher("pod-1"), await world.launcher("pod-2")
        async with world.handler("n"):
            await eventually(lambda: world.status()["phase"] == "Running")
        yield Scene(world, source, target)


def say(launcher: FakeLauncher, **figures: Any) -> None:
    known = launcher.status.migration_of("mig-1")
    assert known is not None
    launcher.change(migrations=(replace(known, **figures),))


def told(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.world.api.get(MIGS, "default", "m")["status"].get("progress") or {}
    return found


def writes(scene: Scene) -> list[dict[str, Any]]:
    bodies = [body for method, path, body in scene.world.api.writes if method == "PUT" and path.endswith("/migrations/m/status")]
    found = [body["status"].get("progress") for body in bodies]
    return [each for number, each in enumerate(found) if each and (not number or found[number - 1] != each)]


async def under_way(stack: AsyncExitStack, scene: Scene) -> None:
    await both(stack, scene)
    await scene.begin()
    await eventually(lambda: scene.state() == "running")


FIGURES: dict[str, Any] = {
    "data_total_bytes": 256 * MIB,
    "data_processed_bytes": 100 * MIB,
    "data_remaining_bytes": 156 * MIB,
    "bytes_per_second": 50 * MIB,
    "iteration": 1,
    "elapsed_milliseconds": 500,
}


async def test_source_reports_progress_and_target_final_figures(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        assert told(scene) == {}
        say(scene.source, **FIGURES)
        await eventually(lambda: told(scene).get("remainingBytes") == 156 * MIB)
        assert told(scene)["expectedRemainingSeconds"] == 4
        scene.arrive()
        say(scene.target, **{**FIGURES, "data_remaining_bytes": 0, "elapsed_milliseconds": 9_000, "downtime_milliseconds": 45})
        scene.leave()
        await eventually(lambda: scene.phase() == "Succeeded")
        found = told(scene)
        assert (found["downtimeMilliseconds"], found["elapsedMilliseconds"], found["remainingBytes"]) == (45, 9_000, 0)
        assert "expectedRemainingSeconds" not in found


async def test_figures_are_written_after_virt_controllers_success(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        scene.arrive()
        say(scene.target, **FIGURES, downtime_milliseconds=45)
        write = scene.world.api._write
        ended = {"phase": "Succeeded", "endTime": "2026-01-01T00:00:00Z"}

        async def overtaken(key: Any, subresource: str, method: str, body: Any, token: str) -> Any:
            if key[0] == MIGS and (body.get("status") or {}).get("phase") == "Succeeded" and scene.phase() == "Running":
                await scene.world.api.edit(MIGS, "default", "m", lambda obj: obj["status"].update(ended))
            return await write(key, subresource, method, body, token)

        scene.world.api._write = overtaken  # type: ignore[method-assign]  # a bad day that cannot be ordered
        scene.leave()
        await eventually(lambda: told(scene).get("downtimeMilliseconds") == 45)
        assert {key: scene.status()[key] for key in ended} == ended


async def test_late_figures_of_a_launcher_are_written(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")
        assert "downtimeMilliseconds" not in told(scene)
        say(scene.target, **FIGURES, downtime_milliseconds=45)
        await eventually(lambda: told(scene).get("downtimeMilliseconds") == 45)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_the_last_figures_of_one_that_failed_stay(scene: Scene, state: messages.MigrationState) -> None:
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        known = scene.source.status.migration_of("mig-1")
        assert known is not None
        scene.source.change(migrations=(replace(known, **FIGURES, state=state, message="client socket is closed"),))
        await eventually(lambda: scene.phase() == "Failed")
    assert told(scene)["remainingBytes"] == 156 * MIB
    assert "expectedRemainingSeconds" not in told(scene)


async def test_endless_figures_cause_few_writes(scene: Scene) -> None:
    scene.world.link_limits = replace(scene.world.link_limits, changes_per_second=1000.0)
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        began = time.monotonic()
        for number in range(300):
            say(scene.source, **{**FIGURES, "elapsed_milliseconds": 501 + number, "iteration": number})
            await asyncio.sleep(0.005)
        await eventually(lambda: writes(scene) != [])
        assert len(writes(scene)) <= 1 + (time.monotonic() - began) / scene.world.limits.progress_seconds


async def test_equal_figures_are_written_once(scene: Scene) -> None:
    scene.world.limits = replace(scene.world.limits, progress_seconds=0.0)
    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        for consoles in range(20):
            say(scene.source, **FIGURES)
            scene.source.change(consoles=consoles)
            await asyncio.sleep(0.01)
        await eventually(lambda: len(writes(scene)) == 1)
        say(scene.source, **{**FIGURES, "elapsed_milliseconds": 1_000})
        await eventually(lambda: len(writes(scene)) == 2)


async def test_a_write_that_hangs_keeps_no_guest_standing_still(scene: Scene) -> None:
    """The target resumes the guest although the source's write hangs."""
    write, hanging = scene.world.api._write, asyncio.Event()

    async def slow(key: Any, subresource: str, method: str, body: Any, token: str) -> Any:
        status = body.get("status") or {}
        if key[0] == MIGS and status.get("phase") == "Running" and status.get("progress"):
            hanging.set()
            await asyncio.Event().wait()
        return await write(key, subresource, method, body, token)

    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        scene.world.api._write = slow  # type: ignore[method-assign]  # a bad day that cannot be ordered
        say(scene.source, **FIGURES)
        async with asyncio.timeout(10):
            await hanging.wait()
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")
        assert scene.at_target() == "running"


@pytest.mark.parametrize(
    "refusal", [errors.Conflict("changed meanwhile"), errors.Forbidden("an older virt-api"), errors.ServiceUnavailable("restarting")]
)
async def test_a_write_that_is_refused_is_left_for_the_next_figures(scene: Scene, refusal: errors.StatusError) -> None:
    scene.world.limits = replace(scene.world.limits, progress_seconds=0.2)
    write, refused = scene.world.api._write, 0

    async def once(key: Any, subresource: str, method: str, body: Any, token: str) -> Any:
        nonlocal refused
        if key[0] == MIGS and (body.get("status") or {}).get("progress") and not refused:
            refused += 1
            raise refusal
        return await write(key, subresource, method, body, token)

    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        scene.world.api._write = once  # type: ignore[method-assign]  # a bad day that cannot be ordered
        say(scene.source, **FIGURES)
        await eventually(lambda: refused == 1)
        await asyncio.sleep(0.3)
        say(scene.source, **{**FIGURES, "elapsed_milliseconds": 1_000})
        await eventually(lambda: told(scene).get("elapsedMilliseconds") == 1_000)
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")


async def test_a_guest_that_writes_faster_than_it_is_moved_is_told_of(scene: Scene) -> None:
    scene.world.limits = replace(scene.world.limits, progress_seconds=0.0)
    scene.world.link_limits = replace(scene.world.link_limits, changes_per_second=1000.0)
    number = 0

    def condition() -> Any:
        nonlocal number
        number += 1
        say(scene.source, **{**FIGURES, "iteration": 2, "dirty_bytes_per_second": 80 * MIB, "elapsed_milliseconds": 500 * number})
        found = scene.world.api.get(MIGS, "default", "m")["status"].get("conditions")
        return objects.condition(found, progress.CONVERGING)

    async with AsyncExitStack() as stack:
        await under_way(stack, scene)
        await eventually(lambda: condition() is not None)
        found = condition()
        assert (found["status"], found["reason"]) == ("False", progress.WRITES_FASTER)
        await eventually(lambda: "MigrationNotConverging" in scene.world.events())
        (event,) = (
            each
            for each in scene.world.api.all(EVENTS)
            if each["reason"] == "MigrationNotConverging" and each["involvedObject"]["kind"] == "Migration"
        )
        assert event["message"] == "the guest writes its memory at 80Mi/s, and 50Mi/s are sent"


async def test_a_migration_that_is_over_is_let_go(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        say(scene.source, **FIGURES)
        await eventually(lambda: told(scene) != {})
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")
        await eventually(lambda: (link := source.links.get("pod-1")) is None or all(each.loop != "progress" for each in link.holders))
