"""The world around the reconciler of virtual machines, as far as it uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from controller.runtime.clock import Clock
from controller.runtime.recorder import EventType
from controller.runtime.validating import Events
from handler.network.binding import Interface
from handler.pods.launcher import Connection
from handler.pods.links import Link, Links
from handler.probes.tally import Verdict
from handler.reconcilers.guests.pod_networks import PodNetworks
from handler.reconcilers.limits import DEFAULT, Limits
from handler.storage.adding import DisksFault
from launcher.protocol import messages


class Machines(Protocol):
    """The virtual machines of this node (an informer)."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one."""
        ...

    def remember(self, obj: Object) -> None:
        """Take in what a write returned."""
        ...


class Api(Protocol):
    """The call of the API client that writes a status."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace it."""
        ...


class Node(Protocol):
    """Preparation of a pod before its guest starts."""

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        """Give the pod's device nodes to its user; return what they let its guest run with. Raises NotTheDevice, StorageHangs, OSError."""
        ...

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network. Raises Unsupported, CommandFailed, Fault."""
        ...

    async def forward(self, connection: Connection, addresses: Sequence[str]) -> None:
        """Pass what comes to a pod that its guest has left on to a pod with these addresses. Raises CommandFailed."""
        ...


class Probes(Protocol):
    """Probes that ask guests whether they are ready and alive."""

    def verdict(self, vm: Mapping[str, Any], link: Link, address: str | None) -> Verdict:
        """Have the guest asked what its machine wants to know, and return what came of it so far."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Ask no more in pods that are gone."""
        ...


class Disks(Protocol):
    """The disks that plugins set up: ``handler.storage.adding.PluginDisks``."""

    async def add(self, vm: Mapping[str, Any], pod_uid: str) -> Mapping[str, Served]:
        """Have those of a pod set up whose guest does not run yet; return them by name. Raises DisksFault."""
        ...

    async def check(self, vm: Mapping[str, Any], pod_uid: str, silent: Collection[str]) -> DisksFault | None:
        """Return what is wrong with those of a guest that runs; the servers of ``silent`` ones do not answer."""
        ...

    def is_wrong(self, pod_uid: str) -> bool:
        """Return whether :meth:`check` has to be called again, because something was wrong."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The world around the reconciler of virtual machines."""

    machines: Machines
    api: Api
    events: Events
    node: Node
    disks: Disks
    networks: PodNetworks
    """Shared with the targets of migrations: what was set up for a guest that comes need not be set up again once it is here."""
    links: Links
    clock: Clock
    probes: Probes
    limits: Limits = DEFAULT

    def emit(self, vm: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an Event of a machine."""
        self.events.event(vm, VIRTUAL_MACHINES, type_, reason, message)
