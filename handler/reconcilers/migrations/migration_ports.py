"""Interfaces to the environment of the migrations' reconcilers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from controller.runtime.clock import Clock
from controller.runtime.validating import Events
from handler.pods.links import Links
from handler.reconcilers.guests import guest_ports
from handler.reconcilers.guests.guest_ports import Disks, Node, Objects
from handler.reconcilers.guests.pod_networks import PodNetworks
from handler.reconcilers.limits import DEFAULT, Limits
from handler.relays.incoming import Expected
from handler.relays.outgoing import Destination


class Api(guest_ports.Api, Protocol):
    """The API client's calls for a migration."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object. Raises StatusError."""


class Outgoing(Protocol):
    """The relays of migrations from this node."""

    async def open(self, migration_uid: str, pod_uid: str, destination: Destination) -> None:
        """Open a migration's relays once; return when its sockets exist. Raises TimeoutError, or ValueError for a wrong destination."""

    async def release(self, migration_uid: str, pod_uid: str, destination: Destination, *, paused: bool) -> None:
        """Tell the target's virt-handler to resume the guest, or (``paused``) to take it over paused.

        Raises OSError, TimeoutError or ValueError.
        """

    def close(self, migration_uid: str) -> None:
        """Begin to end a migration's relays, if any."""


class RelayServer(Protocol):
    """The server for relays of other nodes."""

    def expect(self, migration_uid: str, expected: Expected) -> None:
        """Admit this migration; calls ``expected.release`` when the source reports that the domain left."""

    def forget(self, migration_uid: str) -> None:
        """Stop admitting this migration."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The environment of both reconcilers."""

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
