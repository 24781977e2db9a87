"""Determines which pods belong to a machine. Pure.

A pod belongs to a machine for one of two reasons. Either its controller ``ownerReference`` has the machine's uid, in the same namespace,
and virt-controller could have created it. Or the machine's status contains its uid, because a guest may run in it; then its metadata does
not matter.

Any user who may edit pods can change labels and owners. So ownership only means that a pod is waited for and deleted with the machine. A
guest starts only in a pod with the recorded uid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from apiserver.apis.meta.objects import NamespacedName, Object, controller_of, finalizers_of, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import migration_attempts, phases
from apiserver.apis.virt.places import names, shape
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from controller.reconcilers.pods import pod_state

_PREFIX: Final = f"{names.GROUP}/"


@dataclass(frozen=True, slots=True)
class Reference:
    """A pod that a status names; ``uid`` is empty if not recorded."""

    name: str
    uid: str


def is_launcher(pod: Object) -> bool:
    """True if virt-controller of some version could have made this pod, by its immutable fields.

    The chart's policy lets virt-controller delete only these pods (``charts/kubevirt/templates/admissionpolicies.yaml``).
    """
    return shape.fits(pod)


def owner_of(pod: Object) -> Object | None:
    """Return the controlling ownerReference of a launcher pod if it is a VirtualMachine of any version, else None."""
    if not is_launcher(pod):
        return None
    found = controller_of(pod)
    if found is None or found.get("kind") != VIRTUAL_MACHINES.kind or not str(found.get("apiVersion") or "").startswith(_PREFIX):
        return None
    return found


class Owner(NamedTuple):
    """A machine from an ``ownerReference``."""

    namespace: str
    uid: str


def owners_of(pod: Object) -> list[Owner]:
    """Return the machine that controls a launcher pod, as the key in ``BY_OWNER``; empty for other pods."""
    owner = owner_of(pod)
    return [Owner(namespace_of(pod), str(owner["uid"]))] if owner is not None and owner.get("uid") else []


def owner_names(*pods: Object | None) -> set[NamespacedName]:
    """Return namespaces and names of the machines that control these pods."""
    owned = ((pod, owner) for pod in pods if pod is not None and (owner := owner_of(pod)) is not None)
    return {NamespacedName(namespace_of(pod), str(owner.get("name") or "")) for pod, owner in owned}


def is_controlled_by(pod: Object, vm: Object) -> bool:
    """True if this is a launcher pod that this machine controls."""
    return owners_of(pod) == [Owner(namespace_of(vm), uid_of(vm))]


def is_attachment(pod: Object, vm: Object) -> bool:
    """True if this pod has the name of an attachment pod of the machine, and is not the guest's pod."""
    return names.is_attachment_pod(name_of(pod), name_of(vm)) and uid_of(pod) != dig_vm(vm, "status", "podUID")


def is_labelled(pod: Object) -> bool:
    """True if the informer of pods, which selects by label, gets this pod."""
    return labels_of(pod).get(names.COMPONENT_LABEL) == names.LAUNCHER


def is_unwatched(pod: Object, vm: Object | None) -> bool:
    """True if changes of this pod cause no event for ``vm``: it lacks the informer's label or the owner, or ``vm`` is None."""
    return not is_labelled(pod) or vm is None or not is_controlled_by(pod, vm)


def to_restore(pod: Object, vm: Object) -> str:
    """Return how a user restores the pod's labels and owner, as text; empty if none is lost."""
    marks = {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: name_of(vm), names.CREATED_BY_LABEL: uid_of(vm)}
    lost = [f"{key}={value}" for key, value in marks.items() if labels_of(pod).get(key) != value]
    words = [f"kubectl label pod {name_of(pod)} -n {namespace_of(pod)} --overwrite {' '.join(lost)}"] if lost else []
    if not is_controlled_by(pod, vm):
        words.append("restart the virtual machine, so that it gets a pod with the right owner")
    return "; ".join(words)


def is_meant(pod: Object, reference: Reference, vm: Object | None) -> bool:
    """True if this is the referenced pod, and not a later one of the same name.

    Without a recorded uid, ``vm`` must control it.
    """
    if name_of(pod) != reference.name:
        return False
    if reference.uid:
        return uid_of(pod) == reference.uid
    return vm is not None and is_controlled_by(pod, vm)


def of_status(vm: Object) -> Reference | None:
    """Return name and uid of the pod in the machine's status, or None."""
    name = dig_vm(vm, "status", "podName")
    return Reference(str(name), str(dig_vm(vm, "status", "podUID") or "")) if name else None


def source_of(migration: Object, vm: Object | None) -> Reference | None:
    """Return name and uid of a Migration's source pod; before that is recorded, of the machine's pod, or None."""
    own = of_status(vm) if vm is not None else None
    name = str(dig_migration(migration, "status", "sourcePod") or "")
    if not name:
        return own
    uid = str(dig_migration(migration, "status", "sourcePodUID") or "")
    return Reference(name, uid or (own.uid if own is not None and own.name == name else ""))


def target_name(migration: Object) -> str:
    """Return the name of the current attempt's target pod, which may not exist."""
    return names.target_pod_name(dig_migration(migration, "spec", "selector", "name") or "", migration_attempts.uid_of(migration))


def target_of(migration: Object) -> Reference:
    """Return name and uid (empty if not recorded) of a Migration's target pod, which may not exist."""
    return Reference(target_name(migration), str(dig_migration(migration, "status", "targetPodUID") or ""))


def held_by(migration: Object) -> bool:
    """True if the Migration is unfinished, or has not deleted the unused pod yet (finalizer)."""
    return phases.is_unfinished(migration) or names.MIGRATION_FINALIZER in finalizers_of(migration)


def references(vm: Object, migrations: Iterable[Object]) -> tuple[Reference, ...]:
    """Return names and uids of all pods that may have a guest of this machine: its own, and both of each Migration's (:func:`held_by`)."""
    own = of_status(vm)
    found = [own] if own is not None else []
    for each in migrations:
        if held_by(each):
            source = source_of(each, vm)
            found += [target_of(each)] if source is None else [source, target_of(each)]
    return tuple(dict.fromkeys(found))


def may_have_arrived(migration: Object, vm: Object, pods: Iterable[Object]) -> bool:
    """True if the guest may be in the target of an unfinished Migration: bytes may have gone there, or the source reports that it left."""
    if not phases.is_unfinished(migration):
        return False
    source = source_of(migration, vm)
    left = any(source is not None and is_meant(pod, source, vm) and pod_state.has_migrated(pod) for pod in pods)
    return left or phases.phase_of(migration) not in ("", phases.PENDING, phases.SCHEDULING)
