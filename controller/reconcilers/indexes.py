"""Informers and indexes of the objects that the loops read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from apiserver.apis.meta.objects import NamespacedName, Object, condition, dig, is_true, name_of, namespace_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, evictions, failed_starts
from apiserver.apis.virt.places import names, network, node_states
from apiserver.apis.virt.spec import reserved_claims
from apiserver.apis.virt.spec.described import domain_of
from apiserver.client.informer import Informer
from controller.reconcilers import disk_claims, precedence
from controller.reconcilers.launcher_pods import scheduling
from controller.reconcilers.pods import ownership, pod_state

MAX_NAMESAKES: Final = 64
"""A tenant can give 10,000 machines the same MAC address."""
BY_OWNER: Final = "owner"
"""Pods by the :class:`ownership.Owner` that controls them."""
BY_MACHINE: Final = "machine"
"""Migrations by their machine's NamespacedName."""
BY_STATE: Final = "state"
"""Unfinished Migrations, by :data:`UNFINISHED`."""
UNFINISHED: Final = "unfinished"
BY_STORAGE: Final = "storage"
"""Machines by each :data:`Storage` they use."""
BY_HELD_STORAGE: Final = "held-storage"
"""Machines that may block others that use the storage."""
BY_MAC: Final = "mac"
"""Machines by the :class:`Mac` that an interface specifies."""
BY_WANTED_NODE: Final = "wanted-node"
"""Machines by ``spec.nodeName``."""
BY_AGE: Final = "age"
"""Machines with an outdated launcher, by :data:`OUTDATED`."""
OUTDATED: Final = "outdated"
BY_LOSS: Final = "loss"
"""Machines with the condition NodeLost, by :data:`LOST`."""
LOST: Final = "lost"
BY_FAILED_START: Final = "failed-start"
"""Machines with a start that failed on one node and succeeded on another."""
FAILED: Final = "failed"
BY_TRIED_NODE: Final = "tried-node"
"""Machines by their attempts' nodes."""
BY_NODE: Final = "node"
"""Pods by their node."""
BY_DEVICE: Final = "device"
"""Nodes by an allocatable device: ``names.KVM_RESOURCE``."""
BY_EMPTYING: Final = "emptying"
"""Nodes that are being emptied, by :data:`EMPTIED`."""
EMPTIED: Final = "emptied"
BY_FENCE: Final = "fence"
"""Nodes with the taint ``out-of-service``, by :data:`FENCED`."""
FENCED: Final = "fenced"


@dataclass(frozen=True, slots=True)
class ServerDisk:
    """A disk that a storage server has, by its digest, as used in a namespace."""

    namespace: str
    digest: str


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A path of a file on nodes, in no namespace; it names no node."""

    path: str


Storage: TypeAlias = NamespacedName | ServerDisk | NodeFile
"""A NamespacedName is a PersistentVolumeClaim's."""


class Mac(NamedTuple):
    """A normalized MAC address, as used in a namespace."""

    namespace: str
    address: str


@dataclass(frozen=True, slots=True)
class Informers:
    """Informers for the loops."""

    vms: Informer
    migrations: Informer
    pods: Informer
    claims: Informer
    nodes: Informer
    leases: Informer
    replica_sets: Informer
    guardians: Informer

    def migrations_of(self, machine: NamespacedName) -> Iterable[Object]:
        """Return the Migrations for a machine's name."""
        return self.migrations.by_index(BY_MACHINE, machine)

    def unfinished_migrations(self) -> Iterable[Object]:
        """Return the unfinished Migrations of all machines."""
        return self.migrations.by_index(BY_STATE, UNFINISHED)

    def pods_of(self, owner: ownership.Owner) -> Iterable[Object]:
        """Return the pods that a machine controls."""
        return self.pods.by_index(BY_OWNER, owner)

    def machines_with(self, storage: Storage) -> Iterable[Object]:
        """Return the machines that use this storage."""
        return self.vms.by_index(BY_STORAGE, storage)

    def holders_of(self, storage: Storage) -> Iterable[Object]:
        """Return the machines that hold this storage (``precedence.holds``), at most ``MAX_NAMESAKES``."""
        return self.vms.by_index(BY_HELD_STORAGE, storage, MAX_NAMESAKES)

    def machines_of_lost_nodes(self) -> Iterable[Object]:
        """Return the machines that were lost with their nodes, even if they restarted."""
        return self.vms.by_index(BY_LOSS, LOST)

    def suspects(self, now: datetime) -> frozenset[str]:
        """Return the names of nodes with a failed start that counts against them."""
        machines = self.vms.by_index(BY_FAILED_START, FAILED)
        return frozenset(node for vm in machines for node in failed_starts.nodes_of_failures(vm, now))

    def non_operational(self, now: datetime) -> dict[str, failed_starts.Verdict]:
        """Return the :meth:`verdicts` on nodes that starts should avoid; empty if these are too many."""
        found = self.verdicts(now)
        return {} if self.too_many(found) else found

    def verdicts(self, now: datetime) -> dict[str, failed_starts.Verdict]:
        """Return, by name, a verdict on each node where starts failed."""
        suspects = self.suspects(now)
        if not suspects:
            return {}
        nodes = {name_of(each): each for each in self.nodes.list()}
        return failed_starts.verdicts(nodes, {node: list(self.vms.by_index(BY_TRIED_NODE, node)) for node in suspects}, now)

    def too_many(self, verdicts: Mapping[str, failed_starts.Verdict]) -> bool:
        """Return whether starts failed on too many nodes, so they avoid none."""
        return bool(verdicts) and failed_starts.too_many(verdicts, self.nodes.list())

    def fenced_nodes(self, vm: Object) -> frozenset[str]:
        """Return the fenced nodes where no pod of the machine may start: its guest would count as dead, or be evicted."""
        found = self.nodes.by_index(BY_FENCE, FENCED)
        tolerates = scheduling.tolerates_fence(vm)
        return frozenset(name_of(each) for each in found if not tolerates or node_states.is_fenced(each))

    def machines_with_mac(self, mac: Mac) -> Iterable[Object]:
        """Return the machines that specify this MAC address, at most ``MAX_NAMESAKES``."""
        return self.vms.by_index(BY_MAC, mac, MAX_NAMESAKES)


