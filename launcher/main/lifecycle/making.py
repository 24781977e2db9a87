"""The making of a domain, or of a place for one that comes, which can be abandoned at any moment."""

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
"""For the end of a domain whose guest never ran; our own end takes what is left of it."""


class Making:
    """Bounds what makes a domain: one at a time, which the caller sees to."""

    def __init__(self, hypervisor: Hypervisor, record: Record, preparation: Preparation) -> None:
        self._hypervisor = hypervisor
        self._record = record
        self.preparation = preparation
        self._limit: asyncio.Timeout | None = None

    def abandon(self) -> None:
        """Have what is being made abandoned; whoever makes it ends the run."""
        if self._limit is not None and not self._record.known.abandoned:
            self._record.take(known.abandoned)
            self._limit.reschedule(asyncio.get_running_loop().time())

    @contextlib.asynccontextmanager
    async def until_abandoned(self) -> AsyncIterator[None]:
        """Do what is inside until ``abandon`` is called; then leave no domain, and end.

        Raises:
            RequestRefused: it was called.
        """
        limit = self._limit = asyncio.timeout(None)
        self._record.take(known.making, begun=True)
        try:
            try:
                async with limit:
                    yield
            except StartFailure as error:  # the limit's TimeoutError is one
                if not self._record.known.abandoned:
                    raise
                logger.debug("what was being made ended", extra={"error": repr(error)})
            if self._record.known.abandoned:  # which is no matter of the limit alone: it breaks nothing off that ends at that moment
                await self._leave_nothing()
                raise RequestRefused("Conflict", "this pod is ending")
        finally:
            self._record.take(known.making, begun=False)
            self._limit = None

    async def _leave_nothing(self) -> None:
        logger.info("the start is abandoned: this pod has to end")
        self._record.take(known.destroying)
        if name := self._record.known.name:
            with contextlib.suppress(TimeoutError, HypervisorError):
                async with asyncio.timeout(ABANDON_SECONDS):
                    await self._hypervisor.destroy(name)
        self._record.take(known.ended, "destroyed", life.NOT_RUN, time.time())
