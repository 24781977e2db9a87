"""What a node's virt-handler may write into a Migration's status, as source or target.

======== ================================== ==============================================================================
role     step                               fields
======== ================================== ==============================================================================
target   PreparingTarget                    message: why the pod is not ready
target   PreparingTarget → TargetReady      targetAddress of its own relay; message
target   TargetReady, Running               targetAddress, when it changed
target   Running → Succeeded                message, endTime, progress; after the machine moved to the target's pod
target   Succeeded                          progress, in case virt-controller wrote Succeeded first
source   TargetReady → Running              startTime
source   TargetReady, Running → Failed,     message, endTime; Cancelled only if being deleted; neither after the
         Cancelled                          guest was released or moved
source   Running → Failed, Cancelled        progress
source   Running                            condition Released=True, reported by its launcher; progress, condition Converging;
                                            attempts: the current one failed and the guest stayed
======== ================================== ==============================================================================

Only virt-controller writes the rest, including the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from apiserver.apis.meta import objects
from apiserver.apis.meta.validation import FieldError, forbidden
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import departure, migration_attempts, phases, progress
from apiserver.apis.virt.places import forms, streams
from apiserver.apis.virt.rights.node_rights import differences
from apiserver.apis.virt.rights.node_rights.differences import PHASE_FIELDS, STATUS, shown

Object = Mapping[str, Any]
Role = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Step:
    """Fields that the source's or target's virt-handler may write when the phase goes from ``before`` to ``after``."""

    role: Role
    before: str
    after: str
    fields: frozenset[str]
    conditions: frozenset[str] = frozenset()


_ADDRESS: Final = frozenset({"targetAddress"})
_END: Final = frozenset({"message", "endTime"})
_PROGRESS: Final = frozenset({"progress"})
_CONDITIONS: Final = frozenset({departure.RELEASED, progress.CONVERGING})
STEPS: Final = (
    Step("target", phases.PREPARING_TARGET, phases.PREPARING_TARGET, frozenset({"message"})),
    Step("target", phases.PREPARING_TARGET, phases.TARGET_READY, _ADDRESS | {"message"}),
    Step("target", phases.TARGET_READY, phases.TARGET_READY, _ADDRESS),
    Step("target", phases.RUNNING, phases.RUNNING, _ADDRESS),
    Step("target", phases.RUNNING, phases.SUCCEEDED, _END | _PROGRESS),
    Step("target", phases.SUCCEEDED, phases.SUCCEEDED, _PROGRESS),
    Step("source", phases.TARGET_READY, phases.RUNNING, frozenset({"startTime"})),
    Step("source", phases.TARGET_READY, phases.FAILED, _END),
    Step("source", phases.TARGET_READY, phases.CANCELLED, _END),
    Step("source", phases.RUNNING, phases.FAILED, _END | _PROGRESS),
    Step("source", phases.RUNNING, phases.CANCELLED, _END | _PROGRESS),
    Step("source", phases.RUNNING, phases.RUNNING, frozenset({"conditions", "attempts"}) | _PROGRESS, _CONDITIONS),
)
ONCE: Final = ("startTime", "endTime")
"""Fields that cannot change once set."""


@dataclass(frozen=True, slots=True)
class MigrationWrite:
    """A virt-handler's write of a Migration's status, with the data to check it."""

    node: str
    """The writing virt-handler's."""
    old: Object
    new: Object
    now: datetime
    """virt-api's time."""
    machine: Object | None = None
    """The stored one; used if the new phase is final or an attempt failed."""
    addresses: frozenset[str] = frozenset()
    """The node's virt-handlers', as :mod:`ipaddress` formats them; used if ``targetAddress`` changes."""
    relay_port: int = streams.RELAY_PORT