def machine_of(migration: Object) -> list[NamespacedName]:
    """Return a Migration's key in ``BY_MACHINE``: its machine."""
    return [evictions.machine_of(migration)]


def node_of_pod(pod: Object) -> list[str]:
    """Return the key in ``BY_NODE``: the pod's node; none without one."""
    node = pod_state.node_of(pod)
    return [node] if node else []


def wanted_node_of_vm(vm: Object) -> list[str]:
    """Return the key in ``BY_WANTED_NODE``: ``spec.nodeName``; none if unset."""
    node = dig_vm(vm, "spec", "nodeName")
    return [node] if node and isinstance(node, str) else []


def devices_of_node(node: Object) -> list[str]:
    """Return the key in ``BY_DEVICE`` if the node advertises a kvm device, else none."""
    return [names.KVM_RESOURCE] if dig(node, "status", "allocatable", names.KVM_RESOURCE) not in (None, "0") else []


def emptying_of_node(node: Object) -> list[str]:
    """Return the key in ``BY_EMPTYING`` if the node is being emptied, else none."""
    return [EMPTIED] if node_states.is_being_emptied(node) else []


def fence_of_node(node: Object) -> list[str]:
    """Return the key in ``BY_FENCE`` if the node has the taint ``out-of-service``, else none."""
    return [FENCED] if node_states.has_off_taint(node) else []


def age_of_vm(vm: Object) -> list[str]:
    """Return the key in ``BY_AGE`` if the machine's launcher is outdated, else none. The machine may be invalid."""
    return [OUTDATED] if is_true(_conditions(vm), conditions.LAUNCHER_OUTDATED) else []


def loss_of_vm(vm: Object) -> list[str]:
    """Return the key in ``BY_LOSS`` if the machine has the condition ``NodeLost``, else none. The machine may be invalid."""
    return [LOST] if condition(_conditions(vm), conditions.NODE_LOST) is not None else []


def failures_of_vm(vm: Object) -> list[str]:
    """Return the key in ``BY_FAILED_START`` if a start failed on a node and then succeeded elsewhere, else none. ``vm`` may be invalid."""
    return [FAILED] if failed_starts.nodes_of_failures(vm) else []


def _conditions(vm: Object) -> list[Object]:
    found = dig(vm, "status", "conditions")  # untyped: it may be malformed
    is_sound = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return found if is_sound else []


class _Latest:
    """Remembers the result of ``check`` for the last object: several indexes ask for each in turn."""

    def __init__(self, check: Callable[[Object], bool]) -> None:
        self._check = check
        self._of: tuple[Object | None, bool] = (None, False)

    def __call__(self, vm: Object) -> bool:
        if self._of[0] is not vm:
            self._of = (vm, self._check(vm))
        return self._of[1]


_has_sound_domain: Final = _Latest(structure.has_sound_domain)


def storage_of_vm(vm: Object) -> list[Storage]:
    """Return the keys in ``BY_STORAGE``: claims, server disks and node files; none for an invalid machine."""
    if not _has_sound_domain(vm):
        return []
    namespace = namespace_of(vm)
    return [
        *(NamespacedName(namespace, claim) for claim in disk_claims.claims_of(vm)),
        *(ServerDisk(namespace, digest) for digest in disk_claims.servers_of(vm)),
        *(NodeFile(path) for path in disk_claims.files_of(vm)),
    ]


def held_storage_of_vm(vm: Object) -> list[Storage]:
    """Return the keys in ``BY_HELD_STORAGE``: all storage of the machine, and the claims that it reserved, if it holds them."""
    if not precedence.holds(vm):
        return []
    return [*storage_of_vm(vm), *(NamespacedName(namespace_of(vm), claim) for claim in reserved_claims.names(vm))]


def macs_of_vm(vm: Object) -> list[Mac]:
    """Return the keys in ``BY_MAC``: the normalized addresses that the machine specifies; none for an invalid machine."""
    given = interfaces.defaulted(domain_of(vm)) if _has_sound_domain(vm) else ()
    return [Mac(namespace_of(vm), network.normal_mac(each["mac"])) for each in given if each.get("mac")]


def claims_for(vm: Object, claims: Informer) -> dict[str, Object | None]:
    """Return the machine's claims by name; None for missing ones."""
    return {name: claims.get(namespace_of(vm), name) for name in disk_claims.claims_of(vm)}


def offers_kvm(nodes: Informer) -> bool:
    """Return whether a node advertises a kvm device."""
    return bool(nodes.by_index(BY_DEVICE, names.KVM_RESOURCE, 1))
