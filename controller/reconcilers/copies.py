"""The copies of objects that the loops read, and the indexes by which they find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import Object, dig, is_true, namespace_of
from apiserver.apis.virt import conditions, disk_uses, evictions, names, network, structure
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import interfaces
from apiserver.client.informer import Informer
from controller.reconcilers import disk_claims, pod_state

BY_OWNER: Final = "owner"
"""Index of pods: ``namespace/uid`` of the machine that controls them."""
BY_MACHINE: Final = "machine"
"""Index of Migrations: ``namespace/name`` of the virtual machine."""
BY_STATE: Final = "state"
"""Index of Migrations: :data:`UNFINISHED`, of those that are."""
UNFINISHED: Final = "unfinished"
BY_CLAIM: Final = "claim"
"""Index of machines: ``namespace/claim`` of each disk, ``namespace/server/digest``, and ``//path`` of a file of a node."""
BY_MAC: Final = "mac"
"""Index of machines: ``namespace/address`` of each interface that has one given."""
BY_WANTED_NODE: Final = "wanted-node"
"""Index of machines: the node that ``spec.nodeName`` names."""
BY_AGE: Final = "age"
"""Index of machines: :data:`OUTDATED`, of those that say that their launcher is."""
OUTDATED: Final = "outdated"
BY_NODE: Final = "node"
"""Index of pods: the node they are bound to."""


@dataclass(frozen=True, slots=True)
class Informers:
    """The copies that both loops read."""

    vms: Informer
    migrations: Informer
    pods: Informer
    claims: Informer
    nodes: Informer
    leases: Informer
    """Of the virt-handlers."""


def machine_of(migration: Object) -> list[str]:
    """Index function for ``BY_MACHINE``."""
    return [f"{namespace_of(migration)}/{evictions.machine_of(migration)}"]


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


def claims_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_CLAIM``, of disks of servers, too, and of files of nodes, which are no namespace's.

    A machine that is not sound waits for nothing.
    """
    if not structure.has_sound_domain(vm):
        return []
    of_namespace = (*disk_claims.claims_of(vm), *(f"{disk_uses.SERVER}/{each}" for each in disk_claims.servers_of(vm)))
    return [*(f"{namespace_of(vm)}/{each}" for each in of_namespace), *map(key_of_file, disk_claims.files_of(vm))]


def key_of_file(path: str) -> str:
    """Return the key in ``BY_CLAIM`` of a file of a node."""
    return f"/{path}"


def macs_of_vm(vm: Object) -> list[str]:
    """Index function for ``BY_MAC``."""
    given = interfaces.defaulted(domain_of(vm)) if structure.has_sound_domain(vm) else ()
    return [f"{namespace_of(vm)}/{network.normal_mac(each['mac'])}" for each in given if each.get("mac")]


def claims_for(vm: Object, claims: Informer) -> dict[str, Object | None]:
    """Return the machine's claims by name."""
    return {name: claims.get(namespace_of(vm), name) for name in disk_claims.claims_of(vm)}


def offers_kvm(nodes: Informer) -> bool:
    """Return whether some node advertises a kvm device."""
    return any(dig(node, "status", "allocatable", names.KVM_RESOURCE) not in (None, "0") for node in nodes.list())
