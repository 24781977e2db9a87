"""Tells the running guest when block devices of claims grow, which no event reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from launcher.domain.disk_origins import Origin, origins
from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import Hypervisor, HypervisorError
from launcher.main.decisions import plugging
from launcher.main.decisions.known import Known
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import files
from launcher.main.lifecycle.record import Record
from launcher.protocol import messages

logger = logging.getLogger(__name__)
Measure = Callable[[Mapping[str, Any]], Mapping[str, int]]


def device_sizes(specification: Mapping[str, Any], size_of: Callable[[Origin], int | None] = files.device_size) -> dict[str, int]:
    """Return the bytes of the readable block devices that the guest writes to, by disk."""
    found: dict[str, int] = {}
    try:
        writable = [each for each in origins(specification) if not (each.read_only or each.overlaid)]
    except InvalidSpecification:  # of XML, which need not have typed disks
        return {}
    for origin in writable:
        try:
            size = size_of(origin)
        except OSError:
            continue
        if size is not None:
            found[origin.name] = size
    return found


class DeviceGrowth:
    """Tells the guest when its block devices grow."""

    def __init__(self, hypervisor: Hypervisor, record: Record, times: Times = TIMES, measure: Measure = device_sizes) -> None:
        self._hypervisor = hypervisor
        self._record = record
        self._times = times
        self._measure = measure
        self._told: dict[str, int] = {}

    async def run(self) -> None:
        """Check the sizes of block devices repeatedly until cancelled."""
        while True:
            await asyncio.sleep(self._times.devices_look)
            await self.look()

    async def look(self) -> None:
        """Tell the guest the block devices' sizes that changed since the last look, at first all."""
        if (machine := _settled(self._record.known)) is None:
            return
        targets = plugging.targets(machine)
        for name, size in (await asyncio.to_thread(self._measure, machine.domain)).items():
            if name not in targets or self._told.get(name) == size:
                continue
            try:
                await self._hypervisor.resize_disk(self._record.known.name, targets[name], size)
            except HypervisorError as error:
                logger.debug("cannot resize the disk yet, retrying", extra={"disk": name, "error": str(error)})
                continue
            self._told[name] = size


def _settled(now: Known) -> messages.Machine | None:
    is_here = now.domain is not None and now.domain.active and not (now.arriving or now.leaving or now.saving)
    return now.machine if is_here else None
