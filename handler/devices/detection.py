"""The verdict about this node's acceleration, found at the start of the process and, while it is no, looked for again.

A node is often looked at too early: the module of KVM is loaded later, udev has not given ``/dev/kvm`` its mode yet, or the machine is so
busy with its boot that the trial takes too long. A device that changed is tried at once, the same one again after pauses that double up to
``LONGEST_SECONDS``, a node without the device never. A yes is kept: what becomes of the device then is its health
(:mod:`handler.devices.plugin`).
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
"""Inode, number, mode and owner of a device node: whatever opens it must be tried anew where one of them changed."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts that decide whether the trial is repeated."""

    accelerated: bool
    device: Identity | None
    """As it is; None where there is none."""
    tried: Identity | None
    """As it was at the last trial."""
    trials: int
    """Of the device as it was then."""
    elapsed: float
    """Seconds since the last trial."""
    hangs: bool
    """True while a process of an earlier trial is still in the kernel, which may be for ever."""


def is_due(observed: Observed) -> bool:
    """Return whether the trial guest is to be run again."""
    if observed.accelerated or observed.hangs or observed.device is None:
        return False
    if observed.device != observed.tried:
        return True
    return observed.elapsed >= pause_seconds(observed.trials, FIRST_SECONDS, LONGEST_SECONDS)


def identify(path: Path) -> Identity | None:
    """Return what lies at ``path``; None if nothing does."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_rdev, found.st_mode, found.st_uid, found.st_gid


class Detection:
    """The newest verdict about this node's acceleration; there is one from the first :meth:`detect` on."""

    def __init__(self, choice: Choice, *, trials: acceleration.Trials | None = None, device: Path = Path(kvm.DEVICE)) -> None:
        self.verdict = Verdict(accelerated=False, reason="not tried yet")
        self._choice = choice
        self._trials = trials or acceleration.Trials()
        self._device = device
        self._tried: Identity | None = None
        self._count = 0
        self._at = 0.0
        self._subscribers: list[Callable[[Verdict], None]] = []

    def subscribe(self, changed: Callable[[Verdict], None]) -> None:
        """Have ``changed`` called with every verdict that differs from the one before it."""
        self._subscribers.append(changed)

    async def detect(self) -> None:
        """Have the trial guest run now."""
        device = identify(self._device)
        self._count = self._count + 1 if device == self._tried else 1
        self._tried = device
        before, self.verdict = self.verdict, await acceleration.decide(self._choice, self._trials)
        self._at = asyncio.get_running_loop().time()
        if self.verdict != before:
            for changed in self._subscribers:
                changed(self.verdict)

    async def run(self) -> None:
        """Look again while the answer is no, until it is yes or this is cancelled; never where an administrator forced it."""
        while self._choice == "auto" and not self.verdict.accelerated:
            await asyncio.sleep(POLL_SECONDS)
            if is_due(self._observe()):
                await self.detect()

    def _observe(self) -> Observed:
        elapsed = asyncio.get_running_loop().time() - self._at
        return Observed(self.verdict.accelerated, identify(self._device), self._tried, self._count, elapsed, self._trials.hangs)
