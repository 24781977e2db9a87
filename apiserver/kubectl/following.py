"""Follow one Migration to its end, with its target's figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import phases, progress
from apiserver.apis.virt.places.resources import MIGRATIONS
from apiserver.kubectl import messages
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.watching import TIMES, Times, Watching


class Following(Watching):
    """Follows one Migration, with ``changed`` called per state."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Access]],
        access: Access,
        first: Object,
        changed: Callable[[Object], None],
        times: Times = TIMES,
    ) -> None:
        """Take the Migration's ``first`` state; ``changed`` is called with each state."""
        super().__init__(load, access, MIGRATIONS, first, changed, times)

    async def end(self, seconds: float) -> Object:
        """Return the Migration in its final phase, or as last seen before a deletion. Raises Failure, also after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                self._changed(self.newest)
                await self.until(self._is_over)
        except TimeoutError as error:
            state = messages.said(str(dig_migration(self.newest, "status", "message") or ""))
            name, now = objects.name_of(self.newest), f" ({state})" if state else ""
            raise Failure(f"error: timed out waiting for migration {name}, which continues{now}") from error
        await self._measured()
        return self.newest

    async def _measured(self) -> None:
        with contextlib.suppress(TimeoutError, Failure):
            async with asyncio.timeout(self._times.figures):
                await self.until(self._is_known, look=self._times.figures / 10)

    def _is_known(self) -> bool:
        is_measured = phases.phase_of(self.newest) != phases.SUCCEEDED or "downtimeMilliseconds" in progress.of(self.newest)
        return self.gone or is_measured

    def _is_over(self) -> bool:
        return self.gone or not phases.is_unfinished(self.newest)
