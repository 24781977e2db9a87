"""Free space of the disks of a guest: which of them have none, and when it is worth a try to let a guest go on that stands still for that.

A full file system says so. What is full under a block device, a quota or another machine's export says nothing, so that only a try tells,
and a guest that stops again at once is tried less and less often. Whether it may go on at all is virt-handler's to say, which knows whether
somebody paused the machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from apiserver.apis.meta.backoff import pause_seconds
from launcher.domain import disks, filling
from launcher.domain.disk_origins import origins
from launcher.domain.states import State
from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import NO_SPACE, DiskFault, Observation
from launcher.main import known
from launcher.main.watching import Watch
from launcher.protocol import messages

LOOK_SECONDS: Final = 5.0
ENOUGH_BYTES: Final = 1 << 20
"""On a file system with less, the guest's next request would stop it again."""
TRY_SECONDS: Final = (10.0, 300.0)
"""Between two tries: after the first that failed, and at most."""
LASTING_SECONDS: Final = 60.0
"""A guest that ran so long after a try has room."""
RECENT_SECONDS: Final = 600.0
"""Seconds for which an error is told of a guest that went on, where nothing says whether it would come again."""
_BETWEEN_SECONDS: Final = 2 * LOOK_SECONDS
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


def next_tries(tries: Tries, now: float, *, full: bool, tried: bool) -> Tries:
    """Return what is known of the tries after a look.

    Args:
        tries: what was known.
        now: the time.
        full: the guest stands still for want of room.
        tried: it was resumed since that was last offered.
    """
    if not full:
        return Tries() if now - tries.stood >= LASTING_SECONDS else Tries(tries.failures, offered=False, next=tries.next, stood=tries.stood)
    if not (tries.offered and tried):
        return Tries(tries.failures, tries.offered, tries.next, stood=now)
    first, most = TRY_SECONDS
    pause = pause_seconds(tries.failures + 1, first, most)
    return Tries(tries.failures + 1, offered=False, next=now + pause, stood=now)


def is_worth_a_try(tries: Tries, now: float, names: frozenset[str], free_bytes: FreeBytes) -> bool:
    """Return whether the guest, which stands still for want of room on these disks, may go on."""
    return now >= tries.next and all(free_bytes.get(each, ENOUGH_BYTES) >= ENOUGH_BYTES for each in names)


def full_disks(before: Mapping[str, float], faults: Mapping[str, DiskFault], free_bytes: FreeBytes, now: float) -> dict[str, float]:
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


def places(specification: Mapping[str, Any]) -> dict[str, PurePosixPath]:
    """Return a path on the file system where each disk's data lie, by name; none of disks that have no path, or of no specification."""
    try:
        found = origins(specification)
    except InvalidSpecification:  # of XML, which need not have typed disks
        return {}
    return {each.name: each.overlay.parent if each.overlay else each.path for each in found if each.overlay or each.path.name}


def free(path: PurePosixPath) -> int | None:
    """Return how many bytes a user has left on the file system of a directory or file; None for a device, or where that cannot be told."""
    try:
        if Path(path).is_block_device():
            return None
        figures = os.statvfs(path)
    except OSError:
        return None
    return figures.f_bavail * figures.f_frsize


class FreeSpace:
    """Looks for room while a guest has none."""

    def __init__(self, watch: Watch) -> None:
        self._record = watch.record
        self._tries = Tries()
        self._full: dict[str, float] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Take in which disks fail under a guest that goes on, and whether it is worth a try to let one go on that stands still."""
        now, machine = self._record.known, self._record.known.machine
        if machine is None or now.domain is None or not now.domain.active or now.leaving is not None:
            return
        full, time = is_full(now.domain), asyncio.get_running_loop().time()
        self._tries = next_tries(self._tries, time, full=full, tried=not now.status.has_room)
        if not full and not now.domain.disk_faults:
            self._record.take(known.disks_failed, ())
            return
        by_target = filling.names_by_target(machine.domain_xml) if machine.domain_xml else disks.names_by_target(machine.domain)
        faults = {by_target[each.disk]: each for each in now.domain.disk_faults if each.disk in by_target}
        failed = frozenset(by_target.get(target, target) for target, _ in now.domain.disk_errors)
        free_bytes = await asyncio.to_thread(_free_bytes, machine.domain, failed | faults.keys())
        self._full = full_disks(self._full, faults, free_bytes, time)
        self._record.take(known.disks_failed, faults_to_tell(faults, self._full, free_bytes, time))
        if (
            full
            and not self._tries.offered
            and is_full(self._record.known.domain)
            and is_worth_a_try(self._tries, time, failed, free_bytes)
        ):
            self._tries = Tries(self._tries.failures, offered=True, next=self._tries.next, stood=time)
            self._record.take(known.room_found)


def _free_bytes(specification: Mapping[str, Any], names: frozenset[str]) -> FreeBytes:
    found = {name: free(path) for name, path in places(specification).items() if name in names}
    return {name: room for name, room in found.items() if room is not None}
