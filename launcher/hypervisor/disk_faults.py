"""Disk errors that did not pause their guest: the last one of each disk.

A guest can cause thousands per second, so only new errors, and repeated ones from time to time, trigger a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.hypervisor.port import NO_SPACE, DiskFault

NEWS_SECONDS: Final = 10.0
"""Interval at which a repeated error is reported again."""
_OUR_WORDS: Final = {"enospc": NO_SPACE}
"""By libvirt's reason in ``VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON``, which is empty for other errors."""


class DiskFaults:
    """The last fault of each disk."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, DiskFault]] = {}
        """By domain and alias of the disk, as in libvirt's events."""
        self._reported: dict[tuple[str, str], float] = {}
        """Last report of an error, by domain and alias."""

    def take(self, domain: str, alias: str, reason: str, *, ignored: bool, now: float) -> bool:
        """Record an error of a disk; return whether to report it: it is new, or was last reported at least ``NEWS_SECONDS`` ago.

        An empty ``alias``, of a disk unknown to libvirt, only returns False. ``ignored``: the guest saw a success. ``now`` is monotonic
        time in seconds.
        """
        if not alias:
            return False
        last = self._last.setdefault(domain, {})
        before, fault = last.get(alias), DiskFault("", _OUR_WORDS.get(reason, "I/O error"), ignored, now)
        last[alias] = fault
        is_news = before is None or (before.error, before.ignored) != (fault.error, fault.ignored)
        if is_news or now - self._reported[domain, alias] >= NEWS_SECONDS:
            self._reported[domain, alias] = now
            return True
        return False

    def of(self, domain: str, targets: Mapping[str, str]) -> tuple[DiskFault, ...]:
        """Return the last error of each of a domain's disks, with libvirt's target name; ``targets`` has these by alias."""
        last = dict(self._last.get(domain, {}))  # the thread of libvirt's events may add errors; a copy is one step of the interpreter
        found = ((targets[alias], each) for alias, each in last.items() if alias in targets)
        return tuple(DiskFault(target, each.error, each.ignored, each.time) for target, each in sorted(found, key=lambda pair: pair[0]))
