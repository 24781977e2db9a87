from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive
from launcher.main.agent.commands import BUSY, EXEC
from launcher.main.agent.processes import STATUS
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, NAME, SYNC, World

LIVE = messages.Execute(("/bin/live", "-a"), 1)
ENDED = {"exited": True, "exitcode": 0}
RUNS = {"exited": False}


async def ready(world: World, answers: Mapping[str, object] = MappingProxyType({}), sync: messages.Sync = SYNC) -> World:
    world.hypervisor.answers = {EXEC: {"pid": 7}, STATUS: ENDED, **answers}
    await world.domain.handle(sync)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.domain._agent.is_ready)
    return world


def executed(world: World) -> list[Mapping[str, Any]]:
    return [arguments for command, arguments in world.hypervisor.questions if command == EXEC]


async def why(world: World, request: messages.Execute = LIVE) -> tuple[str, str]:
    with pytest.raises(RequestRefused) as caught:
        await world.domain.handle(request)
    return caught.value.reason, str(caught.value)


def ends_after(count: int) -> Callable[[object], object]:
    left = iter([RUNS] * count)
    return lambda _: next(left, ENDED)


async def test_a_command_that_ends_with_zero_succeeds(world: World) -> None:
    await ready(world, {STATUS: ends_after(2)})
    await world.domain.handle(LIVE)
    assert executed(world) == [{"path": "/bin/live", "arg": ["-a"], "capture-output": True}]


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"exited": True, "exitcode": 3}, "/bin/live failed with exit code 3"),
        (
            {"exited": True, "exitcode": 1, "err-data": base64.b64encode(b"no\n\x1b[2Jroot").decode()},
            "failed with exit code 1: no | [2Jroot",
        ),
        ({"exited": True, "exitcode": 1, "out-data": "%%%" * 100_000}, "failed with exit code 1"),
        ({"exited": True, "exitcode": 1, "out-data": "ÿ"}, "failed with exit code 1"),
        ({"exited": True, "exitcode": 1, "out-data": base64.b64encode(b"a" * 500_000).decode()}, f"failed with exit code 1: {'a' * 100}"),
        ({"exited": True, "signal": 9}, "was ended by a signal"),
        ({"exited": True, "exitcode": True}, "was ended by a signal"),
        ({"exited": True, "exitcode": 10**30}, "was ended by a signal"),
    ],
)
async def test_every_other_end_is_a_failure_with_a_short_reason(world: World, told: dict[str, Any], problem: str) -> None:
    await ready(world, {STATUS: told})
    reason, text = await why(world)
    assert (reason, problem in text, len(text) < 256) == ("Failed", True, True)


@pytest.mark.parametrize("begun", [{}, {"pid": "7"}, {"pid": True}, None, [1]])
async def test_an_agent_without_a_process_id_is_a_failure(world: World, begun: object) -> None:
    await ready(world, {EXEC: begun})
    assert await why(world) == ("Failed", "/bin/live: the guest agent returned no process ID")


@pytest.mark.parametrize(("error", "reason"), [(AgentRefused("no such file"), "Conflict"), (AgentUnresponsive("no answer"), "Conflict")])
async def test_a_command_that_cannot_begin_is_refused(world: World, error: Exception, reason: str) -> None:
    await ready(world, {EXEC: error})
    assert await why(world) == (reason, str(error))


async def test_a_command_that_still_runs_keeps_others_from_starting(world: World) -> None:
    await ready(world, {STATUS: RUNS})
    quick = dataclasses.replace(LIVE, seconds=0)
    assert await why(world, quick) == ("Failed", "/bin/live has not ended within 0 s")
    assert await why(world, quick) == ("Failed", BUSY)
    assert len(executed(world)) == 1
    world.hypervisor.answers[STATUS] = ENDED
    await world.domain.handle(LIVE)
    world.hypervisor.answers[STATUS] = RUNS
    await why(world, quick)
    world.hypervisor.answers[STATUS] = AgentRefused("PID 7 does not exist")
    assert (await why(world, quick))[1] == "PID 7 does not exist"
    assert len(executed(world)) == 4


async def test_without_an_agent_no_command_runs(world: World) -> None:
    await world.domain.handle(SYNC)
    reason, text = await why(world)
    assert (reason, "no guest agent is connected" in text) == ("Conflict", True)


HOOK = messages.Sync(dataclasses.replace(MACHINE, pre_stop=("/bin/goodbye",)))


def calls(world: World) -> list[str]:
    return [each for each in world.hypervisor.calls if each in (EXEC, "ask agent", "destroy")]


async def test_the_hook_runs_once_before_the_shutdown(world: World) -> None:
    await ready(world, {STATUS: ends_after(3)}, HOOK)
    await world.domain.handle(messages.Shutdown(30.0))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    assert calls(world)[:2] == [EXEC, "ask agent"]
    assert calls(world).count(EXEC) == 1
    assert world.status.pre_stop_problem == ""


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({STATUS: {"exited": True, "exitcode": 1}}, "/bin/goodbye failed with exit code 1"),
        ({STATUS: RUNS}, "/bin/goodbye has not ended within 0 s"),
        ({EXEC: AgentRefused("no such file")}, "no such file"),
    ],
)
async def test_a_failed_hook_does_not_block_the_shutdown(world: World, answers: dict[str, Any], problem: str) -> None:
    await ready(world, answers, HOOK)
    await world.domain.handle(messages.Shutdown(1.0))
    await world.until(lambda: "ask agent" in world.hypervisor.calls)
    assert problem in world.status.pre_stop_problem
    assert "destroy" not in world.hypervisor.calls


async def test_a_hook_without_an_agent_fails_and_the_button_is_pressed(world: World) -> None:
    await world.domain.handle(HOOK)
    await world.domain.handle(messages.Shutdown(30.0))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    assert "no guest agent is connected" in world.status.pre_stop_problem


async def test_a_power_off_runs_no_hook(world: World) -> None:
    await ready(world, sync=HOOK)
    await world.domain.handle(messages.Shutdown(0.0))
    await world.ends("destroyed")
    assert executed(world) == []


async def test_a_hanging_agent_does_not_prolong_the_grace_period(world: World) -> None:
    await ready(world, sync=HOOK)

    async def hanging(_call: object) -> None:
        await asyncio.Event().wait()

    world.hypervisor.intercept("ask_agent", hanging)
    await world.domain.handle(messages.Shutdown(0.3))
    await world.ends("destroyed")
