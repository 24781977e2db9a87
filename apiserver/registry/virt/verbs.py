"""The verbs of a virtual machine: requests and refusals.

``start``, ``stop`` and ``restart`` write ``status.request``, ``pause`` and ``unpause`` write ``status.pause``
(:mod:`apiserver.apis.virt.lifecycle.power`). ``reset``, ``softreboot``, ``nmi``
and ``sendkey`` append to ``status.operations`` (:mod:`apiserver.apis.virt.lifecycle.operations`), and so does ``unpause`` of a guest that a
fault stopped. A verb without effect is a Conflict, because silence would look like a lost request.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.lifecycle import conditions, keys, managed_save, operations, phases, power
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.spec import running
from apiserver.apis.virt.spec.described import domain_of
from apiserver.registry.generic.strategy import CreatingVerb, Verb
from apiserver.registry.virt import verb_options

Refusal = str | None
"""Why the verb is refused now; completes ``Operation cannot be fulfilled on … "vm1": …``."""
NewId = Callable[[], str]


def new_id() -> str:
    """Return a random id for an operation."""
    return str(uuid.uuid4())


class PowerVerb(Verb):
    """A verb that turns the machine on, recorded in ``status.request``."""

    def __init__(self, action: power.Action, refuse: Callable[[Object], Refusal], *, discards: bool = False) -> None:
        """``discards``: the body may have ``discardState``, which deletes the image of a suspended guest."""
        self._action = action
        self._refuse = refuse
        self._discards = discards

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Record the verb in ``status.request`` for the next attempt."""
        verb_options.require(obj, body, frozenset({"discardState"} if self._discards else ()))
        discards = bool(body.get("discardState"))
        _raise_if_refused(obj, refuse_discarding if discards else self._refuse)
        if discards:
            _discard_image(obj)
        _request(obj, self._action, now)
        return obj


class Stop(Verb):
    """Turns the machine off. A shorter grace period than that of a shutdown in progress replaces it, also while the machine is deleted."""

    def __init__(self, grace_seconds: int | None = None) -> None:
        """``grace_seconds``: of every call; None: the body may have it."""
        self._grace_seconds = grace_seconds

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Record the verb in ``status.request``, with its grace period."""
        verb_options.require(obj, body, frozenset({"gracePeriodSeconds"} if self._grace_seconds is None else ()))
        grace = body.get("gracePeriodSeconds") if self._grace_seconds is None else self._grace_seconds
        if grace is not None and grace > (most := power.grace_of_spec(obj)):
            raise verb_options.invalid(obj, "gracePeriodSeconds", grace, f"must not exceed spec.terminationGracePeriodSeconds: {most}")
        if (reason := _refuse_deleting(obj) or refuse_stop(obj)) is not None and not _shortens(obj, grace):
            raise conflict(obj, reason)
        _request(obj, power.STOP, now, {} if grace is None else {"gracePeriodSeconds": grace})
        return obj


class Pause(Verb):
    """Sets the pause of the current attempt."""

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Request in ``status.pause`` that the guest's processors stand still."""
        verb_options.require(obj, body, frozenset())
        _raise_if_refused(obj, refuse_pause)
        power.set_pause(obj, times.to_rfc3339_micro(now), wanted=True)
        return obj


class Unpause(Verb):
    """Ends the pause of the current attempt; a guest that something else stopped is resumed once, by an operation."""

    def __init__(self, new: NewId = new_id) -> None:
        self._new_id = new

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Request in ``status.pause`` that the guest's processors run; resume a guest that a fault stopped."""
        verb_options.require(obj, body, frozenset())
        _raise_if_refused(obj, refuse_unpause)
        power.set_pause(obj, times.to_rfc3339_micro(now), wanted=False)
        if conditions.was_stopped_by_a_fault(_conditions(obj)):
            _append(obj, operations.RESUME, self._new_id(), now)
        return obj


class OperationVerb(Verb):
    """A verb that is carried out once: it appends to ``status.operations``. The body may hold the ``id``, so that a client can retry.

    ``parameters`` are further fields of the body with their defaults; None: the caller must give it.
    """

    def __init__(
        self,
        action: operations.Action,
        refuse: Callable[[Object], Refusal],
        new: NewId = new_id,
        parameters: Mapping[str, Any] = operations.NO_PARAMETERS,
    ) -> None:
        self._action = action
        self._refuse = refuse
        self._new_id = new
        self._parameters = parameters

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Append to ``status.operations``, unless an operation with this id is listed already."""
        needed = frozenset(name for name, default in self._parameters.items() if default is None)
        verb_options.require(obj, body, frozenset({"id", *self._parameters}), needed)
        given = body.get("id")
        if given and (known := operations.find(obj, given)) is not None:
            if known.get("action") != self._action:
                raise conflict(obj, f"the id {given} is that of another operation: {known.get('action')}")
            return obj
        _raise_if_refused(obj, self._refuse)
        given_parameters = {name: default if body.get(name) is None else body[name] for name, default in self._parameters.items()}
        _append(obj, self._action, given or self._new_id(), now, given_parameters)
        return obj


class Migrate(CreatingVerb):
    """Creates a Migration of this virtual machine; the body may have its ``nodeSelector`` and ``priority``."""

    creates = MIGRATIONS

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the Migration; its write takes the machine's lock."""
        del now
        verb_options.require(obj, body, frozenset({"nodeSelector", "priority"}))
        _raise_if_refused(obj, refuse_migrate)
        metadata = obj["metadata"]
        spec: Object = {"selector": {"name": metadata["name"]}}
        if body.get("nodeSelector"):
            spec["nodeSelector"] = body["nodeSelector"]
        if body.get("priority") is not None:
            spec["priority"] = body["priority"]
        return {
            "apiVersion": MIGRATIONS.api_version,
            "kind": MIGRATIONS.kind,
            "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
            "spec": spec,
        }


