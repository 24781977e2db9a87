"""At most two test processes boot guests at once: a boot takes 5 s alone, and 8 to 25 s next to others.

A process holds a slot from its VM's creation until the guest is ready, its test ends, QEMU ran for ten seconds, or a minute passes. Its
further guests boot in the same slot; tiny guests, guests of manifest files and restarted ones need none.
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
BOOT_SECONDS: Final = 10.0
READY: Final = "GUEST-READY"
_LOOK_SECONDS: Final = 0.2


class Slots:
    def __init__(self, lock: Path, count: int = COUNT, held_seconds: float = HELD_SECONDS) -> None:
        self._files = [lock.with_name(f"{lock.name}.{number}") for number in range(count)]
        self._held_seconds = held_seconds
        self._mutex = threading.Lock()
        self._held: tuple[int, threading.Timer] | None = None

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def begin(self) -> None:
        with self._mutex:
            self._hold(self._held[0] if self._held else self._taken(), self._held_seconds)

    def end_soon(self, seconds: float = BOOT_SECONDS) -> None:
        with self._mutex:
            if self._held is not None:
                self._hold(self._held[0], seconds)

    def end(self) -> None:
        with self._mutex:
            self._release()

    def _hold(self, file: int, seconds: float) -> None:
        if self._held:
            self._held[1].cancel()
        timer = threading.Timer(seconds, lambda: self._end_of(timer))
        timer.daemon = True
        self._held = file, timer
        timer.start()

    def _end_of(self, timer: threading.Timer) -> None:
        with self._mutex:
            if self._held is not None and self._held[1] is timer:  # otherwise the slot was extended meanwhile
                self._release()

    def _release(self) -> None:
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
            time.sleep(_LOOK_SECONDS)  # flock(2) waits for one file only


SLOTS: Final = Slots(layout.cache() / ".guests-that-boot.lock")


def boots_slowly(domain: Mapping[str, Any]) -> bool:
    boot = (domain.get("firmware") or {}).get("kernelBoot") or {}
    return not str((boot.get("container") or {}).get("kernelPath", "")).endswith("tiny")


def begin_with(manifest: Mapping[str, Any], slots: Slots = SLOTS) -> None:
    """Wait until this process has a boot slot, if a VM of the manifest or List starts and boots slowly.

    ``slots.end`` or a timer frees it.
    """
    if manifest.get("kind") == "List":
        for each in manifest["items"]:
            begin_with(each, slots)
    spec = manifest.get("spec") or {}
    starts = spec.get("runStrategy", "Always") not in ("Halted", "Manual")
    if manifest.get("kind") == "VirtualMachine" and starts and boots_slowly(spec.get("domain") or {}):
        slots.begin()
