"""Ends the domain: repeated requests to power off, then destruction."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from launcher.hypervisor.port import Hypervisor, HypervisorError
from launcher.main.decisions import known, power_off
from launcher.main.decisions.life import Step
from launcher.main.decisions.times import TIMES, Times
from launcher.main.lifecycle.migrations import Migrations
from launcher.main.lifecycle.watching import Watch

logger = logging.getLogger(__name__)


class Stop:
    """Powers the guest off after a request."""

    def __init__(
        self, hypervisor: Hypervisor, watch: Watch, migrations: Migrations, prepare: Callable[[], Awaitable[None]], times: Times = TIMES
    ) -> None:
        """``prepare`` prepares the guest, and raises no errors."""
        self._hypervisor = hypervisor
        self._prepare = prepare
        self._times = times
        self._watch = watch
        self._record = watch.record
        self._migrations = migrations
        self._requested = asyncio.Event()
        self._timeout: asyncio.Timeout | None = None
        """Of the current libvirt call."""

    def request(self, grace_seconds: float) -> None:
        """Request a power-off within a grace period. Of several periods, the one that ends first applies."""
        if not self._requested.is_set():  # virt-handler and SIGTERM both request it
            logger.info("the guest must power off", extra={"grace_seconds": grace_seconds})
        self._record.take(power_off.requested, grace_seconds, asyncio.get_running_loop().time())
        self._requested.set()
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._patience())

    async def run(self) -> None:
        """Wait for the request, then take steps to power the guest off, until cancelled."""
        await self._requested.wait()
        while True:
            fresh = await self._look()
            now = asyncio.get_running_loop().time()
            operating = self._record.operation.locked()
            step = power_off.next_step(self._record.known, now, fresh=fresh, operating=operating, times=self._times)
            try:
                if step is not Step.WAIT:
                    async with self._limit():
                        await self._take(step)
            except (HypervisorError, TimeoutError) as error:
                logger.warning("powering the guest off", extra={"step": step.value, "error": repr(error)})
            await asyncio.sleep(self._times.stop)

    async def _look(self) -> bool:
        try:
            async with self._limit():
                return await self._watch.look()
        except TimeoutError:
            return False

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        async with asyncio.timeout_at(self._patience()) as timeout:
            self._timeout = timeout
            try:
                yield
            finally:
                self._timeout = None

    def _patience(self) -> float | None:
        return power_off.patience(self._record.known, asyncio.get_running_loop().time(), self._times)

    async def _take(self, step: Step) -> None:
        self._record.take(power_off.begun, step, asyncio.get_running_loop().time())
        name = self._record.known.name
        match step:
            case Step.ASK_AGENT | Step.PRESS_BUTTON:
                await self._hypervisor.press_power_button(name, agent=step is Step.ASK_AGENT)
            case Step.PREPARE:
                await self._prepare()
            case Step.RESUME:
                await self._hypervisor.resume(name)
            case Step.ABORT_MIGRATION if self._record.known.saving:
                await self._hypervisor.abort_job(name)
            case Step.ABORT_MIGRATION:
                await self._migrations.abort_outgoing()
            case Step.DESTROY:
                await self._hypervisor.destroy(name)
            case Step.GIVE_UP:
                self._record.take(known.ended, "destroyed", power_off.GAVE_UP, time.time())
            case Step.WAIT | Step.END:
                return
        await self._watch.look()
