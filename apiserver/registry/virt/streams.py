"""Preconditions and destinations of the streams of machines."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import consoles, graphics, interfaces, redirected_devices
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from apiserver.apis.virt.places import layout, streams
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec.described import domain_of
from apiserver.registry.generic.strategy import Connect, Destination, QueryParameter
from apiserver.registry.virt import remedies
from apiserver.registry.virt.handlers import Handlers, LocateHandler
from apiserver.registry.virt.revoking import RevokedNodes

CONNECTABLE: Final = frozenset({phases.RUNNING, phases.STOPPING})
"""Also guests that shut down: they still print."""
_STARTING: Final = frozenset({phases.PENDING, phases.SCHEDULING, phases.SCHEDULED})
MAX_REASON: Final = 300


_PORT: Final = QueryParameter("port", "integer", f"The serial port, from 0 to {layout.SERIAL_PORTS - 1}; default: the first.")
PARAMETERS: Final[Mapping[str, tuple[QueryParameter, ...]]] = {
    "console": (_PORT,),
    "log": (_PORT, QueryParameter("follow", "boolean", "Also send new output, until the guest is off.")),
    "usbredir": (
        QueryParameter(
            "slot", "integer", f"The slot for the device, from 0 to {layout.REDIRECTED_DEVICES - 1}; default: the first free one."
        ),
    ),
}

SEGMENTS: Final = (
    QueryParameter("port", "integer", "The port of the guest, from 1 to 65535."),
    QueryParameter("protocol", "string", "tcp or udp; tcp when nothing is said."),
)
"""Parameters in the path of ``portforward``."""


_SERIAL: Final = frozenset({"console", "log"})
_DISPLAYS: Final = frozenset({"vnc", "spice"})


def refuse(vm: Object, stream: streams.Stream, number: int = 0) -> str | None:
    """Return why a stream (``number``: serial port or USB slot) is unavailable, or None."""
    domain = domain_of(vm)
    ports = len(consoles.defaulted(domain))
    if stream in _SERIAL and not ports:
        return "it has no serial port (spec.domain.devices.consoles is empty)"
    if stream in _SERIAL and number >= ports:
        return f"it has no serial port {number}: they are counted from 0, and spec.domain.devices.consoles has {ports}"
    if stream in _DISPLAYS and not any(each.get("type") == stream for each in graphics.defaulted(domain)):
        return f"it has no display of type {stream} (spec.domain.devices.graphics)"
    slots = redirected_devices.slots(domain)
    if stream == "usbredir" and not slots:
        return "it has no slots for USB devices of clients (set spec.domain.devices.redirectedDevices)"
    if stream == "usbredir" and number >= slots:
        return f"it has no slot {number}: they are counted from 0, and spec.domain.devices.redirectedDevices.slots is {slots}"
    return absent(vm)


def unreachable(vm: Object, forward: streams.Forward) -> str | None:
    """Return why this port is unreachable (no running guest, a paused one, no interface or a down one, not listed), or None."""
    own = next((each for each in interfaces.defaulted(domain_of(vm)) if interfaces.is_on_pods_network(each)), None)
    if own is None:
        return "it has no interface on the pod's network (spec.domain.devices.interfaces)"
    if own.get("state") == "down":
        return f"its interface {own['name']} is down"
    ports = interfaces.ports(own)
    if ports is not None and not any((each["protocol"].lower(), each["port"]) == (forward.protocol, forward.port) for each in ports):
        return f"its interface {own['name']} does not list {forward.protocol.upper()} port {forward.port} in ports"
    return absent(vm) or next(iter(warnings(vm)), None)


def absent(vm: Object) -> str | None:
    """Return why no guest is reachable, or None."""
    phase = phases.phase_of(vm)
    if phase not in CONNECTABLE:
        why = (conditions.false_condition(vm, conditions.READY) or {}).get("message") if phase in _STARTING else ""
        reason = f": {one_line(str(why), MAX_REASON)}" if why else ""
        return f"it is not running (phase {phase or 'Pending'}){reason}; {remedies.of_absent_guest(vm)}"
    if not (vm.get("status") or {}).get("nodeName"):
        return "its node is not known"
    return None


def check(vm: Object, stream: streams.Stream, number: int = 0) -> None:
    """Raise BadRequest if the stream is unavailable."""
    _raise(vm, stream, refuse(vm, stream, number))


def _raise(vm: Object, stream: str, reason: str | None) -> None:
    if reason is None:
        return
    name = vm["metadata"]["name"]
    details = errors.Details(name=name, group=VIRTUAL_MACHINES.group, kind=VIRTUAL_MACHINES.plural)
    raise errors.BadRequest(f'cannot connect to {stream} of virtual machine "{name}": {reason}', details)


def _port(text: str) -> int:
    if (number := _digit(text)) is None:
        raise errors.BadRequest(f"port must be the number of a serial port from 0 to {layout.SERIAL_PORTS - 1}")
    return number


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise errors.BadRequest("follow must be true or false")
    return text == "true"


def _slot(text: str | None) -> int | None:
    if text is not None and _digit(text) is None:
        raise errors.BadRequest(f"slot must be the number of a slot, from 0 to {layout.REDIRECTED_DEVICES - 1}")
    return _digit(text) if text is not None else None


def _forward(query: Mapping[str, str]) -> streams.Forward:
    port, protocol = streams.port_of(query["port"]), streams.protocol_of(query.get("protocol", "tcp"))
    if port is None:
        raise errors.BadRequest("port must be a port of the guest, from 1 to 65535")
    if protocol is None:
        raise errors.BadRequest("protocol must be tcp or udp")
    return streams.Forward(protocol, port)


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
        """``tls`` returns the current context with our client certificate."""
        self._stream = stream
        self.interactive = stream != "log"
        self._handlers = Handlers(locate_handler, tls, revoked)

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        """Return the ``Destination`` of this stream at virt-handler.

        Raises BadRequest for a wrong query or unavailable stream, ServiceUnavailable without virt-handler.
        """
        match self._stream:
            case "portforward":
                forward = _forward(query)
                _raise(obj, f"{forward.protocol.upper()} port {forward.port}", unreachable(obj, forward))
                return await self._handlers.destination(obj, forward.stream)
            case "console":
                number = _port(query.get("port", "0"))
                name = streams.console(number)
            case "log":
                number = _port(query.get("port", "0"))
                name = streams.log(number, follow=_truth(query.get("follow", "false")))
            case "usbredir":
                slot = _slot(query.get("slot"))
                number, name = slot or 0, streams.usbredir(slot)
            case other:
                number, name = 0, other
        check(obj, self._stream, number)
        return await self._handlers.destination(obj, name)

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """Return the stream's query parameters, such as a console's port."""
        return PARAMETERS.get(self._stream, ())

    @property
    def segments(self) -> tuple[QueryParameter, ...]:
        """Return the path parameters; only ``portforward`` has some."""
        return SEGMENTS if self._stream == "portforward" else ()

    @property
    def share(self) -> int:
        """Return the limit's factor: programs open several connections."""
        return streams.limit_factor(self._stream)

    def warnings(self, obj: Object) -> tuple[str, ...]:
        """Return a warning if the guest is paused."""
        return warnings(obj)

    def over(self, obj: Object) -> str:
        """Return a text if the guest is off, else empty: virt-handler only knows that the guest left the node."""
        return "" if phases.phase_of(obj) in phases.WITH_GUEST else "the guest is off"
