from __future__ import annotations

import base64

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive
from launcher.main.agent.passwords import COMMAND, MAX_REASON, NOT_SHOWN, REFUSED, refusal
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from tests.unit.launcher.main.world import NAME, SYNC, World

SECRET = "Tr0ub4dor"
ENCODED = base64.b64encode(SECRET.encode()).decode()
REQUEST = messages.SetPassword("debian", SECRET)
CHECK = "check in the guest that user debian exists, and that qemu-ga's configuration allows guest-set-user-password"
DOING = "ask the guest agent of domain ns_web for guest-set-user-password: internal error: unable to execute QEMU agent command "
FAILED = "child process has failed to set user password"
DISABLED = "Command guest-set-user-password has been disabled"


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
        (AgentRefused("no such user"), "Conflict", f"{REFUSED}: no such user; {CHECK}"),
        (AgentRefused(f"cannot take {SECRET}"), "Conflict", f"{REFUSED}: {NOT_SHOWN}; {CHECK}"),
        (AgentRefused(f"cannot take {ENCODED}"), "Conflict", f"{REFUSED}: {NOT_SHOWN}; {CHECK}"),
        (AgentUnresponsive(f"cannot take {SECRET}"), "Conflict", REFUSED),
        (AgentUnresponsive("no answer"), "Conflict", "no answer"),
    ],
)
async def test_an_error_never_quotes_the_password(world: World, answer: Exception, reason: str, told: str) -> None:
    await ready(world, answer)
    with pytest.raises(RequestRefused) as caught:
        await world.domain.handle(REQUEST)
    assert (caught.value.reason, str(caught.value)) == (reason, told)
    assert caught.value.__cause__ is None or not told.startswith(REFUSED)


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        (f"{DOING}'guest-set-user-password': {FAILED}", SECRET, FAILED),
        (f"{DOING}'guest-set-user-password': {FAILED}", "pass", FAILED),
        (f"{DOING}'guest-set-user-password': {DISABLED}: by the configuration", "disabled", f"{DISABLED}: by the configuration"),
        (f"{DOING}'guest-set-user-password': {FAILED}: chpasswd: bad {SECRET}", SECRET, f"{FAILED}: {NOT_SHOWN}"),
        (f"{DOING}'guest-set-user-password': bad {SECRET[:3]}\0{SECRET[3:]}", SECRET, NOT_SHOWN),
        (f"one\n\x1b[2Jtwo {'x' * 1000}", SECRET, f"one | [2Jtwo {'x' * 1000}"[: MAX_REASON - 1] + "…"),
    ],
)
def test_the_agents_reason_is_shown_without_the_password(text: str, secret: str, shown: str) -> None:
    assert refusal(text, "debian", (secret, ENCODED)) == f"{REFUSED}: {shown}; {CHECK}"


async def test_without_an_agent_there_is_a_reason(world: World) -> None:
    await world.domain.handle(SYNC)
    with pytest.raises(RequestRefused, match="no guest agent is connected"):
        await world.domain.handle(REQUEST)
