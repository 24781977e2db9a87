"""Time limit of ordinary requests, cheaper than a timer each. Semantics of ``asyncio.timeout``.

Requests with the common limit expire in order, so it checks the oldest once a second. A shorter limit (``?timeout=``)
has its own timer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

LOOK_SECONDS: Final = 1.0


class Deadline:
    """The time limit of one request; ``expired``: its task was cancelled."""

    __slots__ = ("ends", "expired", "task")

    def __init__(self, task: asyncio.Task[Any], ends: float) -> None:
        self.task = task
        self.ends = ends
        self.expired = False

    async def absorb(self) -> None:
        """Absorb the expired deadline's cancellation, which would hit the connection's next request."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.task.uncancel():
                raise


class Deadlines:
    """Cancels tasks that take longer than ``seconds``, while ``run`` runs."""

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._open: dict[Deadline, None] = {}

    def begin(self, task: asyncio.Task[Any] | None = None) -> Deadline:
        """Return a Deadline that cancels a task (default: the current) after ``seconds``, up to a second late; call :meth:`end`.

        Raises RuntimeError without a task.
        """
        task = task or asyncio.current_task()
        if task is None:
            raise RuntimeError("requests must be handled in tasks")
        deadline = Deadline(task, self._now() + self.seconds)
        self._open[deadline] = None
        return deadline

    def end(self, deadline: Deadline) -> None:
        """Remove the limit."""
        self._open.pop(deadline, None)

    async def run(self) -> None:
        """Cancel expired tasks, once a second."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Cancel expired tasks."""
        now = self._now()
        for deadline in list(self._open):
            if deadline.ends > now:
                break
            del self._open[deadline]
            deadline.expired = True
            deadline.task.cancel()
