"""Attaches disks and network cards to the running guest, and detaches them; inserts and ejects media."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.places import layout
from launcher.domain.values import InvalidSpecification, segment
from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import known, plugged_interfaces, plugging, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import blank_disks, file_sizes, files, import_plans
from launcher.main.lifecycle.watching import Watch
from launcher.main.programs.children import Children, CommandFailed
from launcher.protocol import messages

Request = messages.AttachDisk | messages.DetachDisk | messages.AttachInterface | messages.DetachInterface
DOING: Final[Mapping[type[Request], str]] = {
    messages.AttachDisk: "attach a disk",
    messages.DetachDisk: "detach a disk",
    messages.AttachInterface: "attach a network card",
    messages.DetachInterface: "detach a network card",
}


class Plugging:
    """Attaches and detaches one device at a time. libvirt's devices say what was done before."""

    def __init__(
        self, hypervisor: Hypervisor, children: Children, watch: Watch, serve_addresses: Callable[[messages.Machine], None]
    ) -> None:
        """``serve_addresses`` gets the machine after each change of its cards, for their DHCP."""
        self._hypervisor = hypervisor
        self._children = children
        self._watch = watch
        self._serve_addresses = serve_addresses
        self._record = watch.record

    async def plug(self, request: Request) -> None:
        """Attach or detach a device, unless that was done before. Raises RequestRefused, also until the guest gives back a device."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, DOING[type(request)])
            if (machine := self._record.known.machine) is None:
                raise RequestRefused("Conflict", "this pod has no machine")
            with requests.errors_refused():
                machine = await self._plug(machine, request)
            self._record.take(known.plugged, machine)
        await self._watch.look()

    async def _plug(self, machine: messages.Machine, request: Request) -> messages.Machine:
        match request:
            case messages.AttachDisk():
                return await self._attach_disk(machine, request.disk)
            case messages.DetachDisk():
                return await self._detach_disk(machine, request.name)
            case messages.AttachInterface():
                return await self._attach_interface(machine, request)
            case messages.DetachInterface():
                return await self._detach_interface(machine, request.name)

    async def _attach_disk(self, machine: messages.Machine, disk: Mapping[str, Any]) -> messages.Machine:
        name, is_medium = str(disk["name"]), plugging.has_drive(machine, disk["name"])
        machine = plugging.machine_with(machine, disk)
        plugged = await self._prepared(machine, name)
        if is_medium:
            await self._change_medium(name, plugged)
        else:
            await self._hypervisor.attach_disk(self._record.known.name, plugged.target, plugged.disk, plugged.controllers)
        return machine

    async def _detach_disk(self, machine: messages.Machine, name: str) -> messages.Machine:
        if machine.domain_xml:
            return machine
        target, left = plugging.targets(machine).get(name), plugging.machine_without(machine, name)
        if plugging.has_drive(machine, name):
            await self._change_medium(name, await self._prepared(left, name))
            return left
        if target is not None and not await self._hypervisor.detach_disk(self._record.known.name, target):
            raise RequestRefused(
                "NotReady",
                f"the guest has not given back disk {name!r} yet; unmount it in the guest if it is in use; virt-handler asks again",
                (name,),
            )
        await asyncio.to_thread(files.remove_overlay, segment(name, "name"))
        return left

    async def _change_medium(self, name: str, plugged: plugging.Plugged) -> None:
        if not await self._hypervisor.change_medium(self._record.known.name, plugged.target, plugged.disk):
            raise RequestRefused("NotReady", f"the guest locks the tray of drive {name!r}: unmount its medium in the guest", (name,))

    async def _attach_interface(self, machine: messages.Machine, request: messages.AttachInterface) -> messages.Machine:
        machine = plugged_interfaces.machine_with(machine, request.card, request.interface)
        try:
            xml = plugged_interfaces.xml(machine, request.interface.name)
            self._serve_addresses(machine)
        except (InvalidSpecification, OSError) as error:
            raise RequestRefused("Failed", str(error)) from error
        await self._hypervisor.attach_interface(self._record.known.name, request.interface.mac, xml)
        return machine

    async def _detach_interface(self, machine: messages.Machine, name: str) -> messages.Machine:
        if (interface := plugged_interfaces.interface_of(machine, name)) is None:
            return machine
        if not await self._hypervisor.detach_interface(self._record.known.name, interface.mac):
            raise RequestRefused("NotReady", f"the guest has not given back interface {name!r} yet; virt-handler asks again")
        left = plugged_interfaces.machine_without(machine, name)
        self._serve_addresses(left)  # virt-handler removes the bridge
        return left

    async def _prepared(self, machine: messages.Machine, name: str) -> plugging.Plugged:
        alone = plugging.alone(machine, name)
        try:
            await asyncio.to_thread(_require_images, alone)
            await asyncio.to_thread(blank_disks.create, alone)
            await asyncio.to_thread(file_sizes.prepare, alone)
            found = await asyncio.to_thread(files.look, alone)
            await asyncio.to_thread(files.require_plugged, alone, found)
            await files.make_overlays(self._children, alone, found)
            return plugging.plugged(machine, name, found)
        except files.NotReady as error:
            raise RequestRefused("NotReady", str(error), error.disks, full=isinstance(error, files.NoRoom)) from error
        except (files.DiskUnusable, CommandFailed, InvalidSpecification, OSError) as error:
            raise RequestRefused("Failed", str(error)) from error


def _require_images(domain: Mapping[str, Any]) -> None:
    directories = import_plans.Directories(Path(layout.DISKS_DIRECTORY), Path(layout.DEVICES_DIRECTORY))
    if due := tuple(import_plans.missing(domain, directories)):
        raise files.NotReady(due, f"disk {due[0]!r}: its claim lacks a complete image; the machine's next start imports it")
