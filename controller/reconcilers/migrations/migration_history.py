"""Creation and ownership of Migrations, and how long finished ones are kept. Pure.

The machine owns its Migrations, so the garbage collector deletes them with it. The newest few finished ones of each machine (by the owner's
uid) are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, is_deleting, labels_of, name_of, namespace_of, uid_of
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import evictions, phases
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from controller.reconcilers.actions import Action, AddOwner, DeleteObject, Requeue
from controller.reconcilers.pods import ownership

NEEDED_SECONDS: Final = 3600
"""For Migrations caused by evictions: failures determine the delay before the next eviction."""
_PREFIX: Final = f"{names.GROUP}/"
_EARLY: Final = frozenset({"", phases.PENDING, phases.SCHEDULING})
"""Only virt-controller writes in these phases."""


def made(vm: Object, cause: str, metadata: Mapping[str, object], **spec: object) -> Object:
    """Return a Migration owned by a machine, for the caller to create.

    ``cause`` is part of its name, ``metadata`` has labels and annotations, and ``spec`` the fields besides the selector.
    """
    return {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {
            "generateName": f"{name_of(vm)}-{cause}-",
            "namespace": namespace_of(vm),
            **metadata,
            "ownerReferences": [_owner(vm)],
        },
        "spec": {"selector": {"name": name_of(vm)}, **spec},
    }


def adopt(migration: Object, vm: Object | None) -> tuple[Action, ...]:
    """Return an AddOwner that makes the machine a Migration's first owner.

    Empty without ``vm``, if it is the owner, after ``Scheduling``, or during a deletion.
    """
    if vm is None or is_deleting(vm) or is_deleting(migration) or phases.phase_of(migration) not in _EARLY:
        return ()
    if not uid_of(vm) or evictions.machine_of(migration).name != name_of(vm) or owner_uid(migration) == uid_of(vm):
        return ()
    return (AddOwner(_owner(vm)),)


def _owner(vm: Object) -> Object:
    return {"apiVersion": VIRTUAL_MACHINES.api_version, "kind": VIRTUAL_MACHINES.kind, "name": name_of(vm), "uid": uid_of(vm)}


def owner_uid(migration: Object) -> str:
    """Return the uid of the machine that owns a Migration; else empty.

    A user can put any owner into a Migration, so virt-controller puts the machine first (:func:`adopt`).
    """
    references = dig_migration(migration, "metadata", "ownerReferences")
    for each in references if isinstance(references, list) else ():
        is_ours = dig(each, "kind") == VIRTUAL_MACHINES.kind and str(dig(each, "apiVersion") or "").startswith(_PREFIX)
        if is_ours and dig(each, "name") == evictions.machine_of(migration).name:
            return str(dig(each, "uid") or "")
    return ""


def clean_up(migration: Object, others: Iterable[Object], kept: int, now: datetime) -> tuple[Action, ...]:
    """Return the deletion of a finished Migration if ``others`` has ``kept`` newer finished ones of its machine, else nothing.

    Nothing also for one in deletion or with its finalizer; a Requeue while an eviction may need its result (``NEEDED_SECONDS``).
    """
    if is_deleting(migration) or ownership.held_by(migration):
        return ()
    owner, age = owner_uid(migration), _age(migration)
    newer = sum(1 for each in others if not phases.is_unfinished(each) and owner_uid(each) == owner and _age(each) > age)
    if newer < kept:
        return ()
    left = _needed(migration, now)
    return (Requeue(left),) if left > 0 else (DeleteObject(),)


def _age(migration: Object) -> tuple[str, str, str]:
    found = (dig_migration(migration, "metadata", "creationTimestamp"), dig_migration(migration, "status", "endTime"), name_of(migration))
    created, ended, name = (str(each or "") for each in found)
    return created, ended, name


def _needed(migration: Object, now: datetime) -> float:
    ended = dig_migration(migration, "status", "endTime") or dig_migration(migration, "metadata", "creationTimestamp")
    if evictions.POD_LABEL not in labels_of(migration) or not ended:
        return 0.0
    return NEEDED_SECONDS - (now - times.parse(ended)).total_seconds()
