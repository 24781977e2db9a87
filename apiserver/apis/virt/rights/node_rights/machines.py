"""What one node's virt-handler may write into a VirtualMachine's status.

The machine must be on the node, in a phase of virt-handler. The phase after the write says which fields may change (:data:`BY_PHASE`).

One write comes from another node: a live migration's target takes the machine over (``_taken_over``). Then the stored Migration must name
this node, pod and uid, and be ``Running``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta.objects import dig, name_of, uid_of
from apiserver.apis.meta.validation import FieldError, forbidden
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import conditions, freezing, managed_save, migration_attempts, operations, phases, power
from apiserver.apis.virt.places import saved_image
from apiserver.apis.virt.rights.node_rights import differences
from apiserver.apis.virt.rights.node_rights.differences import PHASE_FIELDS, STATUS, shown
from apiserver.apis.virt.spec import live_changes, running
from apiserver.apis.virt.spec.described import domain_of

Object = Mapping[str, Any]

RESULTS: Final[Mapping[str, str]] = MappingProxyType({phase: result for result, phase in power.PHASES.items()})
"""The result of an ended attempt, by its phase."""
RECORD: Final = ("sourceNode", "sourcePod", "targetNode", "targetPod", "startTime")
"""Fields of ``status.migration`` copied from the Migration."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Fields and condition types of a machine's status that a virt-handler's write may change.

    ``attempt``: fields of the current attempt that it may set once.
    """

    fields: frozenset[str]
    settable: frozenset[str]
    """Condition types."""
    removable: frozenset[str] = frozenset()
    """Condition types."""
    attempt: frozenset[str] = frozenset()


_OF_A_GUEST: Final = frozenset({*conditions.OF_A_GUEST, conditions.DISKS_READY})
_WAITING: Final = Rights(
    PHASE_FIELDS | {"conditions", "imports"}, frozenset({conditions.READY, conditions.DISKS_READY, conditions.NETWORK_READY})
)
_REPORTING: Final = Rights(
    PHASE_FIELDS
    | {"conditions", "observedGeneration", "attempts", "domain", "interfaces", "guest", "graphics", "vsock", "devices", "imports", "podIP"}
    | {"operations", managed_save.FIELD, live_changes.FIELD, running.RUNNING, freezing.FIELD},
    _OF_A_GUEST | {conditions.READY},
    attempt=frozenset({"runningTime"}),
)
_ENDING: Final = Rights(
    PHASE_FIELDS | {"conditions", "observedGeneration", "attempts", "operations", managed_save.FIELD, *phases.OF_A_PLACE},
    frozenset({conditions.READY}),
    _OF_A_GUEST | {conditions.RESTART_REQUIRED},
    frozenset({"endTime", "result", "message"}),
)
BY_PHASE: Final[Mapping[str, Rights]] = MappingProxyType(
    {
        phases.SCHEDULED: _WAITING,
        phases.UNKNOWN: _WAITING,
        phases.RUNNING: _REPORTING,
        phases.STOPPING: _REPORTING,
        phases.STOPPED: _ENDING,
        phases.SUCCEEDED: _ENDING,
        phases.FAILED: _ENDING,
        phases.SUSPENDED: _ENDING,
    }
)
"""Rights by the phase after the write."""
OF_A_RESULT: Final = frozenset({"result", "message", "completionTime"})
"""Fields of an operation that say how it ended."""
PROGRESS: Final = "percent"
"""The field of an unfinished operation that may change repeatedly."""
TAKEN_OVER: Final = frozenset({"nodeName", "podName", "podUID", "migration"})
"""Additional fields that the target's virt-handler writes at a takeover."""


@dataclass(frozen=True, slots=True)
class MachineWrite:
    """A virt-handler's write of a machine's status, with the data to check it."""

    node: str
    """The writing virt-handler's."""
    old: Object
    new: Object
    now: datetime
    """virt-api's time."""
    migration: Object | None = None
    """The stored one in the new ``status.migration``; used for a takeover: the machine is not on the node."""


