"""Questions to guest agents through libvirt: its errors as ours, and an agent that hangs in the way of nothing else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import libvirt
import libvirt_qemu
import pytest

from launcher.hypervisor import translate
from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.port import AgentRefused, AgentSilent, OperationInvalid

NAME = "test"  # the domain that libvirt's test driver begins with


def an_error(code: int, domain: int = libvirt.VIR_FROM_QEMU, text: str = "no") -> libvirt.libvirtError:
    """Return libvirt's error of this code."""
    error = libvirt.libvirtError(text)
    error.err = (code, domain, text, 2, text, None, None, -1, -1)
    return error


@pytest.fixture
async def hypervisor(monkeypatch: pytest.MonkeyPatch, agent_call_seconds: float) -> AsyncIterator[LibvirtHypervisor]:
    # libvirt's test driver has no agent
    monkeypatch.setattr(libvirt.virDomain, "agentSetResponseTimeout", lambda _domain, _seconds: 0)
    made = LibvirtHypervisor("test:///default", agent_call_seconds=agent_call_seconds)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        await made.ready()
        yield made
        running.cancel()


@pytest.fixture
def agent_call_seconds() -> float:
    return 10.0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Set what the agent answers: a text, an error, or a function that is called."""

    def be(answer: Any) -> None:
        def command(_domain: object, question: str, _seconds: int, _flags: int) -> str:
            assert "execute" in json.loads(question)
            if isinstance(answer, Exception):
                raise answer
            return str(answer() if callable(answer) else answer)

        # as above
        monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", command)

    return be


async def test_an_answer_is_what_the_agent_returned(hypervisor: LibvirtHypervisor, answers: Callable[[Any], None]) -> None:
    answers('{"return": {"host-name": "web-1"}}')
    assert await hypervisor.ask_agent(NAME, "guest-get-host-name") == {"host-name": "web-1"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (an_error(libvirt.VIR_ERR_AGENT_UNRESPONSIVE), AgentSilent),
        (an_error(libvirt.VIR_ERR_AGENT_UNSYNCED), AgentSilent),
        (an_error(libvirt.VIR_ERR_INTERNAL_ERROR), AgentRefused),
        (an_error(libvirt.VIR_ERR_OPERATION_INVALID), OperationInvalid),
        ("no json", AgentRefused),
        ('{"error": {}}', AgentRefused),
        ("[" * 100_000, AgentRefused),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), AgentRefused),
    ],
    ids=str,
)
async def test_what_goes_wrong_has_its_error(
    hypervisor: LibvirtHypervisor, answers: Callable[[Any], None], answer: Any, kind: type[Exception]
) -> None:
    answers(answer)
    with pytest.raises(kind, match="ask the guest agent of domain test for guest-info") as raised:
        await hypervisor.ask_agent(NAME, "guest-info")
    assert type(raised.value) is kind


@pytest.mark.parametrize(("name", "kind"), [("VIR_ERR_AGENT_COMMAND_TIMEOUT", AgentSilent), ("VIR_ERR_AGENT_COMMAND_FAILED", AgentRefused)])
def test_newer_libvirts_say_what_an_agent_did(name: str, kind: type[Exception]) -> None:
    if not hasattr(libvirt, name):
        pytest.skip("this libvirt is older than 11.2")
    assert translate.kind_of(an_error(getattr(libvirt, name))) is kind


@pytest.mark.parametrize("agent_call_seconds", [0.2])
async def test_an_agent_that_hangs_is_asked_nothing_more_and_keeps_nobody_else_waiting(
    hypervisor: LibvirtHypervisor, answers: Callable[[Any], None]
) -> None:
    answered = threading.Event()
    answers(lambda: answered.wait(30) and '{"return": 1}')
    try:
        with pytest.raises(AgentSilent, match="no answer within"):
            await hypervisor.ask_agent(NAME, "guest-info")
        for _ in range(20):
            with pytest.raises(AgentSilent, match="an earlier question"):
                await hypervisor.ask_agent(NAME, "guest-info")
        assert await hypervisor.observe(NAME) is not None
    finally:
        answered.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await hypervisor.ask_agent(NAME, "guest-info") == 1
            except AgentSilent:
                await asyncio.sleep(0.01)
            else:
                break
