from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.freezing import FREEZE, NOTHING, THAW
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, SYNC, World, state_of

LONG = 300


async def started(world: World, **answers: Any) -> None:
    world.hypervisor.answers = {"guest-info": {}, FREEZE: 2, THAW: 2, **answers}
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.domain._agent.is_ready)


async def operate(world: World, number: int, action: messages.OperationAction, seconds: int = LONG) -> tuple[str, str]:
    operation = messages.Operate(f"o{number}", number, action, thaw_seconds=seconds)
    await world.domain.handle(operation)
    found = world.status.operation_of(operation.id)
    assert found is not None
    return found.state, found.message


def is_frozen(world: World) -> bool:
    return world.status.frozen


def asked(world: World) -> list[str]:
    return [command for command, _ in world.hypervisor.questions if command in (FREEZE, THAW)]


async def test_a_freeze_lasts_until_the_thaw(world: World) -> None:
    await started(world)
    assert await operate(world, 1, "Freeze") == ("succeeded", "")
    assert is_frozen(world)
    questions = len(world.hypervisor.questions)
    await asyncio.sleep(0.05)
    assert len(world.hypervisor.questions) == questions
    assert await operate(world, 2, "Thaw") == ("succeeded", "")
    assert not is_frozen(world)
    assert asked(world) == [FREEZE, THAW]
    await world.until(lambda: len(world.hypervisor.questions) > questions + 1)


async def test_file_systems_thaw_late_if_the_agent_was_away(world: World) -> None:
    await started(world)
    await operate(world, 1, "Freeze", LONG)
    await operate(world, 2, "Thaw")
    world.hypervisor.answers[THAW] = AgentUnresponsive("no")
    assert await operate(world, 3, "Freeze", 0) == ("succeeded", "")
    await world.until(lambda: asked(world).count(THAW) >= 3)
    assert is_frozen(world)
    world.hypervisor.answers[THAW] = 2
    await world.until(lambda: not is_frozen(world))


@pytest.mark.parametrize(
    ("answer", "problem"), [(AgentRefused("no"), "no"), (0, NOTHING), ("all", NOTHING), (True, NOTHING), (None, NOTHING)]
)
async def test_a_freeze_that_the_agent_refused_needs_no_thaw(world: World, answer: object, problem: str) -> None:
    await started(world, **{FREEZE: answer})
    assert await operate(world, 1, "Freeze") == ("failed", problem)
    assert not is_frozen(world)
    assert asked(world) == [FREEZE]


async def test_a_freeze_with_an_unknown_result_is_thawed_at_once(world: World) -> None:
    await started(world, **{FREEZE: AgentUnresponsive("no answer")})
    assert (await operate(world, 1, "Freeze"))[0] == "failed"
    await world.until(lambda: THAW in asked(world) and not is_frozen(world))


async def test_without_an_agent_nothing_is_frozen(world: World) -> None:
    await world.domain.handle(SYNC)
    state, problem = await operate(world, 1, "Freeze")
    assert (state, "no guest agent is connected" in problem) == ("failed", True)
    assert not is_frozen(world)


@pytest.mark.parametrize("action", ["Freeze", "SoftReboot", "Suspend", "SuspendToNodeDisk"])
async def test_a_frozen_guest_refuses_what_would_lose_its_thaw(world: World, action: messages.OperationAction) -> None:
    await started(world)
    await operate(world, 1, "Freeze")
    state, problem = await operate(world, 2, action)
    assert (state, problem.split(": ")[1]) == ("failed", "the guest's file systems are frozen")
    with pytest.raises(RequestRefused, match="cannot migrate: the guest's file systems are frozen"):
        await world.domain.handle(messages.Migrate("m1"))
    assert state_of(world) == ""


async def test_a_restarted_guest_is_not_frozen(world: World) -> None:
    await started(world)
    await operate(world, 1, "Freeze")
    await operate(world, 2, "Reset")
    assert not is_frozen(world)
    assert asked(world) == [FREEZE]


@pytest.mark.parametrize("answer", [2, AgentUnresponsive("no")])
async def test_file_systems_thaw_before_a_shutdown(world: World, answer: object) -> None:
    await started(world, **{THAW: answer})
    await operate(world, 1, "Freeze")
    await world.domain.handle(messages.Shutdown(30.0))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    calls = [each for each in world.hypervisor.calls if each in (THAW, "ask agent")]
    assert (calls[0], "ask agent" in calls) == (THAW, True)
    assert is_frozen(world) == (answer != 2)


async def test_no_file_system_thaws_before_a_shutdown_without_a_freeze(world: World) -> None:
    await started(world)
    await world.domain.handle(messages.Shutdown(30.0))
    await world.until(lambda: "press power button" in world.hypervisor.calls)
    assert asked(world) == []
