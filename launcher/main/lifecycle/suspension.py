"""Suspends and resumes the guest's processors, and resets its machine."""

from __future__ import annotations

import asyncio

from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import known, requests
from launcher.main.decisions.times import TIMES, Times
from launcher.main.lifecycle.watching import Watch


class Suspension:
    """Suspends, resumes and resets the guest."""

    def __init__(self, hypervisor: Hypervisor, watch: Watch, times: Times = TIMES) -> None:
        self._hypervisor = hypervisor
        self._times = times
        self._watch = watch
        self._record = watch.record

    async def suspend(self) -> None:
        """Pause the guest's processors. Raises RequestRefused."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "suspend")
            with requests.errors_refused():
                await self._hypervisor.suspend(self._record.known.name)
        await self._watch.look()

    async def reset(self) -> None:
        """Reset the machine; paused processors stay so. Raises RequestRefused."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "reset")
            with requests.errors_refused():
                await self._hypervisor.reset(self._record.known.name)
            self._record.take(known.thawed)
        await self._watch.look()

    async def resume(self) -> None:
        """Resume the guest's processors. Raises RequestRefused, also if they are soon paused again for the same reason."""
        before = self._record.known.domain
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "resume")
            self._record.take(known.set_running)
            with requests.errors_refused():
                await self._hypervisor.resume(self._record.known.name)
        await self._watch.look()
        if requests.may_stop_again(before):
            await asyncio.sleep(self._times.relapse)
            await self._watch.look()
            requests.require_that_it_runs(self._record.known, before)
