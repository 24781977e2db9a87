"""Preconditions and destinations of the streams ``console``, ``vnc`` and ``usbredir``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import consoles, graphics, redirected_devices
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.places import layout, streams
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec.described import domain_of
from apiserver.registry.generic.strategy import Connect, Destination, QueryParameter
from apiserver.registry.virt.handlers import Handlers, LocateHandler
from apiserver.registry.virt.revoking import RevokedNodes

CONNECTABLE: Final = frozenset({phases.RUNNING, phases.STOPPING})
"""Also guests that shut down: they still print."""


PARAMETERS: Final[Mapping[str, QueryParameter]] = {
    "console": QueryParameter("port", "integer", f"The serial port, from 0 to {layout.SERIAL_PORTS - 1}; the first when nothing is said."),
    "usbredir": QueryParameter(
        "slot", "integer", f"The slot for the device, from 0 to {layout.REDIRECTED_DEVICES - 1}; one that is free when nothing is said."
    ),
}
"""Query parameters by stream."""


def refuse(vm: Object, stream: streams.Stream, number: int = 0) -> str | None:
    """Return why a stream (console: with this port; usbredir: with this slot) is unavailable, or None."""
    domain = domain_of(vm)
    ports = len(consoles.defaulted(domain))
    if stream == "console" and not ports:
        return "it has no serial port (spec.domain.devices.consoles is empty)"
    if stream == "console" and number >= ports:
        return f"it has no serial port {number}: they are counted from 0, and spec.domain.devices.consoles has {ports}"
    if stream == "vnc" and not any(each.get("type") == "vnc" for each in graphics.defaulted(domain)):
        return "it has no display of type vnc (spec.domain.devices.graphics)"
    slots = redirected_devices.slots(domain)
    if stream == "usbredir" and not slots:
        return "it has no room for USB devices of clients (spec.domain.devices.redirectedDevices is not set)"
    if stream == "usbredir" and number >= slots:
        return f"it has no slot {number}: they are counted from 0, and spec.domain.devices.redirectedDevices.slots is {slots}"
    return absent(vm)


def absent(vm: Object) -> str | None:
    """Return why no guest is reachable, or None."""
    phase = phases.phase_of(vm)
    if phase not in CONNECTABLE:
        return f"it is not running (phase {phase or 'Pending'})"
    if not (vm.get("status") or {}).get("nodeName"):
        return "it is not known which node it runs on"
    return None


def check(vm: Object, stream: streams.Stream, number: int = 0) -> None:
    """Raise BadRequest if the stream is unavailable."""
    reason = refuse(vm, stream, number)
    if reason is None:
        return
    name = vm["metadata"]["name"]
    details = errors.Details(name=name, group=VIRTUAL_MACHINES.group, kind=VIRTUAL_MACHINES.plural)
    raise errors.BadRequest(f'cannot connect to {stream} of virtual machine "{name}": {reason}', details)


def _port(text: str) -> int:
    if (number := _digit(text)) is None:
        raise errors.BadRequest(f"port must be the number of a serial port, from 0 to {layout.SERIAL_PORTS - 1}")
    return number


def _slot(text: str | None) -> int | None:
    if text is not None and _digit(text) is None:
        raise errors.BadRequest(f"slot must be the number of a slot, from 0 to {layout.REDIRECTED_DEVICES - 1}")
    return _digit(text) if text is not None else None


def _digit(text: str) -> int | None:
    return int(text) if len(text) == 1 and text.isdecimal() and text.isascii() else None


def warnings(vm: Object) -> tuple[str, ...]:
    """Return a warning if the guest is paused: it neither echoes nor repaints."""
    paused = objects.condition(dig_vm(vm, "status", "conditions"), conditions.PAUSED) or {}
    if paused.get("status") != "True":
        return ()
    return (f'virtual machine "{vm["metadata"]["name"]}" is {conditions.paused(str(paused.get("message") or ""))}',)


class HandlerStream(Connect):
    """A stream served by virt-handler on the machine's node."""

    subprotocols: ClassVar[tuple[str, ...]] = (streams.SUBPROTOCOL,)
    ping_seconds: ClassVar[float] = streams.PING_SECONDS
    holder_header: ClassVar[str] = streams.HOLDER_HEADER

    def __init__(
        self, stream: streams.Stream, locate_handler: LocateHandler, tls: Callable[[], ssl.SSLContext], revoked: RevokedNodes
    ) -> None:
        """``tls`` returns the current context with our client certificate, renewed at run time."""
        self._stream = stream
        self._handlers = Handlers(locate_handler, tls, revoked)

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return virt-handler as destination of this stream; raise BadRequest if it is unavailable."""
        match self._stream:
            case "console":
                number = _port(query.get("port", "0"))
                name = streams.console(number)
            case "usbredir":
                slot = _slot(query.get("slot"))
                number, name = slot or 0, streams.usbredir(slot)
            case other:
                number, name = 0, other
        check(obj, self._stream, number)
        return await self._handlers.destination(obj, name)

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """Return the query parameter, a console's port or USB slot."""
        return (PARAMETERS[self._stream],) if self._stream in PARAMETERS else ()

    def warnings(self, obj: Object) -> tuple[str, ...]:
        """Return a warning if the guest is paused."""
        return warnings(obj)
