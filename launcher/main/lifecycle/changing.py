"""Changes settings of the running guest's devices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import assert_never

from apiserver.apis.virt.hardware import disk_io_tune, interfaces
from apiserver.apis.virt.spec.live_changes import Change
from launcher.hypervisor.port import Device, Hypervisor, HypervisorError
from launcher.main.decisions import changes, known, plugging, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import blank_disks, file_sizes, files
from launcher.main.lifecycle.watching import Watch
from launcher.protocol import messages


class Changes:
    """Gives devices their desired settings, one at a time."""

    def __init__(self, hypervisor: Hypervisor, watch: Watch) -> None:
        self._hypervisor = hypervisor
        self._watch = watch
        self._record = watch.record

    async def change(self, request: messages.Change) -> None:
        """Give a device a setting, unless it has it.

        Raises:
            RequestRefused: there is no such device, no guest stays here, or libvirt failed.
        """
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "change the guest")
            machine = changes.machine_with(self._record.known.machine, request)
            try:
                await self._apply(request, machine)
            except HypervisorError as error:
                raise requests.refusal_of(error) from error
            self._record.take(known.changed, machine)
        await self._watch.look()

    async def _apply(self, request: messages.Change, machine: messages.Machine) -> None:
        name = self._record.known.name
        seen = await self._hypervisor.observe(name)
        wanted = changes.value_in(machine, Change(request.what, request.name))
        if request.what == "cpu.sockets":
            if seen is not None and seen.vcpus < int(wanted):
                await self._hypervisor.add_vcpus(name, int(wanted))
            return
        if request.what == "memory.guest":
            await self._hypervisor.request_memory(name, int(wanted))
            return
        devices = seen.devices if seen is not None else ()
        if request.what == "disk.size":
            await self._grow(request.name, machine, devices)
            return
        if (device := changes.device_of(machine, devices, request)) is None:
            raise RequestRefused("Failed", f"the guest does not have the {request.what.partition('.')[0]} {request.name!r}")
        if changes.setting_of(request.what, device) != wanted:
            await self._give(request, device)

    async def _grow(self, disk: str, machine: messages.Machine, devices: Iterable[Device]) -> None:
        """Grow the disk's file, and tell the guest."""
        target, alone = plugging.targets(machine)[disk], plugging.alone(machine, disk)
        if all(each.target != target for each in devices):
            raise RequestRefused("Failed", f"the guest does not have the disk {disk!r}")
        try:
            await asyncio.to_thread(blank_disks.create, alone)
            await asyncio.to_thread(file_sizes.prepare, alone)
            size = await asyncio.to_thread(file_sizes.size_of, alone)
        except (files.DiskUnusable, OSError) as error:
            raise RequestRefused("Failed", str(error)) from error
        await self._hypervisor.resize_disk(self._record.known.name, target, size)

    async def _give(self, request: messages.Change, device: Device) -> None:
        name = self._record.known.name
        match request.what:
            case "disk.ioTune":
                await self._hypervisor.limit_disk(name, device.target, disk_io_tune.limits(request.device))
            case "interface.state":
                await self._hypervisor.set_link(name, device.mac, up=interfaces.state_of(request.device) == "up")
            case "cpu.sockets" | "disk.size" | "memory.guest":
                pass  # not a setting of the device
            case _:
                assert_never(request.what)
