"""Decides which disks are full, and when to try to resume a guest that they paused.

Full storage behind a block device, a quota or an NFS server is not visible, so only tries show it, ever less often. virt-handler
resumes the guest, unless a user paused the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.backoff import pause_seconds
from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, DiskFault, Observation
from launcher.main.decisions.times import TIMES, Times
from launcher.protocol import messages

ENOUGH_BYTES: Final = 1 << 20
"""With less free space, the guest's next request would pause it again."""
LASTING_SECONDS: Final = 60.0
"""A guest that ran this long after a try has space."""
RECENT_SECONDS: Final = 600.0
"""How long to report an error of a disk that did not pause its guest and may persist."""
_BETWEEN_SECONDS: Final = 2 * TIMES.space_look
_AT_ONCE: Final = 60.0
"""How long to report a full disk that has space again."""

FreeBytes = Mapping[str, int]
"""Free bytes of each disk's file system, if it has one."""


@dataclass(frozen=True, slots=True)
class Tries:
    """Tries to resume the guest. Times are in the event loop's seconds."""

    failures: int = 0
    offered: bool = False
    """A resume was offered, and has not happened yet."""
    next: float = 0.0
    stood: float = float("-inf")
    """When the guest was last seen paused by a full disk."""


def is_full(seen: Observation | None) -> bool:
    """Return whether the guest is paused, and only by full disks."""
    stands = seen is not None and seen.state is State.PAUSED and bool(seen.disk_errors)
    return stands and seen is not None and all(error == NO_SPACE for _, error in seen.disk_errors)


def next_tries(tries: Tries, now: float, *, full: bool, tried: bool, times: Times = TIMES) -> Tries:
    """Return the Tries after a check; a useless resume doubles the pause before the next offer.

    ``full``: a full disk pauses the guest. ``tried``: it was resumed since the last offer.
    """
    if not full:
        return Tries() if now - tries.stood >= LASTING_SECONDS else Tries(tries.failures, offered=False, next=tries.next, stood=tries.stood)
    if not (tries.offered and tried):
        return Tries(tries.failures, tries.offered, tries.next, stood=now)
    pause = pause_seconds(tries.failures + 1, *times.space_try)
    return Tries(tries.failures + 1, offered=False, next=now + pause, stood=now)


def is_worth_a_try(tries: Tries, now: float, names: frozenset[str], free_bytes: FreeBytes) -> bool:
    """Return whether a resume may help: the pause after the last try is over, and no disk of ``names`` is known full."""
    return now >= tries.next and all(free_bytes.get(each, ENOUGH_BYTES) >= ENOUGH_BYTES for each in names)


def full_since(before: Mapping[str, float], faults: Mapping[str, DiskFault], free_bytes: FreeBytes, now: float) -> dict[str, float]:
    """Return when each disk with an error from missing space was last seen full, by its name.

    QEMU reports this cause only if it pauses the guest. For other errors, the next check of the file system decides; errors between two
    checks have the same cause. ``before`` is the last result, ``now`` a time of the errors' clock.
    """
    found = {}
    for name, fault in faults.items():
        if fault.error == NO_SPACE or free_bytes.get(name, ENOUGH_BYTES) < ENOUGH_BYTES:
            found[name] = now
        elif name in before and fault.time <= before[name] + _BETWEEN_SECONDS:
            found[name] = before[name]
    return found


def faults_to_tell(
    faults: Mapping[str, DiskFault], full: Mapping[str, float], free_bytes: FreeBytes, now: float
) -> tuple[messages.DiskFault, ...]:
    """Return the disk errors to report, sorted by disk: recent ones, and those of disks that are known to have no free space now.

    ``full`` is the result of ``full_since``, ``now`` a time of the errors' clock. Errors of disks with new space end sooner.
    """
    found = []
    for name, fault in sorted(faults.items()):
        has_none = free_bytes.get(name, ENOUGH_BYTES) < ENOUGH_BYTES
        has_room = name in full and name in free_bytes and not has_none
        if has_none or now - fault.time < (_AT_ONCE if has_room else RECENT_SECONDS):
            found.append(messages.DiskFault(name, full=name in full, ignored=fault.ignored))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Failing:
    """A guest's failing disks, by their names in the machine."""

    faults: Mapping[str, DiskFault]
    """Last errors that did not pause the guest."""
    stopping: frozenset[str]
    """Disks with errors that paused the guest."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all failing disks."""
        return self.stopping | self.faults.keys()


def failing(seen: Observation, by_target: Mapping[str, str]) -> Failing:
    """Return the last errors of disks in ``by_target``, which names them by libvirt's names, and which disks paused the guest.

    A disk that paused the guest may be missing there; then it has libvirt's name.
    """
    return Failing(
        {by_target[each.disk]: each for each in seen.disk_faults if each.disk in by_target},
        frozenset(by_target.get(target, target) for target, _ in seen.disk_errors),
    )


@dataclass(frozen=True, slots=True)
class Tracked:
    """What one check of the failing disks hands to the next."""

    tries: Tries = Tries()
    full: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The result of ``full_since``."""


def outcome(
    tracked: Tracked, found: Failing, free: FreeBytes, now: float, *, stands: bool
) -> tuple[Tracked, tuple[messages.DiskFault, ...], bool]:
    """Return the next Tracked, the disk errors to report, and whether to suggest a resume.

    Before the call, put the result of :func:`next_tries` into ``tracked``. ``stands``: only full disks still pause the guest.
    """
    full = full_since(tracked.full, found.faults, free, now)
    offer = stands and not tracked.tries.offered and is_worth_a_try(tracked.tries, now, found.stopping, free)
    tries = dataclasses.replace(tracked.tries, offered=True, stood=now) if offer else tracked.tries
    return Tracked(tries, full), faults_to_tell(found.faults, full, free, now), offer
