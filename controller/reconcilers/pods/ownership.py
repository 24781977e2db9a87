"""The pods that are a virtual machine's. Pure.

A pod is a machine's for one of two reasons. Its controller ``ownerReference`` has the machine's uid, in the machine's namespace, and it
could have been made by virt-controller: nobody elsewhere can claim that, because owners are of one's own namespace. Or the status names it
by uid: then what has become of its metadata does not matter, because a guest may run in it.

Labels say nothing. Whoever may edit pods in the namespace can put ours on any pod, and can take them, and the owner, off a pod of a running
guest; they only serve to find pods without reading every pod of the cluster. So being owned means that a pod is waited for and ended with
the machine, and never that a guest is put into it: that takes the uid, which is written down when the pod is made.
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
    """A pod that a status names."""

    name: str
    uid: str
    """Empty where it was not written down: then the name says where to look, and the owner whether that is it."""


def is_launcher(pod: Object) -> bool:
    """True if virt-controller of some version could have made this pod, by fields that no client can change in an existing pod.

    The policy of the chart lets virt-controller delete these pods alone (``charts/kubevirt/templates/admissionpolicies.yaml``). So no other
    pod that claims a machine as its owner can hold that machine up.
    """
    return shape.fits(pod)


def owner_of(pod: Object) -> Object | None:
    """Return the controlling ownerReference of a launcher pod, if that is a VirtualMachine of ours, in any version."""
    if not is_launcher(pod):
        return None
    found = controller_of(pod)
    if found is None or found.get("kind") != VIRTUAL_MACHINES.kind or not str(found.get("apiVersion") or "").startswith(_PREFIX):
        return None
    return found


class Owner(NamedTuple):
    """A machine as an ``ownerReference`` means it: in the namespace of what it owns."""

    namespace: str
    uid: str


def owners_of(pod: Object) -> list[Owner]:
    """Index function of pods: the machine that controls the pod."""
    owner = owner_of(pod)
    return [Owner(namespace_of(pod), str(owner["uid"]))] if owner is not None and owner.get("uid") else []


def owner_names(*pods: Object | None) -> set[NamespacedName]:
    """Return the names of the machines that control these pods: for one state of a pod and the next, before and after an edit."""
    owned = ((pod, owner) for pod in pods if pod is not None and (owner := owner_of(pod)) is not None)
    return {NamespacedName(namespace_of(pod), str(owner.get("name") or "")) for pod, owner in owned}


def is_controlled_by(pod: Object, vm: Object) -> bool:
    """True if this is a launcher pod whose controller is this machine."""
    return owners_of(pod) == [Owner(namespace_of(vm), uid_of(vm))]


def is_labelled(pod: Object) -> bool:
    """True if the informer of pods, which asks for a label, is told of this one."""
    return labels_of(pod).get(names.COMPONENT_LABEL) == names.LAUNCHER


def is_unwatched(pod: Object, vm: Object | None) -> bool:
    """True if no event will tell of this pod's next change: it lacks the informer's label, or the owner that leads to ``vm``."""
    return not is_labelled(pod) or vm is None or not is_controlled_by(pod, vm)


def mending(pod: Object, vm: Object) -> str:
    """Return what gives a pod of the machine its marks back. virt-controller may not: its account changes no labels."""
    marks = {names.COMPONENT_LABEL: names.LAUNCHER, names.VM_NAME_LABEL: name_of(vm), names.CREATED_BY_LABEL: uid_of(vm)}
    lost = [f"{key}={value}" for key, value in marks.items() if labels_of(pod).get(key) != value]
    words = [f"kubectl label pod {name_of(pod)} -n {namespace_of(pod)} --overwrite {' '.join(lost)}"] if lost else []
    if not is_controlled_by(pod, vm):
        words.append("a restart of the machine, whose next pod has its owner")
    return "; ".join(words)


def is_meant(pod: Object, reference: Reference, vm: Object | None) -> bool:
    """True if the reference means this very pod, and not one that was made later under its name.

    Where no uid was written down, ``vm`` has to control it; a machine that is gone controls nothing.
    """
    if name_of(pod) != reference.name:
        return False
    if reference.uid:
        return uid_of(pod) == reference.uid
    return vm is not None and is_controlled_by(pod, vm)


def of_status(vm: Object) -> Reference | None:
    """Return the pod that the machine's status names."""
    name = dig_vm(vm, "status", "podName")
    return Reference(str(name), str(dig_vm(vm, "status", "podUID") or "")) if name else None


def source_of(migration: Object, vm: Object | None) -> Reference | None:
    """Return the pod that a Migration leaves; before that is written down, the one that the machine is in."""
    own = of_status(vm) if vm is not None else None
    name = str(dig_migration(migration, "status", "sourcePod") or "")
    if not name:
        return own
    uid = str(dig_migration(migration, "status", "sourcePodUID") or "")
    return Reference(name, uid or (own.uid if own is not None and own.name == name else ""))


def target_name(migration: Object) -> str:
    """Return the name of the target pod of the Migration's present attempt, whether it exists or not."""
    return names.target_pod_name(dig_migration(migration, "spec", "selector", "name") or "", migration_attempts.uid_of(migration))


def target_of(migration: Object) -> Reference:
    """Return the pod that a Migration goes to."""
    return Reference(target_name(migration), str(dig_migration(migration, "status", "targetPodUID") or ""))


def held_by(migration: Object) -> bool:
    """True as long as the Migration may have a guest on its way, or has not asked for the deletion of the pod that lost."""
    return phases.is_unfinished(migration) or names.MIGRATION_FINALIZER in finalizers_of(migration)


def references(vm: Object, migrations: Iterable[Object]) -> tuple[Reference, ...]:
    """Return every pod in which a guest of this machine may run, by what was written down: its own, and both sides of its Migrations."""
    own = of_status(vm)
    found = [own] if own is not None else []
    for each in migrations:
        if held_by(each):
            source = source_of(each, vm)
            found += [target_of(each)] if source is None else [source, target_of(each)]
    return tuple(dict.fromkeys(found))


def may_have_arrived(migration: Object, vm: Object, pods: Iterable[Object]) -> bool:
    """True if the guest may be in the target of an unfinished Migration: bytes may have gone there, or the source reports that it left.

    The copy of the Migration may be older than the pods' status, because two watches bring them.
    """
    if not phases.is_unfinished(migration):
        return False
    source = source_of(migration, vm)
    left = any(source is not None and is_meant(pod, source, vm) and pod_state.has_migrated(pod) for pod in pods)
    return left or phases.phase_of(migration) not in ("", phases.PENDING, phases.SCHEDULING)
