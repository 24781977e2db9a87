"""Attaches disks to the running guest, and detaches them; inserts and ejects media."""

from __future__ import annotations

import asyncio

from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import known, plugging, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import blank_disks, file_sizes, files
from launcher.main.lifecycle.watching import Watch
from launcher.protocol import messages


class Plugging:
    """Attaches and detaches one disk at a time. libvirt's devices say what was done before."""

    def __init__(self, hypervisor: Hypervisor, watch: Watch) -> None:
        self._hypervisor = hypervisor
        self._watch = watch
        self._record = watch.record

    async def handle(self, request: messages.AttachDisk | messages.DetachDisk) -> None:
        """Attach or detach a disk."""
        await (self.attach(request) if isinstance(request, messages.AttachDisk) else self.detach(request))

    async def attach(self, request: messages.AttachDisk) -> None:
        """Give the guest a disk or medium, unless it has it."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "attach a disk")
            if (machine := self._record.known.machine) is None:
                raise RequestRefused("Conflict", "this pod has no machine")
            name = str(request.disk["name"])
            is_medium = plugging.has_drive(machine, name)
            machine = plugging.machine_with(machine, request.disk)
            plugged = await self._prepared(machine, name)
            with requests.errors_refused():
                if is_medium:
                    await self._change_medium(name, plugged)
                else:
                    await self._hypervisor.attach_disk(self._record.known.name, plugged.target, plugged.disk, plugged.controllers)
            self._record.take(known.plugged, machine)
        await self._watch.look()

    async def detach(self, request: messages.DetachDisk) -> None:
        """Ask the guest to release a disk, or a drive's medium, unless it has none of this name. Refuse until it is released."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "detach a disk")
            machine = self._record.known.machine
            if machine is None or request.name not in plugging.targets(machine):
                return
            left = plugging.machine_without(machine, request.name)
            with requests.errors_refused():
                if plugging.has_drive(machine, request.name):
                    await self._change_medium(request.name, await self._prepared(left, request.name))
                else:
                    await self._detach(request.name, plugging.targets(machine)[request.name])
            self._record.take(known.plugged, left)
        await self._watch.look()

    async def _detach(self, name: str, target: str) -> None:
        if not await self._hypervisor.detach_disk(self._record.known.name, target):
            raise RequestRefused("NotReady", f"the guest has not released disk {name!r} yet", (name,))

    async def _change_medium(self, name: str, plugged: plugging.Plugged) -> None:
        if not await self._hypervisor.change_medium(self._record.known.name, plugged.target, plugged.disk):
            raise RequestRefused("NotReady", f"the guest locks the tray of drive {name!r}: unmount its medium in the guest", (name,))

    async def _prepared(self, machine: messages.Machine, name: str) -> plugging.Plugged:
        alone = plugging.alone(machine, name)
        try:
            await asyncio.to_thread(blank_disks.create, alone)
            await asyncio.to_thread(file_sizes.prepare, alone)
            return plugging.plugged(machine, name, await asyncio.to_thread(files.look, alone))
        except files.NotReady as error:
            raise RequestRefused("NotReady", str(error), error.disks, full=isinstance(error, files.NoRoom)) from error
        except (files.DiskUnusable, InvalidSpecification, OSError) as error:
            raise RequestRefused("Failed", str(error)) from error
