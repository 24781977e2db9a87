"""Simulated virt-launchers: the component tests' fake, with a life that no test directs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from launcher.protocol import messages
from tests.fakes.launcher import FakeLauncher

COPY_SECONDS: Final = 1.0
"""Like the transfer of a small guest's memory (docs/performance.md)."""


class Guest(FakeLauncher):
    """A simulated launcher; it calls ``left`` with itself and a migration's uid when its guest should migrate away."""

    def __init__(self, pod_uid: str, left: Callable[[Guest, str], None]) -> None:
        super().__init__(pod_uid)
        self.over = asyncio.Event()
        self._left = left

    def migration(self, uid: str, direction: messages.MigrationDirection, state: messages.MigrationState, message: str = "") -> None:
        """Report a migration's state; of a running outgoing one, also call ``left``."""
        super().migration(uid, direction, state, message)
        if (direction, state) == ("outgoing", "running"):
            self._left(self, uid)

    def exit(self) -> None:
        """End the simulated process; repeated calls do nothing."""
        if not self.over.is_set():
            super().exit()
            self.over.set()


class Guests:
    """The simulated launchers of one process, by the uid of their pod."""

    def __init__(self, tasks: asyncio.TaskGroup, copy_seconds: float = COPY_SECONDS) -> None:
        self.running: dict[str, Guest] = {}
        self._tasks = tasks
        self._copy_seconds = copy_seconds

    def add(self, pod_uid: str) -> Guest:
        """Create, keep and return the launcher of a pod."""
        made = self.running[pod_uid] = Guest(pod_uid, self._move_later)
        return made

    def _move_later(self, source: Guest, uid: str) -> None:
        self._tasks.create_task(self._move(source, uid))

    async def _move(self, source: Guest, uid: str) -> None:
        """Report what libvirt reports on both sides of a migration that succeeds."""
        await asyncio.sleep(self._copy_seconds)
        domain = source.status.domain
        targets = [each for each in self.running.values() if _comes(each, uid)]
        if domain is None or not targets or not _leaves(source, uid):
            return
        targets[0].change(domain=replace(domain, state="paused", reason="user"))
        targets[0].migration(uid, "incoming", "arrived")
        source.migration(uid, "outgoing", "succeeded")
        source.end("migrated")


def _comes(guest: Guest, uid: str) -> bool:
    known = guest.status.migration_of(uid)
    return known is not None and (known.direction, known.state) == ("incoming", "prepared")


def _leaves(guest: Guest, uid: str) -> bool:
    known = guest.status.migration_of(uid)
    return known is not None and (known.direction, known.state) == ("outgoing", "running")
