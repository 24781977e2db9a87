"""Disks without free space: which they are, and when it is worth a try to let a guest go on that stands still for them.

A full file system says so. What is full under a block device, a quota or another machine's export says nothing, so that only a try tells,
and a guest that stops again at once is tried less and less often. Whether it may go on at all is virt-handler's to say, which knows whether
somebody paused the machine.
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
"""On a file system with less, the guest's next request would stop it again."""
LASTING_SECONDS: Final = 60.0
"""A guest that ran so long after a try has room."""
RECENT_SECONDS: Final = 600.0
"""Seconds for which an error is told of a guest that went on, where nothing says whether it would come again."""
_BETWEEN_SECONDS: Final = 2 * TIMES.space_look
"""Two looks are no further from each other."""
_AT_ONCE: Final = 60.0
"""Seconds for which an error is told for want of room, though there is some: it was too little, or is there only now."""

FreeBytes = Mapping[str, int]
"""Bytes that are free where disks lie, by their names; none of disks that lie on no file system."""


@dataclass(frozen=True, slots=True)
class Tries:
    """Tries to let the guest go on. Times are in the event loop's seconds."""

    failures: int = 0
    offered: bool = False
    """It was said that there is room, and nothing came of it yet."""
    next: float = 0.0
    """No earlier than this."""
    stood: float = float("-inf")
    """Time at which the guest was last seen to stand still for want of room."""


def is_full(seen: Observation | None) -> bool:
    """Return whether the guest stands still because the storage of disks has no room, and for nothing else."""
    stands = seen is not None and seen.state is State.PAUSED and bool(seen.disk_errors)
    return stands and seen is not None and all(error == NO_SPACE for _, error in seen.disk_errors)


def next_tries(tries: Tries, now: float, *, full: bool, tried: bool, times: Times = TIMES) -> Tries:
    """Return what is known of the tries after a look.

    Args:
        tries: what was known.
        now: the time.
        full: the guest stands still for want of room.
        tried: it was resumed since that was last offered.
        times: how long is waited for what.
    """
    if not full:
        return Tries() if now - tries.stood >= LASTING_SECONDS else Tries(tries.failures, offered=False, next=tries.next, stood=tries.stood)
    if not (tries.offered and tried):
        return Tries(tries.failures, tries.offered, tries.next, stood=now)
    pause = pause_seconds(tries.failures + 1, *times.space_try)
    return Tries(tries.failures + 1, offered=False, next=now + pause, stood=now)


def is_worth_a_try(tries: Tries, now: float, names: frozenset[str], free_bytes: FreeBytes) -> bool:
    """Return whether the guest, which stands still for want of room on these disks, may go on."""
    return now >= tries.next and all(free_bytes.get(each, ENOUGH_BYTES) >= ENOUGH_BYTES for each in names)


def full_since(before: Mapping[str, float], faults: Mapping[str, DiskFault], free_bytes: FreeBytes, now: float) -> dict[str, float]:
    """Return those disks whose last error was for want of room, and when they were last seen without.

    QEMU says which errors those are only of a guest that it stops; of others the file system has to, at the look that follows. An error
    between that look and the next one was for want of room, too.

    Args:
        before: what this returned at the last look.
        faults: the last error of each disk, by its name.
        free_bytes: what is free now.
        now: a time of the errors' clock.
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
    """Return those errors, by name of the disk, that are still worth telling; ``now`` is a time of the errors' clock."""
    found = []
    for name, fault in sorted(faults.items()):
        has_none = free_bytes.get(name, ENOUGH_BYTES) < ENOUGH_BYTES
        has_room = name in full and name in free_bytes and not has_none
        if has_none or now - fault.time < (_AT_ONCE if has_room else RECENT_SECONDS):
            found.append(messages.DiskFault(name, full=name in full, ignored=fault.ignored))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Failing:
    """Disks of a guest that fail, by the names that the machine has for them."""

    faults: Mapping[str, DiskFault]
    """Last errors under a guest that went on."""
    stopping: frozenset[str]
    """Those by whose errors the guest stands still."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all of them."""
        return self.stopping | self.faults.keys()


def failing(seen: Observation, by_target: Mapping[str, str]) -> Failing:
    """Return which disks fail; ``by_target`` has their names by libvirt's. Faults of a disk that the machine does not have are none."""
    return Failing(
        {by_target[each.disk]: each for each in seen.disk_faults if each.disk in by_target},
        frozenset(by_target.get(target, target) for target, _ in seen.disk_errors),
    )


@dataclass(frozen=True, slots=True)
class Tracked:
    """State kept from one look to the next."""

    tries: Tries = Tries()
    full: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """As ``full_since`` returns it."""


def outcome(
    tracked: Tracked, found: Failing, free: FreeBytes, now: float, *, stands: bool
) -> tuple[Tracked, tuple[messages.DiskFault, ...], bool]:
    """Return what is kept of a look, the faults to tell, and whether the guest is to be offered to go on.

    Args:
        tracked: what was kept, with the tries as they are since this look began.
        found: the disks that fail.
        free: what is free now.
        now: the time.
        stands: the guest still stands still for want of room alone.
    """
    full = full_since(tracked.full, found.faults, free, now)
    offer = stands and not tracked.tries.offered and is_worth_a_try(tracked.tries, now, found.stopping, free)
    tries = dataclasses.replace(tracked.tries, offered=True, stood=now) if offer else tracked.tries
    return Tracked(tries, full), faults_to_tell(found.faults, full, free, now), offer
