"""Indexes of the objects that the loops read, and the informers that keep them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from apiserver.apis.meta.objects import NamespacedName, Object, dig, is_true, namespace_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.lifecycle import conditions, evictions
from apiserver.apis.virt.places import names, network
from apiserver.apis.virt.spec.described import domain_of
from apiserver.client.informer import Informer
from controller.reconcilers import disk_claims, precedence
from controller.reconcilers.pods import ownership, pod_state

MAX_NAMESAKES: Final = 64
"""Machines that are looked at of those that share something: a tenant can give ten thousand the same MAC address."""
BY_OWNER: Final = "owner"
"""Index of pods: the :class:`ownership.Owner` that controls them."""
BY_MACHINE: Final = "machine"
"""Index of Migrations: the NamespacedName of the virtual machine."""
BY_STATE: Final = "state"
"""Index of Migrations: :data:`UNFINISHED`, of those that are."""
UNFINISHED: Final = "unfinished"
BY_STORAGE: Final = "storage"
"""Index of machines: each :data:`Storage` of theirs."""
BY_HELD_STORAGE: Final = "held-storage"
"""Index of machines: the same, of those for which others with it may have to wait."""
BY_MAC: Final = "mac"
"""Index of machines: the :class:`Mac` of each interface that has one given."""
BY_WANTED_NODE: Final = "wanted-node"
"""Index of machines: the node that ``spec.nodeName`` names."""
BY_AGE: Final = "age"
"""Index of machines: :data:`OUTDATED`, of those that say that their launcher is."""
OUTDATED: Final = "outdated"
BY_NODE: Final = "node"
"""Index of pods: the node they are bound to."""


@dataclass(frozen=True, slots=True)
class ServerDisk:
    """A disk of a server, as a namespace names it."""

    namespace: str
    digest: str


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file of a node, which is no namespace's."""

    path: str


Storage: TypeAlias = NamespacedName | ServerDisk | NodeFile
"""Places of a machine's data; a NamespacedName is a PersistentVolumeClaim's."""


class Mac(NamedTuple):
    """A MAC address, which is to be unique in its namespace."""

    namespace: str
    address: str


@dataclass(frozen=True, slots=True)
class Informers:
    """Informers that the loops of machines, migrations and upgrades read."""

    vms: Informer
    migrations: Informer
    pods: Informer
    claims: Informer
    nodes: Informer
    leases: Informer
    """Of the virt-handlers."""

    def migrations_of(self, machine: NamespacedName) -> Iterable[Object]:
        """Return the Migrations of a machine's name."""
        return self.migrations.by_index(BY_MACHINE, machine)

    def unfinished_migrations(self) -> Iterable[Object]:
        """Return the Migrations of all machines that are to be done or under way."""
        return self.migrations.by_index(BY_STATE, UNFINISHED)

    def pods_of(self, owner: ownership.Owner) -> Iterable[Object]:
        """Return the pods that a machine controls."""
        return self.pods.by_index(BY_OWNER, owner)

    def machines_with(self, storage: Storage) -> Iterable[Object]:
        """Return the machines that name this storage."""
        return self.vms.by_index(BY_STORAGE, storage)

    def holders_of(self, storage: Storage) -> Iterable[Object]:
        """Return those of them that hold it (:func:`controller.reconcilers.precedence.holds`), of many some."""
        return self.vms.by_index(BY_HELD_STORAGE, storage, MAX_NAMESAKES)

    def machines_with_mac(self, mac: Mac) -> Iterable[Object]:
        """Return the machines of which an interface has this address, of many some."""
        return self.vms.by_index(BY_MAC, mac, MAX_NAMESAKES)


def machine_of(migration: Object) -> list[NamespacedName]:
    """Index function for ``BY_MACHINE``."""
    return [evictions.machine_of(migration)]


def node_of_pod(pod: Object) -> list[str]:
    """Index function for ``BY_NODE``."""
    node = pod_state.node_of(pod)
    return [node] if node else []


def wanted_node_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_WANTED_NODE``."""
    node = dig(vm, "spec", "nodeName")
    return [node] if node and isinstance(node, str) else []


def age_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_AGE``, also of machines that are not sound."""
    found = dig(vm, "status", "conditions")
    is_sound = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return [OUTDATED] if is_sound and is_true(found, conditions.LAUNCHER_OUTDATED) else []


def storage_of_vm(vm: Object) -> list[Storage]:
    """Index function for ``BY_STORAGE``; a machine that is not sound waits for none."""
    if not structure.has_sound_domain(vm):
        return []
    namespace = namespace_of(vm)
    return [
        *(NamespacedName(namespace, claim) for claim in disk_claims.claims_of(vm)),
        *(ServerDisk(namespace, digest) for digest in disk_claims.servers_of(vm)),
        *(NodeFile(path) for path in disk_claims.files_of(vm)),
    ]


def held_storage_of_vm(vm: Object) -> list[Storage]:
    """Index function for ``BY_HELD_STORAGE``."""
    return storage_of_vm(vm) if precedence.holds(vm) else []


def macs_of_vm(vm: Object) -> list[Mac]:
    """Index function for ``BY_MAC``."""
    given = interfaces.defaulted(domain_of(vm)) if structure.has_sound_domain(vm) else ()
    return [Mac(namespace_of(vm), network.normal_mac(each["mac"])) for each in given if each.get("mac")]


def claims_for(vm: Object, claims: Informer) -> dict[str, Object | None]:
    """Return the machine's claims by name."""
    return {name: claims.get(namespace_of(vm), name) for name in disk_claims.claims_of(vm)}


def offers_kvm(nodes: Informer) -> bool:
    """Return whether some node advertises a kvm device."""
    return any(dig(node, "status", "allocatable", names.KVM_RESOURCE) not in (None, "0") for node in nodes.list())
