"""Before a shutdown, thaws file systems and runs the command of ``spec.lifecycle.preStop`` in the guest."""

from __future__ import annotations

import asyncio
import logging

from launcher.main.agent.commands import Commands
from launcher.main.decisions import known
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.freezing import Freezing
from launcher.main.lifecycle.record import Record

logger = logging.getLogger(__name__)


class BeforeStop:
    """Prepares the guest for its shutdown, which a failure does not delay."""

    def __init__(self, record: Record, freezing: Freezing, commands: Commands) -> None:
        self._record = record
        self._freezing = freezing
        self._commands = commands

    async def run(self) -> None:
        """Thaw file systems, then run the ``preStop`` command in half of the remaining grace period; record its failure."""
        now = self._record.known
        if now.status.frozen:
            await self._freezing.end()
        if now.machine is None or not now.machine.pre_stop or now.stopping is None:
            return
        left = now.stopping.deadline - asyncio.get_running_loop().time()
        try:
            await self._commands.run(now.machine.pre_stop, max(0.0, left / 2), anyway=True)
        except RequestRefused as refused:
            logger.warning("the command before the guest's shutdown failed", extra={"error": str(refused)})
            self._record.take(known.pre_stop_failed, str(refused))
