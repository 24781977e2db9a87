"""Has the agent set the guest's clock after a resume from an image or a long pause."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError, Observation
from launcher.main.agent.agent import Agent
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times

logger = logging.getLogger(__name__)

COMMAND: Final = "guest-set-time"


class GuestClock:
    """Sets the guest's clock after a request, once an agent is connected; gives up after ``Times.clock_limit``."""

    def __init__(self, agent: Agent, times: Times = TIMES, now: Callable[[], int] = time.time_ns) -> None:
        self._agent = agent
        self._times = times
        self._now = now
        self._wanted = asyncio.Event()
        self._paused_at: float | None = None

    def take(self, domain: Observation | None) -> None:
        """Record the domain's state; after a pause of at least ``Times.clock_pause``, request that the clock is set."""
        now = asyncio.get_running_loop().time()
        if domain is not None and domain.state is State.PAUSED:
            self._paused_at = now if self._paused_at is None else self._paused_at
            return
        paused_at, self._paused_at = self._paused_at, None
        if domain is not None and domain.active and paused_at is not None and now - paused_at >= self._times.clock_pause:
            self.request()

    def request(self) -> None:
        """Have :meth:`run` set the guest's clock."""
        self._wanted.set()

    async def run(self) -> None:
        """Have the agent set the guest's clock on each request, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                async with asyncio.timeout(self._times.clock_limit):
                    await self._set()
            except TimeoutError:
                logger.warning("no guest agent set the guest's clock: it is behind by the duration of the pause")

    async def _set(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._times.clock_retry)

    async def _try(self) -> bool:
        if not self._agent.is_ready:
            return False
        try:
            await self._agent.do(COMMAND, {"time": self._now()})
        except (RequestRefused, HypervisorError) as error:
            logger.debug("cannot set the guest's clock", extra={"error": str(error)})
            return False
        logger.info("the guest's clock was set")
        return True
