from __future__ import annotations

import base64

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentSilent
from launcher.main.agent.passwords import COMMAND, REFUSED
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, SYNC, World

SECRET = "Tr0ub4dor"
ENCODED = base64.b64encode(SECRET.encode()).decode()
REQUEST = messages.SetPassword("debian", SECRET)


async def ready(world: World, answer: object) -> World:
    world.hypervisor.answers = {COMMAND: answer}
    await world.domain.handle(SYNC)
    world.hypervisor.become(NAME, State.RUNNING, "booted", agent=True)
    await world.until(lambda: world.domain._agent.is_ready)
    return world


async def test_the_agent_gets_the_password_in_base64(world: World) -> None:
    await (await ready(world, {})).domain.handle(REQUEST)
    assert (COMMAND, {"username": "debian", "password": ENCODED, "crypted": False}) in world.hypervisor.questions


@pytest.mark.parametrize(
    ("answer", "reason", "told"),
    [
        (AgentRefused("no such user"), "Conflict", "no such user"),
        (AgentRefused(f"cannot take {SECRET}"), "Conflict", REFUSED),
        (AgentRefused(f"cannot take {ENCODED}"), "Conflict", REFUSED),
        (AgentSilent("no answer"), "Conflict", "no answer"),
    ],
)
async def test_an_error_never_quotes_the_password(world: World, answer: Exception, reason: str, told: str) -> None:
    await ready(world, answer)
    with pytest.raises(RequestRefused) as caught:
        await world.domain.handle(REQUEST)
    assert (caught.value.reason, str(caught.value)) == (reason, told)
    assert caught.value.__cause__ is None or told != REFUSED


async def test_without_an_agent_there_is_a_reason(world: World) -> None:
    await world.domain.handle(SYNC)
    with pytest.raises(RequestRefused, match="no guest agent is connected"):
        await world.domain.handle(REQUEST)
