"""Changes settings of the running guest's devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

from apiserver.apis.virt.hardware import disk_io_tune, interfaces
from apiserver.apis.virt.spec.live_changes import Change
from launcher.hypervisor.port import Device, Hypervisor
from launcher.main.decisions import changes, known, plugging, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import blank_disks, file_sizes, files
from launcher.main.lifecycle.watching import Watch
from launcher.protocol import messages


class Changes:
    """Changes the running guest's processors, memory, disks and cards, one request at a time."""

    def __init__(self, hypervisor: Hypervisor, watch: Watch) -> None:
        self._hypervisor = hypervisor
        self._watch = watch
        self._record = watch.record

    async def change(self, request: messages.Change) -> None:
        """Give the guest the requested processors, memory or device's setting, unless it has that. Raises RequestRefused."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "change the guest")
            machine = changes.machine_with(self._record.known.machine, request)
            with requests.errors_refused():
                await self._apply(request, machine)
            self._record.take(known.changed, machine)
        await self._watch.look()

    async def _apply(self, request: messages.Change, machine: messages.Machine) -> None:
        wanted = changes.value_in(machine, Change(request.what, request.name))
        match request.what:
            case "cpu.sockets":
                await self._add_vcpus(int(wanted))
            case "memory.guest":
                await self._hypervisor.request_memory(self._record.known.name, int(wanted))
            case "disk.size":
                await self._grow(request.name, machine)
            case "disk.ioTune" | "interface.state":
                await self._give(request, machine, wanted)
            case _:
                assert_never(request.what)

    async def _add_vcpus(self, count: int) -> None:
        seen = await self._hypervisor.observe(self._record.known.name)
        if seen is not None and seen.vcpus < count:
            await self._hypervisor.add_vcpus(self._record.known.name, count)

    async def _grow(self, disk: str, machine: messages.Machine) -> None:
        target, alone = plugging.targets(machine)[disk], plugging.alone(machine, disk)
        if all(each.target != target for each in await self._devices()):
            raise _absent("disk", disk)
        try:
            await asyncio.to_thread(blank_disks.create, alone)
            await asyncio.to_thread(file_sizes.prepare, alone)
            size = await asyncio.to_thread(file_sizes.size_of, alone)
        except (files.DiskUnusable, OSError) as error:
            raise RequestRefused("Failed", str(error)) from error
        await self._hypervisor.resize_disk(self._record.known.name, target, size)

    async def _give(self, request: messages.Change, machine: messages.Machine, wanted: str) -> None:
        name = self._record.known.name
        if (device := changes.device_of(machine, await self._devices(), request)) is None:
            raise _absent(request.what.partition(".")[0], request.name)
        if changes.setting_of(request.what, device) == wanted:
            return
        if request.what == "disk.ioTune":
            await self._hypervisor.limit_disk(name, device.target, disk_io_tune.limits(request.device))
        else:
            await self._hypervisor.set_link(name, device.mac, up=interfaces.state_of(request.device) == "up")

    async def _devices(self) -> Sequence[Device]:
        seen = await self._hypervisor.observe(self._record.known.name)
        return seen.devices if seen is not None else ()


def _absent(kind: str, name: str) -> RequestRefused:
    return RequestRefused("Failed", f"the guest does not have the {kind} {name!r}")