def refuse_start(vm: Object) -> Refusal:
    """Return why this machine cannot be started, or None."""
    decision = power.decide(vm)
    if not decision.on:
        return None
    if _is_open(vm, decision):
        return f"the virtual machine is already on ({phases.phase_of(vm) or 'Pending'})"
    return "the virtual machine is already going to be started"


def refuse_discarding(vm: Object) -> Refusal:
    """Return why a start cannot discard the image, or None: also a machine that starts again and again without it may."""
    phase = phases.phase_of(vm)
    if phase in phases.WITH_POD:
        return f"the virtual machine is already on ({phase})"
    return None if managed_save.of(vm) else "the virtual machine is not suspended; start boots it"


def refuse_resume(vm: Object) -> Refusal:
    """Return why this machine cannot be resumed, or None."""
    refused = refuse_start(vm)
    return refused if refused or managed_save.of(vm) else "the virtual machine is not suspended; start boots it"


def refuse_stop(vm: Object) -> Refusal:
    """Return why this machine cannot be stopped, or None."""
    decision = power.decide(vm)
    if decision.on:
        return None
    if phases.phase_of(vm) in phases.WITH_POD:
        return "the virtual machine is already being shut down"
    return "the virtual machine is already off"


def refuse_restart(vm: Object) -> Refusal:
    """Return why this machine cannot be restarted, or None."""
    decision = power.decide(vm)
    if phases.phase_of(vm) not in phases.WITH_POD:
        return "the virtual machine has not been started yet" if decision.on else "the virtual machine is off; start it instead"
    if not decision.on:
        return "the virtual machine is being shut down; start it instead"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is already being restarted"
    return None


def refuse_pause(vm: Object) -> Refusal:
    """Return why this machine cannot be paused, or None."""
    return _refuse_busy(vm, "pause") or ("the virtual machine is already paused" if power.wants_paused(vm) else None)


def refuse_unpause(vm: Object) -> Refusal:
    """Return why this machine cannot be unpaused, or None."""
    busy = _refuse_busy(vm, "unpause")
    if busy is not None:
        return busy
    return None if power.wants_paused(vm) or objects.is_true(_conditions(vm), conditions.PAUSED) else "the virtual machine is not paused"


def refuse_reset(vm: Object) -> Refusal:
    """Return why the guest cannot be reset, or None."""
    busy = _refuse_busy(vm, "reset")
    if busy is not None:
        return busy
    paused = objects.condition(_conditions(vm), conditions.PAUSED) or {}
    if (paused.get("status"), paused.get("reason")) == ("True", conditions.GUEST_SUSPENDED):
        return "the guest suspended itself to memory; unpause wakes it, and then it can be reset"
    return None


def _refuse_still(verb: str) -> Callable[[Object], Refusal]:
    """Return the function that says why a guest cannot take note of a signal: it does not run, or stands still."""

    def refuse(vm: Object) -> Refusal:
        stands = power.wants_paused(vm) or objects.is_true(_conditions(vm), conditions.PAUSED)
        return _refuse_busy(vm, verb) or ("the guest is paused, and would not notice; unpause it first" if stands else None)

    return refuse


def refuse_suspend(vm: Object) -> Refusal:
    """Return why the guest's memory cannot be saved, or None."""
    busy = _refuse_busy(vm, "suspend")
    if busy is not None:
        return busy
    if not managed_save.claim_of(running.spec_of(vm)):
        since = " since its start; restart it" if managed_save.claim_of(vm["spec"]) else ""
        return f"the virtual machine has no claim for its memory{since or ': set spec.managedSave.claimName'}"
    if lost := [each["name"] for each in disks.defaulted(domain_of(vm)) if disks.is_overlaid(each)]:
        return f"what the guest wrote to disk {', '.join(lost)} exists only in its pod, which ends: only claims keep it"
    return None


