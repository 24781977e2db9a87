"""Signals to the guest, which decides what follows: a request to reboot, an NMI, keys."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from launcher.hypervisor.port import Hypervisor, HypervisorError, Unavailable
from launcher.main.agent.agent import Agent
from launcher.main.decisions import requests
from launcher.main.lifecycle.record import Record

logger = logging.getLogger(__name__)


class Signals:
    """Sends this pod's guest a reboot request, an NMI or keys."""

    def __init__(self, hypervisor: Hypervisor, record: Record, agent: Agent) -> None:
        self._hypervisor = hypervisor
        self._record = record
        self._agent = agent

    async def reboot(self) -> None:
        """Request a reboot from the guest agent, else by the power button. Raises RequestRefused.

        If the agent began the reboot without an answer, the power button does no harm: libvirt resets the machine either way.
        """
        if not (self._agent.is_ready and await self._agent_reboots()):
            await self._send("reboot", self._hypervisor.reboot)

    async def interrupt(self) -> None:
        """Send the guest a non-maskable interrupt. Raises RequestRefused."""
        await self._send("inject an NMI", self._hypervisor.inject_nmi)

    async def press(self, codes: Sequence[int], hold_milliseconds: int) -> None:
        """Press these keys together in the guest, by Linux's codes. Raises RequestRefused."""
        await self._send("press keys", lambda name: self._hypervisor.send_keys(name, codes, hold_milliseconds))

    async def _agent_reboots(self) -> bool:
        requests.require_guest_that_stays(self._record.known, "reboot")
        try:
            await self._hypervisor.reboot(self._record.known.name, agent=True)
        except Unavailable as error:
            raise requests.refusal_of(error) from error
        except HypervisorError as error:
            logger.info("the guest agent did not reboot the guest; the power button follows", extra={"error": str(error)})
            return False
        return True

    async def _send(self, doing: str, signal: Callable[[str], Awaitable[None]]) -> None:
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, doing)
            with requests.errors_refused():
                await signal(self._record.known.name)
