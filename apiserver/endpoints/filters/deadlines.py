"""The bound of time of ordinary requests, for less than a timer each.

All requests have the same bound, so the one that began first is over first: one look a second at the oldest ones is enough. A request that
asks for less (``?timeout=``) gets a timer of its own. What is promised is that of ``asyncio.timeout``, within a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

LOOK_SECONDS: Final = 1.0


class Deadline:
    """One request's bound."""

    __slots__ = ("ends", "expired", "task")

    def __init__(self, task: asyncio.Task[Any], ends: float) -> None:
        self.task = task
        self.ends = ends
        self.expired = False

    async def absorb(self) -> None:
        """Meet the cancellation that came after the last await here, and not in the next request of the connection."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.task.uncancel():
                raise


class Deadlines:
    """Cancels tasks that take longer than ``seconds``. ``run`` must run."""

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._open: dict[Deadline, None] = {}

    def begin(self, task: asyncio.Task[Any] | None = None) -> Deadline:
        """Bound what the task (default: the current one, which costs some microseconds to find) does from here on."""
        task = task or asyncio.current_task()
        if task is None:
            raise RuntimeError("requests are answered in tasks")
        deadline = Deadline(task, self._now() + self.seconds)
        self._open[deadline] = None
        return deadline

    def end(self, deadline: Deadline) -> None:
        """Bound it no more."""
        self._open.pop(deadline, None)

    async def run(self) -> None:
        """Look for what is over, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Cancel what is over."""
        now = self._now()
        for deadline in list(self._open):
            if deadline.ends > now:
                break
            del self._open[deadline]
            deadline.expired = True
            deadline.task.cancel()
