from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentUnresponsive, HypervisorError, OperationTimeout, Unavailable
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle import operating
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, SYNC, Call, World

RESET = messages.Operate("a", 1, "Reset")


def told(world: World, operation_id: str = "a") -> tuple[str, str]:
    found = world.status.operation_of(operation_id)
    return (found.state, found.message) if found is not None else ("", "")


def resets(world: World) -> int:
    return world.hypervisor.calls.count("reset")


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


async def test_a_reset_is_carried_out_once_for_each_id(world: World) -> None:
    await world.domain.handle(SYNC)
    for request in (RESET, RESET, messages.Operate("b", 2, "Reset"), RESET):
        await world.domain.handle(request)
    assert resets(world) == 2
    assert (told(world), told(world, "b")) == (("succeeded", ""), ("succeeded", ""))
    assert world.hypervisor.domains[NAME].state is State.RUNNING


async def test_repeated_reset_waits_for_the_running_one(world: World) -> None:
    await world.domain.handle(SYNC)
    go = asyncio.Event()

    async def slowly(call: Call) -> Any:
        await go.wait()
        return await call()

    world.hypervisor.intercept("reset", slowly)
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(world.domain.handle(RESET)) for _ in range(2))
        await world.until(lambda: told(world)[0] == "running")
        await asyncio.sleep(0.02)
        assert not first.done()
        assert not second.done()
        go.set()
    assert resets(world) == 1
    assert told(world) == ("succeeded", "")


async def test_a_paused_guest_stays_paused_after_a_reset(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Suspend())
    await world.domain.handle(RESET)
    assert told(world)[0] == "succeeded"
    assert world.hypervisor.domains[NAME].state is State.PAUSED


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (HypervisorError("reset domain: no"), "reset domain: no"),
        (Unavailable("reset domain: client socket is closed"), f"reset domain: client socket is closed; {operating.UNKNOWN}"),
        (OperationTimeout("reset domain: no answer"), f"reset domain: no answer; {operating.UNKNOWN}"),
        (ZeroDivisionError(), operating.UNEXPECTED),
    ],
)
async def test_failed_or_uncertain_reset_is_not_repeated(world: World, error: Exception, problem: str) -> None:
    await world.domain.handle(SYNC)

    async def failing(call: Call) -> None:
        await call()
        raise error

    world.hypervisor.intercept("reset", failing)
    for _ in range(2):
        try:
            await world.domain.handle(RESET)
        except ZeroDivisionError:
            assert isinstance(error, ZeroDivisionError)
    assert resets(world) == 1
    assert told(world) == ("failed", problem)


async def test_reset_waits_for_a_disconnected_libvirtd(world: World) -> None:
    await world.domain.handle(SYNC)
    back = asyncio.Event()

    async def away(call: Call) -> Any:
        await back.wait()
        return await call()

    world.hypervisor.intercept("ready", away)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.domain.handle(RESET))
        await asyncio.sleep(0.02)
        assert told(world) == ("", "")
        assert resets(world) == 0
        back.set()
    assert (told(world)[0], resets(world)) == ("succeeded", 1)


async def test_a_guest_that_ended_while_libvirtd_was_away_is_not_reset(world: World) -> None:
    await world.domain.handle(SYNC)

    async def ending(call: Call) -> Any:
        world.hypervisor.become(NAME, State.SHUTOFF, "shutdown")
        await world.until(lambda: world.status.ending is not None)
        return await call()

    world.hypervisor.intercept("ready", ending)
    assert (await refused(world, RESET)).reason == "Conflict"
    assert resets(world) == 0
    assert told(world) == ("", "")


async def test_guest_stopped_by_a_fault_is_resumed_once_per_operation(world: World) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.PAUSED, "I/O error")
    await world.until(lambda: world.status.domain is not None and world.status.domain.state == "paused")

    async def relapsing(call: Call) -> None:
        await call()
        world.hypervisor.become(NAME, State.PAUSED, "I/O error")

    world.hypervisor.intercept("resume", relapsing)
    for _ in range(2):
        await world.domain.handle(messages.Operate("a", 1, "Resume"))
    assert told(world) == ("failed", "the guest stopped again immediately: I/O error")
    assert world.hypervisor.calls.count("resume") == 2


async def test_forgotten_operation_is_not_repeated(world: World) -> None:
    """A virt-handler that has slept may ask for an operation that is long over."""
    await world.domain.handle(SYNC)
    count = messages.MAX_OPERATIONS + 1
    for number in range(1, count + 1):
        await world.domain.handle(messages.Operate(f"o{number}", number, "Reset"))
    assert len(world.status.operations) == messages.MAX_OPERATIONS
    assert (await refused(world, messages.Operate("o1", 1, "Reset"))).reason == "Invalid"
    assert resets(world) == count


async def test_a_guest_that_shuts_down_is_not_reset(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(messages.Shutdown(60.0))
    assert (await refused(world, RESET)).reason == "Conflict"
    assert resets(world) == 0


def sent(world: World, *words: str) -> list[str]:
    return [call for call in world.hypervisor.calls if any(word in call for word in words)]


async def test_signals_reach_the_guest_once_for_each_id(world: World) -> None:
    await world.domain.handle(SYNC)
    for _ in range(2):
        await world.domain.handle(messages.Operate("a", 1, "InjectNMI"))
        await world.domain.handle(messages.Operate("b", 2, "SendKey", (29, 46), 50))
        await world.domain.handle(messages.Operate("c", 3, "SoftReboot"))
    assert sent(world, "NMI", "keys", "reboot") == ["inject NMI", "send keys [29, 46] for 50 ms", "reboot"]
    assert [each.state for each in world.status.operations] == ["succeeded"] * 3


@pytest.mark.parametrize("action", ["InjectNMI", "SendKey", "SoftReboot"])
async def test_a_signal_that_libvirt_refuses_has_failed(world: World, action: messages.OperationAction) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.fail_next = HypervisorError("no")
    await world.domain.handle(messages.Operate("a", 1, action))
    assert told(world) == ("failed", "no")


@pytest.mark.parametrize(
    ("error", "calls", "state"),
    [
        (None, ["ask agent to reboot"], "succeeded"),
        (AgentUnresponsive("no answer"), ["ask agent to reboot", "reboot"], "succeeded"),
        (OperationTimeout("slow"), ["ask agent to reboot", "reboot"], "succeeded"),
        (Unavailable("libvirtd ended"), ["ask agent to reboot"], "failed"),
    ],
)
async def test_a_soft_reboot_is_the_agents_then_the_buttons(
    world: World, error: HypervisorError | None, calls: list[str], state: str
) -> None:
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.domain._agent.is_ready)
    world.hypervisor.fail_next = error
    await world.domain.handle(messages.Operate("a", 1, "SoftReboot"))
    assert sent(world, "reboot") == calls
    assert told(world)[0] == state
