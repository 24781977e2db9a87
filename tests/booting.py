"""At most two processes of tests boot guests at once: beside others a boot takes 8 to 25 seconds, alone 5.

A process of tests takes one of two slots as it makes a machine, and gives it back when the guest says that it is ready, when the test ends,
or after a minute, whatever comes first. A process that has a slot boots further guests in it, so that no test waits for itself. Guests with
the tiny kernel need none: they boot in a fifth of a second.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.testbed import layout

COUNT: Final = 2
HELD_SECONDS: Final = 60.0
READY: Final = "GUEST-READY"
"""The line that the init of the test guest prints."""
_LOOK_SECONDS: Final = 0.2


class Slots:
    """The hold of this process on one of the slots, which are locks of files."""

    def __init__(self, lock: Path, count: int = COUNT, held_seconds: float = HELD_SECONDS) -> None:
        """Initialise without a hold; the directory of the lock is made if need be."""
        self._files = [lock.with_name(f"{lock.name}.{number}") for number in range(count)]
        self._held_seconds = held_seconds
        self._mutex = threading.Lock()
        self._held: tuple[int, threading.Timer] | None = None

    @property
    def is_held(self) -> bool:
        """True if this process boots guests."""
        return self._held is not None

    def begin(self) -> None:
        """Take a slot, as soon as there is one; a process that has one keeps it for another minute."""
        with self._mutex:
            file = self._held[0] if self._held else self._taken()
            if self._held:
                self._held[1].cancel()
            timer = threading.Timer(self._held_seconds, self.end)
            timer.daemon = True
            self._held = file, timer
            timer.start()

    def end(self) -> None:
        """Give the slot back; without one, nothing happens."""
        with self._mutex:
            if self._held is not None:
                self._held[1].cancel()
                os.close(self._held[0])
                self._held = None

    def _taken(self) -> int:
        self._files[0].parent.mkdir(parents=True, exist_ok=True)
        while True:
            for path in self._files:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(file)
                else:
                    return file
            time.sleep(_LOOK_SECONDS)  # flock(2) waits for one file, not for the first of several


SLOTS: Final = Slots(layout.cache() / ".guests-that-boot.lock")


def boots_slowly(domain: Mapping[str, Any]) -> bool:
    """Return whether a machine with this ``spec.domain`` boots anything else than the tiny kernel."""
    boot = (domain.get("firmware") or {}).get("kernelBoot") or {}
    return not str((boot.get("container") or {}).get("kernelPath", "")).endswith("tiny")


def begin_with(manifest: Mapping[str, Any], slots: Slots = SLOTS) -> None:
    """Take a slot for an object that is about to be made, if it is a machine that starts at once."""
    if manifest.get("kind") == "List":
        for each in manifest["items"]:
            begin_with(each, slots)
    spec = manifest.get("spec") or {}
    starts = spec.get("runStrategy", "Always") not in ("Halted", "Manual")
    if manifest.get("kind") == "VirtualMachine" and starts and boots_slowly(spec.get("domain") or {}):
        slots.begin()