def refuse_migrate(vm: Object) -> Refusal:
    """Return why this machine cannot be migrated, or None."""
    busy = _refuse_busy(vm, "migrate")
    if busy is not None:
        return busy
    if (condition := conditions.found_false(vm, conditions.MIGRATABLE)) is not None:
        return f"the virtual machine cannot be migrated: {condition.get('message') or condition.get('reason') or 'it is not migratable'}"
    return None


def conflict(vm: Object, reason: str) -> errors.Conflict:
    """Return the Conflict for a verb in the wrong state."""
    name = vm["metadata"]["name"]
    resource = VIRTUAL_MACHINES
    details = errors.Details(name=name, group=resource.group, kind=resource.plural)
    return errors.Conflict(f'Operation cannot be fulfilled on {resource.plural}.{resource.group} "{name}": {reason}', details)


VERBS: Final[Mapping[str, Verb | CreatingVerb]] = {
    "start": PowerVerb(power.START, refuse_start, discards=True),
    "stop": Stop(),
    "poweroff": Stop(grace_seconds=0),
    "restart": PowerVerb(power.RESTART, refuse_restart),
    "suspend": OperationVerb(operations.SUSPEND, refuse_suspend),
    "resume": PowerVerb(power.START, refuse_resume),
    "pause": Pause(),
    "unpause": Unpause(),
    "reset": OperationVerb(operations.RESET, refuse_reset),
    "softreboot": OperationVerb(operations.SOFT_REBOOT, _refuse_still("reboot")),
    "nmi": OperationVerb(operations.INJECT_NMI, _refuse_still("get an NMI")),
    "sendkey": OperationVerb(
        operations.SEND_KEY,
        _refuse_still("get keys"),
        parameters={"keys": None, "holdMilliseconds": keys.DEFAULT_HOLD_MILLISECONDS},
    ),
    "migrate": Migrate(),
}


def _raise_if_refused(vm: Object, refuse: Callable[[Object], Refusal]) -> None:
    reason = _refuse_deleting(vm) or refuse(vm)
    if reason is not None:
        raise conflict(vm, reason)


def _append(
    vm: Object,
    action: operations.Action,
    operation_id: str,
    now: datetime,
    parameters: Mapping[str, Any] = operations.NO_PARAMETERS,
) -> None:
    found = operations.appended(vm, action, operation_id, now, parameters)
    if found is None:
        raise conflict(vm, f"{operations.MAX_KEPT} operations of the virtual machine have no result yet; wait for one: status.operations")
    vm["status"]["operations"] = found


def _request(vm: Object, action: power.Action, now: datetime, more: Mapping[str, Any] = MappingProxyType({})) -> None:
    power.keep_pause(vm)
    current = power.current_attempt(vm)
    vm.setdefault("status", {})["request"] = {
        "action": action,
        "time": times.to_rfc3339_micro(now),
        "runStrategy": power.strategy_of(vm),
        "generation": int(vm["metadata"].get("generation") or 0),
        "attempt": current + 1 if action in (power.START, power.RESTART) else current,
        **more,
    }


def _shortens(vm: Object, grace_seconds: int | None) -> bool:
    """Return whether a guest that may be shutting down gets less time for it."""
    return phases.phase_of(vm) in phases.WITH_POD and grace_seconds is not None and grace_seconds < power.grace_seconds(vm)


def _refuse_deleting(vm: Object) -> Refusal:
    return "the virtual machine is being deleted" if vm["metadata"].get("deletionTimestamp") else None


def _refuse_busy(vm: Object, verb: str) -> Refusal:
    """Return why the machine is not running, or is being stopped, restarted or migrated; else None."""
    phase = phases.phase_of(vm)
    if phase != phases.RUNNING:
        return f"only a running virtual machine can {verb}; this one is {phase or 'Pending'}"
    decision = power.decide(vm)
    if not decision.on:
        return "the virtual machine is being shut down"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is being restarted"
    if managed_save.suspending(vm) is not None:
        return "the virtual machine is being suspended"
    migration = (vm.get("status") or {}).get("migration") or {}
    if migration.get("name") and migration.get("phase") not in phases.MIGRATION_FINAL:
        way = f"wait for its end; see kubectl get {MIGRATIONS.plural}/{migration['name']}, deleting it cancels it"
        return f'the virtual machine is being migrated (migration "{migration["name"]}"): {way}'
    return None


def _discard_image(vm: Object) -> None:
    """Remove the image from the status, in place, with the hardware that it needs: the next start boots, and deletes the file."""
    if (claim := (managed_save.of(vm) or {}).get("claimName")) != managed_save.claim_of(vm["spec"]):
        raise conflict(
            vm, f"the image is in PersistentVolumeClaim {claim}, which spec.managedSave no longer names: it could not be deleted"
        )
    for field in (managed_save.FIELD, running.RUNNING):
        vm["status"].pop(field, None)


def _is_open(vm: Object, decision: power.Power) -> bool:
    return decision.attempt == power.current_attempt(vm)


def _conditions(vm: Object) -> list[dict[str, Any]]:
    return objects.dig(vm, "status", "conditions") or []
