"""Makes a domain, or a place for an incoming one, which can be abandoned at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

from launcher.hypervisor.port import Hypervisor, HypervisorError
from launcher.main.decisions import known, life
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.preparation import Preparation, StartFailure
from launcher.main.lifecycle.record import Record

logger = logging.getLogger(__name__)

ABANDON_SECONDS: Final = 1.0
"""For ending a domain whose guest never ran; our exit ends the rest."""


class Making:
    """Lets a domain's making be abandoned; there is only one at a time."""

    def __init__(self, hypervisor: Hypervisor, record: Record, preparation: Preparation) -> None:
        self._hypervisor = hypervisor
        self._record = record
        self.preparation = preparation
        self._limit: asyncio.Timeout | None = None

    def abandon(self) -> None:
        """Interrupt a domain's making in ``until_abandoned``, if any."""
        if self._limit is not None and not self._record.known.abandoned:
            self._record.take(known.abandoned)
            self._limit.reschedule(asyncio.get_running_loop().time())

    @contextlib.asynccontextmanager
    async def until_abandoned(self) -> AsyncIterator[None]:
        """Run the block; if ``abandon`` is called, end it, destroy its domain, end the run and raise RequestRefused."""
        limit = self._limit = asyncio.timeout(None)
        self._record.take(known.making, begun=True)
        try:
            try:
                async with limit:
                    yield
            except StartFailure as error:  # also the limit's TimeoutError
                if not self._record.known.abandoned:
                    raise
                logger.debug("the preparation ended", extra={"error": repr(error)})
            if self._record.known.abandoned:  # the limit does not interrupt a block that ends at that moment
                await self._leave_nothing()
                raise RequestRefused("Conflict", "this pod is terminating")
        finally:
            self._record.take(known.making, begun=False)
            self._limit = None

    async def _leave_nothing(self) -> None:
        logger.info("start aborted: this pod is terminating")
        self._record.take(known.destroying)
        if name := self._record.known.name:
            with contextlib.suppress(TimeoutError, HypervisorError):
                async with asyncio.timeout(ABANDON_SECONDS):
                    await self._hypervisor.destroy(name)
        self._record.take(known.ended, "destroyed", life.NOT_RUN, time.time())
