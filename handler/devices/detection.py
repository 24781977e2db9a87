"""The verdict about this node's acceleration, at the start and, while negative, repeatedly.

The first test may be too early: before KVM's module is loaded, or udev has set the mode of ``/dev/kvm``. A changed device is tested at
once, an unchanged one after pauses that double up to ``LONGEST_SECONDS``. A positive verdict is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.meta.backoff import pause_seconds
from handler.devices import acceleration, kvm
from handler.devices.acceleration import Choice, Verdict

POLL_SECONDS: Final = 5.0
FIRST_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 600.0
"""A trial of a broken KVM uses a processor for ten seconds."""

Identity = tuple[int, int, int, int, int]
"""Inode, number, mode and owner of a device node."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The state that decides whether to repeat the trial."""

    accelerated: bool
    device: Identity | None
    tried: Identity | None
    """The device at the last trial."""
    trials: int
    """Of that device."""
    elapsed: float
    hangs: bool
    """An earlier trial's process hangs in the kernel."""


def is_due(observed: Observed) -> bool:
    """Return whether to repeat the trial: it failed and ended, and the device exists, and changed or the pause is over."""
    if observed.accelerated or observed.hangs or observed.device is None:
        return False
    if observed.device != observed.tried:
        return True
    return observed.elapsed >= pause_seconds(observed.trials, FIRST_SECONDS, LONGEST_SECONDS)


def identify(path: Path) -> Identity | None:
    """Return the inode, number, mode and owner of a device node; None if missing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_rdev, found.st_mode, found.st_uid, found.st_gid


class Detection:
    """Finds out whether guests are accelerated here, again while they are not; ``verdict``: the newest answer, after :meth:`detect`."""

    def __init__(self, choice: Choice, *, trials: acceleration.Trials | None = None, device: Path = Path(kvm.DEVICE)) -> None:
        self.verdict = Verdict(accelerated=False, reason="not tried yet")
        self.decided = asyncio.Event()
        self._choice = choice
        self._trials = trials or acceleration.Trials()
        self._device = device
        self._tried: Identity | None = None
        self._count = 0
        self._at = 0.0
        self._subscribers: list[Callable[[Verdict], None]] = []

    def subscribe(self, changed: Callable[[Verdict], None]) -> None:
        """Call ``changed`` with each later verdict on this node's acceleration that differs from the last."""
        self._subscribers.append(changed)

    async def detect(self) -> None:
        """Decide now, and call the subscribers if the verdict changed."""
        device = identify(self._device)
        self._count = self._count + 1 if device == self._tried else 1
        self._tried = device
        before, self.verdict = self.verdict, await acceleration.decide(self._choice, self._trials)
        self._at = asyncio.get_running_loop().time()
        self.decided.set()
        if self.verdict != before:
            for changed in self._subscribers:
                changed(self.verdict)

    async def run(self) -> None:
        """Decide, and repeat the trial until it succeeds, unless an administrator forced the verdict."""
        await self.detect()
        while self._choice == "auto" and not self.verdict.accelerated:
            await asyncio.sleep(POLL_SECONDS)
            if is_due(self._observe()):
                await self.detect()

    def _observe(self) -> Observed:
        elapsed = asyncio.get_running_loop().time() - self._at
        return Observed(self.verdict.accelerated, identify(self._device), self._tried, self._count, elapsed, self._trials.hangs)
