"""Attaches network cards to the running guest, and detaches them."""

from __future__ import annotations

from collections.abc import Callable

from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import known, plugged_interfaces, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.watching import Watch
from launcher.protocol import messages


class InterfacePlugging:
    """Attaches and detaches one network card at a time."""

    def __init__(self, hypervisor: Hypervisor, watch: Watch, serve_addresses: Callable[[messages.Machine], None]) -> None:
        self._hypervisor = hypervisor
        self._watch = watch
        self._serve_addresses = serve_addresses
        self._record = watch.record

    async def handle(self, request: messages.AttachInterface | messages.DetachInterface) -> None:
        """Attach or detach a network card."""
        await (self.attach(request) if isinstance(request, messages.AttachInterface) else self.detach(request))

    async def attach(self, request: messages.AttachInterface) -> None:
        """Give the guest a network card, unless it has it, and answer its DHCP."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "attach a network card")
            if (machine := self._record.known.machine) is None:
                raise RequestRefused("Conflict", "this pod has no machine")
            machine = plugged_interfaces.machine_with(machine, request.card, request.interface)
            try:
                xml = plugged_interfaces.xml(machine, request.interface.name)
                self._serve_addresses(machine)
                with requests.errors_refused():
                    await self._hypervisor.attach_interface(self._record.known.name, request.interface.mac, xml)
            except (InvalidSpecification, OSError) as error:
                raise RequestRefused("Failed", str(error)) from error
            self._record.take(known.plugged, machine)
        await self._watch.look()

    async def detach(self, request: messages.DetachInterface) -> None:
        """Ask the guest to release a network card, unless it has none of this name. Refuse until it is released."""
        async with self._record.operation:
            requests.require_guest_that_stays(self._record.known, "detach a network card")
            machine = self._record.known.machine
            if machine is None or (interface := plugged_interfaces.interface_of(machine, request.name)) is None:
                return
            with requests.errors_refused():
                is_gone = await self._hypervisor.detach_interface(self._record.known.name, interface.mac)
            if not is_gone:
                raise RequestRefused("NotReady", f"the guest has not released interface {request.name!r} yet")
            machine = plugged_interfaces.machine_without(machine, request.name)
            self._serve_addresses(machine)  # virt-handler removes the bridge
            self._record.take(known.plugged, machine)
        await self._watch.look()