def validate(write: MigrationWrite) -> list[FieldError]:
    """Return errors for changes of a Migration's status that the node's virt-handler may not make."""
    old, new = _status(write.old), _status(write.new)
    roles: tuple[Role, ...] = ("source", "target")
    own = tuple(role for role in roles if old.get(f"{role}Node") == write.node)
    if not own:
        text = f'node "{write.node}" is neither source nor target of the Migration'
        return [forbidden(STATUS.child("sourceNode"), text), forbidden(STATUS.child("targetNode"), text)]
    before, after = phases.phase_of(write.old), phases.phase_of(write.new)
    steps = [each for each in STEPS if each.role in own and (each.before, each.after) == (before, after)]
    if not steps:
        text = f'virt-handler of the {" and ".join(own)} may not change the phase from {before or phases.PENDING} to "{shown(after)}"'
        return [forbidden(STATUS.child("phase"), text)]
    fields = frozenset[str]().union(*(each.fields for each in steps)) | PHASE_FIELDS
    found = [
        forbidden(STATUS.child(field), f"may not be written by virt-handler of the {' and '.join(own)} in phase {after}")
        for field in differences.changed(old, new)
        if field not in fields
    ]
    found += differences.conditions(old, new, frozenset[str]().union(*(each.conditions for each in steps)))
    found += differences.timestamps(old, new)
    found += [forbidden(STATUS.child(each), "is written once") for each in ONCE if old.get(each) and old[each] != new.get(each)]
    if old.get("endTime") != new.get("endTime"):
        found += differences.moment(STATUS.child("endTime"), new.get("endTime"), write.now)
    return [*found, *_address(write), *_released(write), *_attempts(write), *_outcome(write)]


def _address(write: MigrationWrite) -> Iterator[FieldError]:
    given = _status(write.new).get("targetAddress")
    is_entered = phases.phase_of(write.new) == phases.TARGET_READY != phases.phase_of(write.old)
    if given == _status(write.old).get("targetAddress") and not is_entered:
        return
    found = forms.host_port(str(given or ""))
    if found is None or str(found[0]) not in write.addresses or found[1] != write.relay_port:
        where = ", ".join(shown(each) for each in sorted(write.addresses)[:4]) or "unknown"
        text = f'must be the address of virt-handler on node "{write.node}" ({where}), port {write.relay_port}'
        yield forbidden(STATUS.child("targetAddress"), text)


def _released(write: MigrationWrite) -> Iterator[FieldError]:
    before, after = (objects.condition(_status(each).get("conditions"), departure.RELEASED) for each in (write.old, write.new))
    if before == after or after is None:
        return
    was_true = before is not None and before.get("status") == "True"
    if was_true or after.get("status") != "True" or after.get("reason") != departure.BY_HANDLER:
        path = STATUS.child("conditions").key(departure.RELEASED)
        yield forbidden(path, f"may only become True, with reason {departure.BY_HANDLER}, and never change again")
    elif migration_attempts.is_reported(write.old):
        path = STATUS.child("conditions").key(departure.RELEASED)
        yield forbidden(path, "the current attempt is already reported as failed, with the guest on the source")


def _attempts(write: MigrationWrite) -> Iterator[FieldError]:
    old, new = ({each["number"]: each for each in _status(each).get("attempts") or ()} for each in (write.old, write.new))
    path, present = STATUS.child("attempts"), migration_attempts.number_of(write.old)
    for number in sorted(old.keys() | new.keys()):
        entry = new.get(number)
        if entry == old.get(number):
            continue
        if number != present or entry is None:
            yield forbidden(path.key(str(number)), f"is not the failed current attempt, {present}")
            continue
        if entry.get("reason") not in migration_attempts.REPORTED:
            reasons = ", ".join(sorted(migration_attempts.REPORTED))
            yield forbidden(path.key(str(number)).child("reason"), f"must be {reasons}; only virt-controller may write others")
        for field in ("targetNode", "targetPod"):
            if entry.get(field) != _status(write.old).get(field):
                yield forbidden(path.key(str(number)).child(field), "must be that of the Migration")
        if departure.is_released(write.old) or departure.is_released(write.new) or _has_moved(write):
            yield forbidden(path.key(str(number)), "the guest left the source")
        yield from differences.moment(path.key(str(number)).child("endTime"), entry.get("endTime"), write.now)


def _outcome(write: MigrationWrite) -> Iterator[FieldError]:
    """Yield why the Migration may not end this way. The guest is where ``podName`` of the machine says, also after the guest's end."""
    after = phases.phase_of(write.new)
    if after not in phases.MIGRATION_FINAL:
        return
    path = STATUS.child("phase")
    moved = _has_moved(write)
    if after == phases.SUCCEEDED:
        if not moved:
            yield forbidden(path, "the virtual machine is not in the target's pod")
        return
    if moved or departure.is_released(write.old):
        yield forbidden(path, "the guest left the source")
    if after == phases.CANCELLED and not objects.is_deleting(write.old):
        yield forbidden(path, "the Migration is not being deleted")


def _has_moved(write: MigrationWrite) -> bool:
    target = _status(write.old).get("targetPod")
    return bool(target) and dig_vm(write.machine, "status", "podName") == target


def _status(obj: Object) -> Object:
    status: Object = obj.get("status") or {}
    return status
