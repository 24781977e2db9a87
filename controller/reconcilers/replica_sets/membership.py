"""Decides which machines belong to a set: by its selector, and by the controller in their ownerReferences. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import labels
from apiserver.apis.meta.labels import Selector
from apiserver.apis.meta.objects import Object, controller_of, dig, is_deleting, key_of, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals
from apiserver.apis.virt.places.resources import REPLICA_SETS
from controller.reconcilers.replica_sets import finished

BY_CONTROLLER: Final = "controller"
BY_NAMESPACE: Final = "namespace"


@dataclass(frozen=True, slots=True)
class Orphans:
    """Index key for a namespace's machines without a controller."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Membership:
    """A set's machines."""

    members: tuple[Object, ...] = ()
    """They match, and the set controls or adopts them."""
    adopted: tuple[Object, ...] = ()
    """Those members without a controller: the set becomes it."""
    released: tuple[Object, ...] = ()
    """Machines that do not match: the set ceases to be their controller."""


def faults(replica_set: Object) -> tuple[str, ...]:
    """Return why a stored set cannot be used: its structure, or a selector of all machines of the namespace."""
    found = structure.of_replica_set(replica_set)
    return found or (("spec.selector must not be empty",) if selector_of(replica_set).is_everything else ())


def selector_of(replica_set: Object) -> Selector:
    """Return the selector of a set without :func:`faults`."""
    return labels.from_json(dig_replica_set(replica_set, "spec", "selector"))


def of_set(replica_set: Object, machines: Iterable[Object]) -> Membership:
    """Return which of these machines of its namespace are members, adopted ones included, and which the set adopts and releases.

    A set in deletion adopts and releases none, because the garbage collector has its machines. A set without ordinals adopts no finished
    machine, because it would delete it. A set with ordinals has only machines with their names.
    """
    selector, uid, is_going = selector_of(replica_set), uid_of(replica_set), is_deleting(replica_set)
    members, adopted, released = [], [], []
    numbered = ordinals.has_ordinals(replica_set)
    for vm in machines:
        is_foreign = namespace_of(vm) != namespace_of(replica_set)  # anyone can write the set's uid into ownerReferences
        if is_foreign or (numbered and ordinals.ordinal_of(replica_set, name_of(vm)) is None):
            continue
        controller, matches = controller_of(vm), selector.matches(labels_of(vm))
        if controller is not None and controller.get("uid") == uid:
            if matches:
                members.append(vm)
            elif not is_going and not is_deleting(vm):
                released.append(vm)
        elif controller is None and matches and not is_going and not is_deleting(vm) and (numbered or not finished.is_finished(vm)):
            members.append(vm)
            adopted.append(vm)
    return Membership(tuple(members), tuple(adopted), tuple(released))


def controller_of_vm(vm: Object) -> list[str | Orphans]:
    """Return a machine's key in the index of controllers: the controller's uid, or its namespace's orphans.

    A machine with malformed metadata has none, so it disturbs no set.
    """
    owners = dig(vm, "metadata", "ownerReferences") or []  # untyped: it may be malformed
    if not isinstance(owners, list) or not all(isinstance(each, dict) for each in owners) or structure.of_metadata(vm):
        return []
    found = controller_of(vm)
    return [str(found.get("uid"))] if found is not None else [Orphans(namespace_of(vm))]


def namespace_of_set(replica_set: Object) -> list[str]:
    """Return a set's key in ``BY_NAMESPACE``."""
    return [namespace_of(replica_set)]


def set_named_by(vm: Object) -> str:
    """Return the name of the set that controls a machine; empty if none does."""
    (key,) = controller_of_vm(vm) or [""]
    found = controller_of(vm) if isinstance(key, str) and key else None
    is_set = (
        found is not None and found.get("kind") == REPLICA_SETS.kind and str(found.get("apiVersion")).startswith(f"{REPLICA_SETS.group}/")
    )
    return str(found.get("name") or "") if found is not None and is_set else ""


def matching(sets: Iterable[Object], vm: Object) -> list[Object]:
    """Return the sound ones of these sets that are in the machine's namespace and have selectors that match it."""
    return [
        each
        for each in sets
        if not faults(each) and key_of(each).namespace == namespace_of(vm) and selector_of(each).matches(labels_of(vm))
    ]
