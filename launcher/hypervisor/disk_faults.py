"""Errors of disks that stopped no guest: the last one of each disk.

A guest that writes in a loop has thousands of them in a second, so only news and a sign of life now and then are worth a look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.hypervisor.port import NO_SPACE, DiskFault

NEWS_SECONDS: Final = 10.0
"""After so long the same error of the same disk is worth a look again."""
_OUR_WORDS: Final = {"enospc": NO_SPACE}
"""By libvirt's reason in ``VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON``, which is empty for any other error."""


class DiskFaults:
    """The last error of each disk that did not stop its guest."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, DiskFault]] = {}
        """By domain and by the alias of the disk, by which libvirt's events name it."""
        self._reported: dict[tuple[str, str], float] = {}
        """Times at which an error of a disk was last worth a look."""

    def take(self, domain: str, alias: str, reason: str, *, ignored: bool, now: float) -> bool:
        """Take in one error; return whether somebody should look at the domain.

        Args:
            domain: the name of the domain.
            alias: libvirt's alias of the disk; empty: libvirt does not know whose error it was.
            reason: libvirt's word for it.
            ignored: the guest was told that all is well.
            now: seconds of a clock that only grows.
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
        """Return the last errors of a domain's disks, by libvirt's names of them; ``targets`` has these by the disks' aliases.

        Others may be taken in meanwhile, in the thread of libvirt's events.
        """
        last = dict(self._last.get(domain, {}))  # in one step of the interpreter: what is gone through must not grow
        found = ((targets[alias], each) for alias, each in last.items() if alias in targets)
        return tuple(DiskFault(target, each.error, each.ignored, each.time) for target, each in sorted(found, key=lambda pair: pair[0]))