def validate(write: MachineWrite) -> list[FieldError]:
    """Return errors for changes of a machine's status that the node's virt-handler may not make."""
    old, new = _status(write.old), _status(write.new)
    here = old.get("nodeName")
    if here != write.node and new.get("nodeName") != write.node:
        return [forbidden(STATUS.child("nodeName"), f'the virtual machine is not on node "{write.node}"')]
    moves = here != write.node
    before, after = phases.phase_of(write.old), phases.phase_of(write.new)
    if before not in phases.HANDLED:
        return [
            forbidden(STATUS.child("phase"), f"the virtual machine is {before or phases.PENDING}, which only virt-controller may change")
        ]
    if after not in followers(before, moves=moves):
        return [forbidden(STATUS.child("phase"), f'virt-handler may not change the phase from {before} to "{shown(after)}"')]
    found = list(_not_the_target(write)) if moves else []
    return found + list(_validate_fields(write, BY_PHASE[after], moves=moves))


def followers(before: str, *, moves: bool) -> frozenset[str]:
    """Return the phases that virt-handler may write after ``before``, including it; ``moves``: it takes over another node's machine."""
    if moves:
        return phases.OWNED_BY_HANDLER & phases.VM_TRANSITIONS[before] | {before, phases.RUNNING}
    return phases.VM_TRANSITIONS[before] - {phases.UNKNOWN} | {before}


def _validate_fields(write: MachineWrite, rights: Rights, *, moves: bool) -> Iterator[FieldError]:
    old, new = (running.without_reservations(_status(each)) for each in (write.old, write.new))
    allowed = rights.fields | TAKEN_OVER if moves else rights.fields
    changed = differences.changed(old, new)
    for field in changed:
        if field not in allowed:
            yield forbidden(STATUS.child(field), f"may not be written by virt-handler while the virtual machine is {new.get('phase')}")
    yield from differences.conditions(old, new, rights.settable, rights.removable)
    if "phaseTransitionTimestamps" in allowed:
        yield from differences.timestamps(old, new)
    if "observedGeneration" in changed and new.get("observedGeneration") != dig(write.old, "metadata", "generation"):
        yield forbidden(STATUS.child("observedGeneration"), "must be metadata.generation")
    if "attempts" in changed and "attempts" in allowed:
        yield from _attempts(write, rights)
    if "operations" in changed and "operations" in allowed:
        yield from _operations(write)
    if managed_save.FIELD in changed:
        yield from _image(write)
    if running.RUNNING in changed and running.RUNNING in allowed:
        yield from _running(write)
    if new.get("phase") in phases.ENDED:
        yield from _end(write)
    elif "podIP" in changed and new.get("podIP") != _address_on_pods_network(write):
        yield forbidden(STATUS.child("podIP"), "must be the address of the interface on the pod's own network")


def _address_on_pods_network(write: MachineWrite) -> object:
    names = {each.get("name") for each in interfaces.defaulted(domain_of(write.old)) if interfaces.is_on_pods_network(each)}
    return next((each.get("ipAddress") for each in _status(write.new).get("interfaces") or () if each.get("name") in names), None)


def _attempts(write: MachineWrite, rights: Rights) -> Iterator[FieldError]:
    before, after = (_status(each).get("attempts") or [] for each in (write.old, write.new))
    path = STATUS.child("attempts")
    if [each["number"] for each in before] != [each["number"] for each in after]:
        yield forbidden(path, "only virt-controller may add or remove attempts")
        return
    current = power.current_attempt(write.old)
    for earlier, later in zip(before, after, strict=True):
        place = path.key(str(earlier["number"]))
        if earlier != later and earlier["number"] != current:
            yield forbidden(place, f"is not the current attempt, which is {current}")
            continue
        for field in differences.changed(earlier, later):
            if field not in rights.attempt:
                yield forbidden(
                    place.child(field), f"may not be written by virt-handler while the virtual machine is {phases.phase_of(write.new)}"
                )
            elif earlier.get(field):
                yield forbidden(place.child(field), "is written once")
            elif field == "runningTime":
                yield from differences.moment(place.child(field), later.get(field), write.now)


def _operations(write: MachineWrite) -> Iterator[FieldError]:
    before, after = (_status(each).get("operations") or [] for each in (write.old, write.new))
    path = STATUS.child("operations")
    if [each["id"] for each in before] != [each["id"] for each in after]:
        yield forbidden(path, "only verbs may add or remove operations")
        return
    for earlier, later in zip(before, after, strict=True):
        place = path.key(shown(earlier["id"]))
        for field in differences.changed(earlier, later):
            if field not in OF_A_RESULT and field != PROGRESS:
                yield forbidden(place.child(field), "may not be written by virt-handler")
            elif operations.is_finished(earlier):
                yield forbidden(place.child(field), "is written once")
        if set(differences.changed(earlier, later)) - {PROGRESS} and not operations.is_finished(later):
            yield forbidden(place.child("result"), "is missing")


