"""Interfaces to the environment of the machines' reconciler."""

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
from handler.storage.node_disk import Image
from launcher.protocol import messages


class Objects(Protocol):
    """A cache of the objects of one kind on this node (an informer)."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, or None."""
        ...

    def remember(self, obj: Object) -> None:
        """Store the object that a write returned in the cache."""
        ...


class Api(Protocol):
    """The API client's call that writes a status."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace an object, and return the stored one. Raises StatusError, such as Conflict, or TransportError."""
        ...


class Node(Protocol):
    """Changes pods of this node's guests: their devices, claims, memory images and networks. All methods are idempotent."""

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        """Give the pod's device nodes to its user; return the guest's accelerator. Raises NotTheDevice, StorageHangs, OSError."""
        ...

    async def mount_claim(self, pod_uid: str, connection: Connection, attachment_uid: str, disk: Mapping[str, Any]) -> None:
        """Give an attachment pod's claim, image and overlay to a guest's pod. Raises NotOfThisPod, NotTheDevice, StorageHangs, OSError."""
        ...

    async def unmount_claim(self, pod_uid: str, connection: Connection, disk: Mapping[str, Any]) -> None:
        """Take a disk's claim, image and overlay from the guest's pod.

        Raises OSError EBUSY while the guest still uses the disk; also NotTheDevice, StorageHangs or another OSError.
        """
        ...

    async def give_claim(self, attachment_uid: str) -> None:
        """Give a block claim's device in an attachment pod to that pod's user. Raises NotOfThisPod, NotTheDevice, StorageHangs, OSError."""
        ...

    async def end_attachment(self, attachment_uid: str) -> None:
        """Kill an attachment pod's processes, and wait for their end. Raises StorageHangs, OSError."""
        ...

    async def mount_memory_image(self, pod_uid: str, connection: Connection, image: Image, new_bytes: int = 0) -> None:
        """Mount a memory image; if ``new_bytes``, the guest's memory, make a missing one. Raises Refused, StorageHangs, OSError."""
        ...

    def capabilities(self, accelerator: messages.Accelerator) -> str:
        """Return libvirt's cache of QEMU's capabilities for guests of this type; empty if there is none."""
        ...

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network, and return the guest's interfaces. Raises Unsupported, CommandFailed, Fault."""
        ...

    async def join_network(self, vm: Object, card: str, pod_uid: str, connection: Connection) -> Interface:
        """Set up one card that a running guest has or gets, and return it. Raises NotInPod, Unsupported, CommandFailed, Fault."""
        ...

    async def leave_network(self, vm: Object, card: str, pod_uid: str, connection: Connection) -> None:
        """Remove the network of a card that the guest gave back. Raises CommandFailed or Fault."""
        ...

    async def forward(self, connection: Connection, addresses: Sequence[str]) -> None:
        """Forward to these addresses what arrives at a pod after its guest left it. Raises CommandFailed."""
        ...


class Probes(Protocol):
    """Readiness and liveness probes of guests."""

    def verdict(self, vm: Mapping[str, Any], link: Link, address: str | None) -> Verdict:
        """Start the machine's missing probes; return the verdict so far. ``address``: the guest's; empty: none; None: unknown."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Stop the probes of pods that are gone."""
        ...


class Disks(Protocol):
    """The disks that plugins set up."""

    async def add(self, vm: Mapping[str, Any], pod_uid: str) -> Mapping[str, Served]:
        """Have plugins set up a pod's disks before its guest starts; return them by name. Raises DisksFault."""
        ...

    async def check(self, vm: Mapping[str, Any], pod_uid: str, unreachable: Collection[str]) -> DisksFault | None:
        """Return the problems of a running guest's disks, or None; the servers of ``unreachable`` ones do not answer."""
        ...

    def is_wrong(self, pod_uid: str) -> bool:
        """Return whether to call :meth:`check` again because of a problem."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods that are gone."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The environment of the machines' reconciler."""

    machines: Objects
    api: Api
    events: Events
    node: Node
    disks: Disks
    networks: PodNetworks
    """Shared with targets of migrations, which set up the networks of incoming guests."""
    links: Links
    clock: Clock
    probes: Probes
    limits: Limits = DEFAULT

    def emit(self, vm: Object, type_: EventType, reason: str, message: str) -> None:
        """Record an Event of a machine."""
        self.events.event(vm, VIRTUAL_MACHINES, type_, reason, message)
