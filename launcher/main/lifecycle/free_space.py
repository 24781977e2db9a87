"""Checks the free space of a guest's disks while some are full."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any

from launcher.domain.disk_origins import origins
from launcher.domain.values import InvalidSpecification
from launcher.main.decisions import full_disks, known, machines
from launcher.main.decisions.full_disks import FreeBytes, Tracked
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import files
from launcher.main.lifecycle.watching import Watch


def places(specification: Mapping[str, Any]) -> dict[str, PurePosixPath]:
    """Return a path on each disk's file system, by the disk's name, without disks that lack a path."""
    try:
        found = origins(specification)
    except InvalidSpecification:  # of XML, which need not have typed disks
        return {}
    return {
        each.name: PurePosixPath(files.overlay_directory(each)) if each.overlay else each.path
        for each in found
        if each.overlay or each.path.name
    }


def free(path: PurePosixPath) -> int | None:
    """Return a file system's free bytes for unprivileged users; None for a device, or if unknown."""
    try:
        if Path(path).is_block_device():
            return None
        figures = os.statvfs(path)
    except OSError:
        return None
    return figures.f_bavail * figures.f_frsize


def free_bytes(specification: Mapping[str, Any], names: Set[str]) -> FreeBytes:
    """Return the free bytes of these disks' file systems by disk, if known."""
    found = {name: free(path) for name, path in places(specification).items() if name in names}
    return {name: left for name, left in found.items() if left is not None}


Measure = Callable[[Mapping[str, Any], Set[str]], FreeBytes]


class FreeSpace:
    """Checks the free space of disks that are full or had errors."""

    def __init__(self, watch: Watch, times: Times = TIMES, measure: Measure = free_bytes) -> None:
        self._record = watch.record
        self._times = times
        self._measure = measure
        self._tracked = Tracked()

    async def run(self) -> None:
        """Call :meth:`look` repeatedly until cancelled."""
        while True:
            await asyncio.sleep(self._times.space_look)
            await self.look()

    async def look(self) -> None:
        """Record disks with errors that did not pause the guest, and suggest a resume to virt-handler if it may succeed."""
        now, machine = self._record.known, self._record.known.machine
        if machine is None or now.domain is None or not now.domain.active or now.leaving is not None:
            return
        full, time = full_disks.is_full(now.domain), asyncio.get_running_loop().time()
        tries = full_disks.next_tries(self._tracked.tries, time, full=full, tried=not now.status.has_room, times=self._times)
        self._tracked = dataclasses.replace(self._tracked, tries=tries)
        if not full and not now.domain.disk_faults:
            self._record.take(known.disks_failed, ())
            return
        found = full_disks.failing(now.domain, machines.disk_names(machine))
        free = await asyncio.to_thread(self._measure, machine.domain, found.names)
        stands = full and full_disks.is_full(self._record.known.domain)
        self._tracked, faults, offer = full_disks.outcome(self._tracked, found, free, time, stands=stands)
        self._record.take(known.disks_failed, faults)
        if offer:
            self._record.take(known.room_found)