def _end(write: MachineWrite) -> Iterator[FieldError]:
    new, phase = _status(write.new), phases.phase_of(write.new)
    for field in phases.OF_A_PLACE:
        if new.get(field) is not None and not (managed_save.of(write.new) and _is_of_image(write, field)):
            yield forbidden(STATUS.child(field), f"must be removed when the virtual machine becomes {phase}")
    current = power.current_attempt(write.old)
    earlier, later = _attempt(write.old, current), _attempt(write.new, current)
    if earlier and not power.has_ended(earlier) and (later.get("result") != RESULTS[phase] or not later.get("endTime")):
        path = STATUS.child("attempts").key(str(current)).child("result")
        yield forbidden(path, f"must be {RESULTS[phase]}, with an endTime, when the virtual machine becomes {phase}")
    if later.get("endTime") != earlier.get("endTime"):
        yield from differences.moment(STATUS.child("attempts").key(str(current)).child("endTime"), later.get("endTime"), write.now)


def _is_of_image(write: MachineWrite, field: str) -> bool:
    return field == running.RUNNING or (field == running.POD_RESIZE and _status(write.new).get(field) == _status(write.old).get(field))


def _image(write: MachineWrite) -> Iterator[FieldError]:
    image = managed_save.of(write.new)
    if image is None:
        return
    path, operation = STATUS.child(managed_save.FIELD), managed_save.suspending(write.old)
    if phases.phase_of(write.new) != phases.SUSPENDED or operation is None:
        yield forbidden(path, "may be written by virt-handler only when an operation Suspend ends the attempt")
        return
    wanted = {
        "id": operation.get("id"),
        "claimName": None if managed_save.to_node_disk(operation) else managed_save.claim_of(running.spec_of(write.old)),
        "file": saved_image.file_of(uid_of(write.old), str(operation.get("id"))),
        "attempt": power.current_attempt(write.old),
        "nodeName": _status(write.old).get("nodeName"),
    }
    for field, value in wanted.items():
        if image.get(field) != value:
            yield forbidden(path.child(field), f'must be "{shown(value)}"')
    yield from differences.moment(path.child("time"), image.get("time"), write.now)


def _running(write: MachineWrite) -> Iterator[FieldError]:
    if phases.phase_of(write.new) not in phases.ENDED and not live_changes.follows(write.old, write.new):
        yield forbidden(STATUS.child(running.RUNNING), "may only take settings of the spec that the guest has taken")


def _not_the_target(write: MachineWrite) -> Iterator[FieldError]:
    old, new, migration = _status(write.old), _status(write.new), write.migration
    given = new.get("migration") or {}
    path = STATUS.child("migration")
    if (
        migration is None
        or given.get("uid") != uid_of(migration)
        or dig_migration(migration, "spec", "selector", "name") != name_of(write.old)
    ):
        on = shown(old.get("nodeName"))
        yield forbidden(STATUS.child("nodeName"), f'the virtual machine is on node "{on}", and status.migration names no Migration of it')
        return
    moved = _status(migration)
    if phases.phase_of(migration) != phases.RUNNING:
        yield forbidden(
            path.child("phase"), f"Migration {name_of(migration)} is {phases.phase_of(migration) or phases.PENDING}, not Running"
        )
    if migration_attempts.is_reported(migration):
        yield forbidden(path, f"the current attempt of Migration {name_of(migration)} failed, and the guest stayed")
    if (old.get("nodeName"), old.get("podName")) != (moved.get("sourceNode"), moved.get("sourcePod")):
        yield forbidden(path, f"the virtual machine is not in the source pod of Migration {name_of(migration)}")
    wanted = {"nodeName": moved.get("targetNode"), "podName": moved.get("targetPod"), "podUID": moved.get("targetPodUID")}
    for field, value in wanted.items():
        if not value or new.get(field) != value:
            yield forbidden(STATUS.child(field), f'must be "{shown(value or "")}", the target of Migration {name_of(migration)}')
    recorded = {"name": name_of(migration), **{key: moved.get(key) for key in RECORD}, "phase": phases.SUCCEEDED}
    for field, value in recorded.items():
        if given.get(field) != value:
            yield forbidden(path.child(field), f"must be as in Migration {name_of(migration)}, and the phase Succeeded")


def _attempt(obj: Object, number: int) -> Object:
    return next((each for each in _status(obj).get("attempts") or () if each["number"] == number), {})


def _status(obj: Object) -> Object:
    status: Object = obj.get("status") or {}
    return status
