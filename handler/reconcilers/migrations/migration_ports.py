"""The world around the reconcilers of migrations, as far as they use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from controller.runtime.clock import Clock
from controller.runtime.validating import Events
from handler.pods.links import Links
from handler.reconcilers.guests.guest_ports import Disks, Node
from handler.reconcilers.guests.pod_networks import PodNetworks
from handler.reconcilers.limits import DEFAULT, Limits
from handler.relays.incoming import Expected
from handler.relays.outgoing import Destination


class Api(Protocol):
    """The calls of the API client that a migration needs."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace it."""


class Objects(Protocol):
    """An informer."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object."""

    def remember(self, obj: Object) -> None:
        """Take in what a write returned."""


class Outgoing(Protocol):
    """The relays that run."""

    async def open(self, migration_uid: str, pod_uid: str, destination: Destination) -> None:
        """Relay."""

    async def release(self, migration_uid: str, pod_uid: str, destination: Destination, *, paused: bool) -> None:
        """Have the target's handler release the domain."""

    def close(self, migration_uid: str) -> None:
        """End it."""


class RelayServer(Protocol):
    """The server for relays of other nodes."""

    def expect(self, migration_uid: str, expected: Expected) -> None:
        """Let this migration through from its source node; ``expected.release`` is called when that says that the domain left."""

    def forget(self, migration_uid: str) -> None:
        """Let it through no more."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The world around both reconcilers."""

    api: Api
    migrations: Objects
    machines: Objects
    events: Events
    node: Node
    disks: Disks
    networks: PodNetworks
    links: Links
    clock: Clock
    limits: Limits = DEFAULT
