"""Estimates the remaining work from recorded durations and this machine's speed so far.

:data:`SECONDS` were recorded on two cores, each step alone.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping

SECONDS: Mapping[str, float] = {
    "etcd": 51, "kubernetes": 269, "containerd": 39, "coredns": 8, "pause": 1, "helm": 2,
    "packages": 25, "uv": 5, "plugin": 8, "base": 29, "wheels": 5,
    "virt-api": 12, "virt-controller": 10, "virt-handler": 14, "virt-launcher": 36, "source": 2, "image-etcd": 5,
    "testguest": 20, "debian": 60,
    "chart": 60, "machine": 10, "running": 15, "prompt": 20, "cloud-init": 130,
}  # fmt: skip
"""``chart`` includes the cluster's start and the import of images."""

FEWEST_SECONDS = 20.0
SLOWEST, QUICKEST = 8.0, 0.25
SHORTEST_REST = 0.05
"""Least remaining share of a running step."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """Recorded seconds: done, waiting, and running steps as (recorded, used).

    ``used`` counts the machine's seconds: each of two concurrent steps uses half of every second.
    """

    done: float
    used: float
    waiting: float
    running: tuple[tuple[float, float], ...] = ()


def speed(progress: Progress) -> float:
    """Return how many times slower this machine is than the recorded one, within limits; 1 until ``FEWEST_SECONDS`` are done."""
    if progress.done < FEWEST_SECONDS:
        return 1.0
    return min(max(progress.used / progress.done, QUICKEST), SLOWEST)


def left(progress: Progress) -> float:
    factor = speed(progress)
    rest = sum(max(recorded * factor - used, recorded * factor * SHORTEST_REST) for recorded, used in progress.running)
    return progress.waiting * factor + rest


def describe(progress: Progress) -> str:
    seconds = left(progress)
    amount = "under a minute" if seconds < 60 else f"about {math.ceil(seconds / 60)} min"
    return f"{amount} left" + ("" if progress.done >= FEWEST_SECONDS else ", if this machine is like the one of the records")


class Course:
    def __init__(self, expected: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        """``expected``: recorded seconds of each step that will run, by title."""
        self._clock = clock
        self._counted = clock()
        self._waiting = dict(expected)
        self._running: dict[str, _Step] = {}
        self._done = _Step(0.0)
        self._lock = threading.Lock()

    def begin(self, title: str) -> None:
        with self._lock:
            self._count()
            if title in self._waiting:
                self._running[title] = _Step(self._waiting.pop(title))

    def end(self, title: str) -> None:
        with self._lock:
            self._count()
            if (step := self._running.pop(title, None)) is not None:
                self._done.recorded += step.recorded
                self._done.used += step.used

    def describe(self) -> str:
        with self._lock:
            self._count()
            running = tuple((step.recorded, step.used) for step in self._running.values())
            progress = Progress(self._done.recorded, self._done.used, sum(self._waiting.values()), running)
        return describe(progress)

    def _count(self) -> None:
        """Add the time since the last count to the running steps, in equal shares."""
        now = self._clock()
        for step in self._running.values():
            step.used += (now - self._counted) / len(self._running)
        self._counted = now


@dataclasses.dataclass
class _Step:
    recorded: float
    used: float = 0.0
