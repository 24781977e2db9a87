from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import libvirt
import pytest

from launcher.hypervisor import translate
from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.port import AGENT_SECONDS, AgentRefused, AgentUnresponsive, HypervisorError, OperationInvalid

NAME = "test"


def an_error(code: int, domain: int = libvirt.VIR_FROM_QEMU, text: str = "no") -> libvirt.libvirtError:
    error = libvirt.libvirtError(text)
    error.err = (code, domain, text, 2, text, None, None, -1, -1)
    return error


class Agent:
    """libvirt's test driver lacks an agent: this one answers ``answer``: a text, an error, or a function's result.

    The function gets no argument.
    """

    answer: Any = None

    def command(self, domain: libvirt.virDomain, question: str, seconds: int) -> str:
        assert (domain.name(), seconds) == (NAME, AGENT_SECONDS)
        assert "execute" in json.loads(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer() if callable(self.answer) else self.answer)


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
async def hypervisor(agent: Agent, agent_call_seconds: float) -> AsyncIterator[LibvirtHypervisor]:
    made = LibvirtHypervisor("test:///default", agent_call_seconds=agent_call_seconds, agent_command=agent.command)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        await made.ready()
        yield made
        running.cancel()


@pytest.fixture
def agent_call_seconds() -> float:
    return 10.0


async def test_an_answer_is_what_the_agent_returned(hypervisor: LibvirtHypervisor, agent: Agent) -> None:
    agent.answer = '{"return": {"host-name": "web-1"}}'
    assert await hypervisor.ask_agent(NAME, "guest-get-host-name") == {"host-name": "web-1"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (an_error(libvirt.VIR_ERR_AGENT_UNRESPONSIVE), AgentUnresponsive),
        (an_error(libvirt.VIR_ERR_AGENT_UNSYNCED), AgentUnresponsive),
        (an_error(libvirt.VIR_ERR_INTERNAL_ERROR), AgentRefused),
        (an_error(libvirt.VIR_ERR_OPERATION_INVALID), OperationInvalid),
        ("no json", AgentRefused),
        ('{"error": {}}', AgentRefused),
        ("[" * 100_000, AgentRefused),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), AgentRefused),
    ],
    ids=str,
)
async def test_each_agent_failure_has_its_error(hypervisor: LibvirtHypervisor, agent: Agent, answer: Any, kind: type[Exception]) -> None:
    agent.answer = answer
    with pytest.raises(kind, match="ask the guest agent of domain test for guest-info") as raised:
        await hypervisor.ask_agent(NAME, "guest-info")
    assert type(raised.value) is kind


def test_a_lack_of_pci_slots_names_the_remedies() -> None:
    with (
        pytest.raises(HypervisorError, match=r"^attach disk: .*No more available PCI slots: detach another .*, or restart the"),
        translate.errors("attach disk"),
    ):
        raise an_error(libvirt.VIR_ERR_INTERNAL_ERROR, text="internal error: No more available PCI slots")


@pytest.mark.parametrize(
    ("name", "kind"), [("VIR_ERR_AGENT_COMMAND_TIMEOUT", AgentUnresponsive), ("VIR_ERR_AGENT_COMMAND_FAILED", AgentRefused)]
)
def test_newer_libvirts_say_what_an_agent_did(name: str, kind: type[Exception]) -> None:
    if not hasattr(libvirt, name):
        pytest.skip("this libvirt is older than 11.2")
    assert translate.kind_of(an_error(getattr(libvirt, name))) is kind


@pytest.mark.parametrize("agent_call_seconds", [0.2])
async def test_hanging_agent_is_asked_no_more_and_delays_no_other_call(hypervisor: LibvirtHypervisor, agent: Agent) -> None:
    answered = threading.Event()
    agent.answer = lambda: answered.wait(30) and '{"return": 1}'
    try:
        with pytest.raises(AgentUnresponsive, match="no answer within"):
            await hypervisor.ask_agent(NAME, "guest-info")
        for _ in range(20):
            with pytest.raises(AgentUnresponsive, match="an earlier command"):
                await hypervisor.ask_agent(NAME, "guest-info")
        assert await hypervisor.observe(NAME) is not None
    finally:
        answered.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await hypervisor.ask_agent(NAME, "guest-info") == 1
            except AgentUnresponsive:
                await asyncio.sleep(0.01)
            else:
                break
