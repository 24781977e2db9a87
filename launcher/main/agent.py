"""The guest agent: asked for what it knows of the guest at once when it connects, and every ten seconds.

Its answers are the guest's word: ``launcher.hypervisor.facts`` bounds them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from launcher.hypervisor.port import GuestFacts, Hypervisor, HypervisorError, Observation
from launcher.protocol import messages

logger = logging.getLogger(__name__)

AGENT_SECONDS: Final = 10.0


class Agent:
    """Asks the agent of a domain for as long as it is connected."""

    def __init__(self, hypervisor: Hypervisor, *, answered: Callable[[GuestFacts], None], gone: Callable[[], None]) -> None:
        """Do nothing yet.

        Args:
            hypervisor: where the domain lives.
            answered: called with each answer.
            gone: called at each turn at which no agent is connected.
        """
        self._hypervisor = hypervisor
        self._answered = answered
        self._gone = gone
        self._domain: Observation | None = None
        self._changed = asyncio.Event()

    def take(self, domain: Observation | None) -> None:
        """Take in the domain as it is now."""
        if domain is not None and domain.agent_connected != (self._domain is not None and self._domain.agent_connected):
            self._changed.set()
        self._domain = domain

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with asyncio.timeout(AGENT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            if self._domain is None or not self._domain.agent_connected:
                self._gone()
                continue
            try:
                self._answered(await self._hypervisor.guest_facts(self._domain.name))
            except HypervisorError as error:
                logger.debug("the guest agent did not answer", extra={"error": str(error)})


def status_of(facts: GuestFacts) -> messages.AgentStatus:
    """Return the status of an agent that gave these facts."""
    return messages.AgentStatus(
        connected=True,
        hostname=facts.hostname,
        os_id=facts.os_id,
        os_name=facts.os_name,
        os_version=facts.os_version,
        kernel_release=facts.kernel_release,
        timezone=facts.timezone,
    )


def interfaces_of(facts: GuestFacts, machine: messages.Machine | None) -> tuple[messages.InterfaceStatus, ...]:
    """Return the guest's interfaces, with the name in the specification for each whose MAC address stands there."""
    names = {interface.mac.lower(): interface.name for interface in machine.interfaces} if machine else {}
    return tuple(messages.InterfaceStatus(names.get(item.mac, ""), item.mac, item.device, item.addresses) for item in facts.interfaces)
