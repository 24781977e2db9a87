"""Watches the domain: a look after each event and request, and every ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

from launcher.hypervisor.port import Hypervisor, HypervisorError, Observation
from launcher.main.agent.agent import Agent
from launcher.main.agent.clock import GuestClock
from launcher.main.decisions import known
from launcher.main.decisions.times import TIMES, Times
from launcher.main.lifecycle.record import Record
from launcher.main.programs import qemu_log
from launcher.main.serving.console import Console
from launcher.main.serving.serial_ports import SerialPorts

logger = logging.getLogger(__name__)

FIGURES_SECONDS: Final = 0.5
"""For a migration's statistics, which libvirt has in memory."""


class Watch:
    """Observes the domain, and passes its state to the record, the consoles and the agent."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        record: Record,
        console: Console,
        ports: SerialPorts,
        agent: Agent,
        clock: GuestClock,
        times: Times = TIMES,
    ) -> None:
        self._hypervisor = hypervisor
        self._times = times
        self.record = record
        self._console = console
        self._ports = ports
        self._agent = agent
        self._clock = clock
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()
        hypervisor.subscribe(self._changed.set)

    async def run(self) -> None:
        """Look at the domain after each event and every 10 s, and trim logs, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._times.look):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            for cut in qemu_log.trim_all(self.record.log) if self.record.log is not None else ():
                logger.info("truncated a log that had grown too large", extra={"path": str(cut), "bytes": qemu_log.MAX_BYTES})
            await self.look()

    async def look(self) -> bool:
        """Record the domain's current state; return whether that succeeded, or there is none yet."""
        async with self._looking:  # an older observation must not follow a newer one
            name = self.record.known.name
            if not name:
                return True
            try:
                self._take(await self._hypervisor.observe(name))
            except HypervisorError as error:
                logger.info("cannot read the state of the domain", extra={"error": str(error)})
                return False
            if uid := known.unmeasured(self.record.known, time.time()):
                await self._measure(uid)
            return True

    async def _measure(self, uid: str) -> None:
        with contextlib.suppress(HypervisorError, TimeoutError):
            async with asyncio.timeout(FIGURES_SECONDS):
                figures = await self._hypervisor.progress(self.record.known.name, completed=True)
            if figures is not None:
                self.record.take(known.measured, uid, figures)

    def _take(self, seen: Observation | None) -> None:
        if self.record.known.ended:
            return
        self._agent.take(seen)
        self._clock.take(seen)
        self.record.take(known.observed, seen, time.time())
        if seen is None or not seen.active:
            self._console.detach()
            self._ports.detach()
        elif ports := self.record.known.serial_ports:
            self._console.attach()
            self._ports.attach(ports)
