"""Ends the node's guests after the deadline, in its own thread: no request can delay it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from handler.guardian.processes import Process

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25


class Killer:
    """Ends the node's guests after the deadline. ``until`` and ``doomed`` may change at any time."""

    def __init__(self, clock: Callable[[], float], end: Callable[[Collection[str] | None], tuple[Process, ...]]) -> None:
        """``clock`` returns a time as ``until``; ``end`` kills the guests of these pods, or all (None), and returns those that ran."""
        self._clock = clock
        self._end = end
        self._stopped = threading.Event()
        self._dooming = threading.Lock()
        self.until: float | None = None
        """The deadline of all guests."""
        self.doomed: frozenset[str] = frozenset()
        """Pods that a sealed Lease lists: they end at once."""
        self.ended = threading.Event()
        """The last look found none of the ``doomed`` pods."""

    def run(self) -> None:
        """Look for guests that must end, every ``LOOK_SECONDS``, until :meth:`stop`; for its own thread."""
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:  # the next look may succeed, and without this thread no guest ends
                logger.exception("cannot end guests")

    def look(self) -> None:
        """Kill the guests that must end now: after ``until`` all, else the ``doomed`` ones. Sets ``ended`` if no ``doomed`` one is left."""
        until, doomed = self.until, self.doomed
        expired = until is not None and self._clock() >= until
        if not expired and not doomed:
            return
        found = self._end(None if expired else doomed)
        if found:
            why = "the promise of this node is over" if expired else "virt-controller sealed the Lease of this node"
            logger.warning("ended guests", extra={"why": why, "pods": sorted({each.pod_uid for each in found})})
        elif doomed:
            with self._dooming:
                if self.doomed is doomed:
                    self.ended.set()

    def doom(self, pods: frozenset[str]) -> None:
        """Have the next looks kill the guests of these pods, not earlier ones'; ``ended`` is set once none is left (never for no pods)."""
        with self._dooming:
            self.ended.clear()
            self.doomed = pods

    def stop(self) -> None:
        """Have :meth:`run` return at its next look; does not wait for it."""
        self._stopped.set()
