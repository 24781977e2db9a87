"""The streams ``console`` and ``vnc``: who may connect to what is decided here, the bytes are the machinery's."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import conditions, names, phases, streams
from apiserver.apis.virt.hardware import consoles, graphics
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from apiserver.registry.generic.strategy import Connect, Destination
from apiserver.registry.virt.revoking import RevokedNodes

CONNECTABLE: Final = frozenset({phases.RUNNING, phases.STOPPING})
"""A guest that shuts down still has something to say."""

LocateHandler = Callable[[str], Awaitable[tuple[str, int]]]
"""Returns host and port of virt-handler on the node of this name; raises ServiceUnavailable while it cannot be found."""


def refuse(vm: Object, stream: streams.Stream) -> str | None:
    """Say why nobody can connect to this stream now; None: one can."""
    domain = vm["spec"].get("domain") or {}
    if stream == "console" and not consoles.meant(domain):
        return "it has no serial port (spec.domain.devices.consoles is empty)"
    if stream == "vnc" and not any(each.get("type") == "vnc" for each in graphics.meant(domain)):
        return "it has no display of type vnc (spec.domain.devices.graphics)"
    phase = phases.phase_of(vm)
    if phase not in CONNECTABLE:
        return f"it is not running (phase {phase or 'Pending'})"
    if not (vm.get("status") or {}).get("nodeName"):
        return "it is not known which node it runs on"
    return None


def check(vm: Object, stream: streams.Stream) -> None:
    """Raise BadRequest, with the reason, unless one can connect."""
    reason = refuse(vm, stream)
    if reason is None:
        return
    name = vm["metadata"]["name"]
    details = errors.Details(name=name, group=VIRTUAL_MACHINES.group, kind=VIRTUAL_MACHINES.plural)
    raise errors.BadRequest(f'cannot connect to {stream} of virtual machine "{name}": {reason}', details)


def warnings(vm: Object) -> tuple[str, ...]:
    """Return what whoever connects should know: a guest that stands still neither echoes nor repaints."""
    paused = objects.condition(objects.dig(vm, "status", "conditions"), conditions.PAUSED) or {}
    if paused.get("status") != "True":
        return ()
    return (f'virtual machine "{vm["metadata"]["name"]}" is {conditions.paused(str(paused.get("message") or ""))}',)


class HandlerStream(Connect):
    """A stream that virt-handler of the machine's node serves."""

    subprotocols: ClassVar[tuple[str, ...]] = (streams.SUBPROTOCOL,)
    ping_seconds: ClassVar[float] = streams.PING_SECONDS
    holder_header: ClassVar[str] = streams.HOLDER_HEADER

    def __init__(
        self, stream: streams.Stream, locate_handler: LocateHandler, tls: Callable[[], ssl.SSLContext], revoked: RevokedNodes
    ) -> None:
        """``tls`` returns the present context with our client certificate: certificates are renewed while we run."""
        self._stream = stream
        self._locate_handler = locate_handler
        self._tls = tls
        self._revoked = revoked

    async def locate(self, obj: Object) -> Destination:
        """Return virt-handler's address for this stream of ``obj``, and the name of its node that it has to prove."""
        check(obj, self._stream)
        node = str(obj["status"]["nodeName"])
        try:
            server_name = names.handler_server_name(node)
        except ValueError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        if self._revoked.is_revoked(node):
            raise errors.ServiceUnavailable(f'node "{node}" is revoked: nothing of it is believed')
        host, port = await self._locate_handler(node)
        metadata = obj["metadata"]
        path = streams.handler_path(metadata["namespace"], metadata["name"], metadata["uid"], self._stream)
        shown = f"[{host}]" if ":" in host else host
        return Destination(f"https://{shown}:{port}{path}", server_name, self._tls(), self._revoked.of_node(node))

    def warnings(self, obj: Object) -> tuple[str, ...]:
        """Return that the guest is paused, if it is."""
        return warnings(obj)
