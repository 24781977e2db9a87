"""Freezes and thaws the guest's file systems through its agent, and thaws them when their time is over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from launcher.hypervisor.port import AgentRefused, HypervisorError
from launcher.main.agent.agent import Agent
from launcher.main.decisions import known, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.lifecycle.record import Record

logger = logging.getLogger(__name__)

FREEZE: Final = "guest-fsfreeze-freeze"
THAW: Final = "guest-fsfreeze-thaw"
NOTHING: Final = "the guest agent found nothing that it can freeze"


class Freezing:
    """Freezes the guest's file systems for a limited time."""

    def __init__(self, agent: Agent, record: Record, times: Times = TIMES) -> None:
        self._agent = agent
        self._record = record
        self._times = times
        self._changed = asyncio.Event()

    async def freeze(self, seconds: float) -> None:
        """Freeze the guest's file systems, and have :meth:`run` thaw them after these seconds; at once if the agent does not answer.

        Raises RequestRefused.
        """
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, requests.DOING["Freeze"])
            self._take(_now() + seconds)
            try:
                count = await self._agent.do(FREEZE, {}, seconds=self._times.freeze, anyway=True)
            except (AgentRefused, RequestRefused) as error:  # the agent undoes what it froze
                self._take(None)
                raise RequestRefused("Failed", str(error)) from error
            except HypervisorError as error:
                self._take(_now())
                raise requests.refusal_of(error) from error
            if type(count) is not int or count < 1:
                self._take(None)
                raise RequestRefused("Failed", NOTHING)

    async def thaw(self) -> None:
        """Thaw the guest's file systems. Raises RequestRefused."""
        with requests.errors_refused():
            await self._agent.do(THAW, {}, seconds=self._times.freeze, anyway=True)
        self._take(None)

    async def end(self) -> None:
        """Thaw the guest's file systems before a shutdown; :meth:`run` retries if that fails."""
        try:
            await self.thaw()
        except RequestRefused as refused:
            logger.info("the guest's file systems could not be thawed before its shutdown", extra={"error": str(refused)})
            self._take(_now())

    async def run(self) -> None:
        """Thaw when the time is over, until cancelled."""
        while True:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._record.known.thaw_at):
                    await self._changed.wait()
                    continue
            await self._thaw_late()

    async def _thaw_late(self) -> None:
        if self._record.known.thaw_at is None:  # the guest rebooted
            return
        try:
            await self.thaw()
        except RequestRefused as refused:
            logger.debug("the guest's file systems cannot be thawed", extra={"error": str(refused)})
            await asyncio.sleep(self._times.thaw_retry)
        else:
            logger.warning("the guest's file systems were thawed, because the time limit of the freeze passed")

    def _take(self, thaw_at: float | None) -> None:
        self._record.take(*((known.thawed,) if thaw_at is None else (known.frozen, thaw_at)))
        self._changed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
