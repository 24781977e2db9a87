"""The verbs of a machine.

``start``, ``stop`` and ``restart`` write ``status.request``, ``pause`` and ``unpause`` write ``status.pause``
(:mod:`apiserver.apis.virt.lifecycle.power`). ``reset``, ``softreboot``, ``nmi``, ``sendkey``, ``freeze`` and ``thaw``
append to ``status.operations`` (:mod:`apiserver.apis.virt.lifecycle.operations`). A verb without effect is a Conflict.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta import errors, objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, departure, freezing, keys, managed_save, operations, phases, power, summary
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.spec import running
from apiserver.apis.virt.spec.described import domain_of
from apiserver.registry.generic.strategy import AnyVerb, CreatingVerb, DeletingVerb, Verb
from apiserver.registry.virt import remedies, verb_options

Refusal = str | None
"""Why the verb is refused; completes ``Operation cannot be fulfilled on … "vm1": …``."""
NewId = Callable[[], str]


def new_id() -> str:
    """Return a random id for an operation."""
    return str(uuid.uuid4())


class LevelVerb(Verb):
    """A verb that sets a level, such as on or paused. Repeated calls with the same ``id`` in the body have no effect."""

    options: frozenset[str] = frozenset()
    """Further fields of the body."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Set the level in ``obj``, unless the body has the id of an earlier call of this verb; return ``obj``.

        Raises Invalid, Conflict.
        """
        verb_options.require(obj, body, self.options | {"id"})
        given = body.get("id")
        if given and (known := _verb_of(obj, given)):
            if known != self.name:
                raise conflict(obj, f"the id {given} is that of another call: {known}")
            return obj
        self.set_level(obj, body, now)
        if given:
            power.keep_call(obj, given, self.name)
        return obj

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Set the level, in place. Raises Conflict, Invalid."""
        raise NotImplementedError


class Start(LevelVerb):
    """Turns the machine on; the next attempt may begin paused, on nodes with some labels, or without a suspended guest's memory."""

    options = frozenset({"paused", "nodeSelector", "discardState"})

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.request``: start; if requested, also pause, and drop a suspended guest's image from the status."""
        selector, discards = body.get("nodeSelector"), bool(body.get("discardState"))
        raise_if_refused(obj, refuse_discarding if discards else refuse_start)
        if selector and (fixed := objects.dig(obj, "spec", "nodeName")):
            raise conflict(obj, f"spec.nodeName puts the virtual machine on node {fixed}, so the node cannot be chosen")
        if discards:
            _discard_image(obj)
        request(obj, power.START, now, {"nodeSelector": selector} if selector else {})
        if body.get("paused"):
            power.set_pause(obj, times.to_rfc3339_micro(now), wanted=True, attempt=power.current_attempt(obj) + 1)


class Resume(LevelVerb):
    """Turns a suspended machine on, from its image."""

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.request``: start the next attempt."""
        del body
        raise_if_refused(obj, refuse_resume)
        request(obj, power.START, now)


class Restart(LevelVerb):
    """Ends the current attempt, and begins the next."""

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.request``: restart."""
        del body
        raise_if_refused(obj, refuse_restart)
        request(obj, power.RESTART, now)


class Stop(LevelVerb):
    """Turns the machine off; during a shutdown or deletion, only accepted with a shorter grace period."""

    def __init__(self, name: str, grace_seconds: int | None = None) -> None:
        """``grace_seconds``: of every call; None: the body may have it."""
        super().__init__(name)
        self.options = frozenset({"gracePeriodSeconds"} if grace_seconds is None else ())
        self._grace_seconds = grace_seconds

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.request``: stop, with the grace period."""
        grace = body.get("gracePeriodSeconds") if self._grace_seconds is None else self._grace_seconds
        if grace is not None and grace > (most := power.grace_of_spec(obj)):
            raise verb_options.invalid(obj, "gracePeriodSeconds", grace, f"must not exceed spec.terminationGracePeriodSeconds: {most}")
        if (reason := _refuse_deleting(obj) or refuse_stop(obj)) is not None and not _shortens(obj, grace):
            raise conflict(obj, reason)
        request(obj, power.STOP, now, {} if grace is None else {"gracePeriodSeconds": grace})


class Pause(LevelVerb):
    """Sets the pause of the current attempt."""

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.pause``: stop the processors."""
        del body
        raise_if_refused(obj, refuse_pause)
        power.set_pause(obj, times.to_rfc3339_micro(now), wanted=True)


class Unpause(LevelVerb):
    """Ends the pause of the current attempt, and resumes a guest that a fault stopped."""

    def __init__(self, name: str, new: NewId = new_id) -> None:
        super().__init__(name)
        self._new_id = new

    def set_level(self, obj: Object, body: Object, now: datetime) -> None:
        """Write ``status.pause``: run the processors; also resume a guest that a fault stopped."""
        del body
        raise_if_refused(obj, refuse_unpause)
        power.set_pause(obj, times.to_rfc3339_micro(now), wanted=False)
        if conditions.was_stopped_by_a_fault(_conditions(obj)):
            _append(obj, operations.RESUME, self._new_id(), now)


class OperationVerb(Verb):
    """A verb that is carried out once: it appends to ``status.operations``. With the body's ``id``, clients can retry.

    ``parameters`` are further fields of the body with their defaults; None: required.
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
        """Add an entry to ``status.operations`` of ``obj``, unless it lists the body's id; return ``obj``. Raises Invalid, Conflict."""
        needed = frozenset(name for name, default in self._parameters.items() if default is None)
        verb_options.require(obj, body, frozenset({"id", *self._parameters}), needed)
        given = body.get("id")
        if given and (known := _verb_of(obj, given)):
            if known != self._action:
                raise conflict(obj, f"the id {given} is that of another call: {known}")
            return obj
        raise_if_refused(obj, self._refuse)
        _append(obj, self._action, given or self._new_id(), now, self.parameters(obj, body))
        return obj

    def parameters(self, obj: Object, body: Object) -> Mapping[str, Any]:
        """Return the operation's parameters: those of the body, else the defaults."""
        del obj
        return {name: default if body.get(name) is None else body[name] for name, default in self._parameters.items()}


class Suspend(OperationVerb):
    """Saves the guest's memory where ``spec.managedSave`` says, and ends its pod."""

    def __init__(self) -> None:
        super().__init__(operations.SUSPEND, refuse_suspend)

    def parameters(self, obj: Object, body: Object) -> Mapping[str, Any]:
        """Return ``{"nodeDisk": True}`` if the spec wants that, else the body's or the default parameters."""
        return {managed_save.NODE_DISK: True} if managed_save.wants_node_disk(obj["spec"]) else super().parameters(obj, body)


class Migrate(CreatingVerb):
    """Creates a Migration of this machine.

    The body may have ``nodeSelector``, ``priority``, and an ``id``, which becomes part of the Migration's name.
    """

    creates = MIGRATIONS
    _OPTIONS: Final = frozenset({"id", "nodeSelector", "priority"})

    def name_for_id(self, obj: Object, body: Object) -> str:
        """Return the Migration's name for the body's id; empty without an id. Raises Invalid."""
        verb_options.require(obj, body, self._OPTIONS)
        return f"{obj['metadata']['name']}-{body['id'].lower()}" if body.get("id") else ""

    def is_of(self, obj: Object, made: Object) -> bool:
        """Return whether this Migration is for a machine of this name."""
        return bool(objects.dig(made, "spec", "selector", "name") == obj["metadata"]["name"])

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the Migration. Writing it takes the machine's lock. Raises Conflict, or Invalid for a wrong body."""
        del now
        name = self.name_for_id(obj, body)
        raise_if_refused(obj, refuse_migrate)
        selector, node = body.get("nodeSelector") or {}, dig_vm(obj, "status", "nodeName")
        if node and node in (selector.get(names.HOSTNAME_LABEL), selector.get(names.HOSTNAME_SELECTOR)):
            raise conflict(obj, f"the guest already runs on node {node}: choose another node, or none")
        metadata = obj["metadata"]
        spec: Object = {"selector": {"name": metadata["name"]}}
        if body.get("nodeSelector"):
            spec["nodeSelector"] = body["nodeSelector"]
        if body.get("priority") is not None:
            spec["priority"] = body["priority"]
        return {
            "apiVersion": MIGRATIONS.api_version,
            "kind": MIGRATIONS.kind,
            "metadata": {**({"name": name} if name else {"generateName": f"{metadata['name']}-"}), "namespace": metadata["namespace"]},
            "spec": spec,
        }


class CancelMigration(DeletingVerb):
    """Deletes the machine's unfinished Migration, or only the one that the body names."""

    deletes = MIGRATIONS

    def candidates(self, obj: Object) -> str:
        """Return the field selector of the machine's Migrations."""
        return f"spec.selector.name={obj['metadata']['name']}"

    def choose(self, obj: Object, body: Object, found: Sequence[Object]) -> Object:
        """Return the unfinished Migration, which must be the one that ``body`` names, if it names one.

        Raises Conflict without one, or if the guest has moved already; Invalid for a wrong body.
        """
        verb_options.require(obj, body, frozenset({"migration"}))
        name = body.get("migration")
        chosen = next((each for each in found if phases.is_unfinished(each) and name in (None, objects.name_of(each))), None)
        if chosen is None:
            raise conflict(obj, f"it is not being migrated by {name}" if name else "it is not being migrated")
        if departure.is_released(chosen):
            moved = objects.name_of(chosen)
            raise conflict(obj, f"cannot cancel migration {moved}: the guest has already moved; {moved} will be Succeeded soon")
        return chosen


def refuse_start(vm: Object) -> Refusal:
    """Return why the machine cannot start, or None."""
    decision = power.decide(vm)
    if not decision.on or _waits_to_retry(vm, decision):
        return None
    if phases.phase_of(vm) not in phases.WITH_POD or not _is_open(vm, decision):
        return _being_started(vm)
    if (state := summary.word(vm)) == summary.PAUSED:
        return f"the virtual machine is already on, but paused; to continue it: kubectl virt unpause {objects.name_of(vm)}"
    return f"the virtual machine is already on ({state})"


def refuse_discarding(vm: Object) -> Refusal:
    """Return why a start cannot discard a suspended guest's image; None if it can, as also between failing resumes."""
    if phases.phase_of(vm) in phases.WITH_POD:
        return f"the virtual machine is already on ({summary.word(vm)})"
    return None if managed_save.of(vm) else "the virtual machine is not suspended; start boots it"


def refuse_resume(vm: Object) -> Refusal:
    """Return why the machine cannot resume from its managed save; None if it can."""
    refused = refuse_start(vm)
    return refused if refused or managed_save.of(vm) else "the virtual machine is not suspended; start boots it"


def refuse_stop(vm: Object) -> Refusal:
    """Return why a stop is refused: the machine is off or being shut down; else None."""
    decision = power.decide(vm)
    if decision.on:
        return None
    if phases.phase_of(vm) in phases.WITH_POD:
        return "the virtual machine is already being shut down"
    return f"the virtual machine is already off ({summary.word(vm)})"


def refuse_restart(vm: Object) -> Refusal:
    """Return why the machine cannot restart, or None."""
    decision = power.decide(vm)
    if _waits_to_retry(vm, decision):
        return None
    if phases.phase_of(vm) not in phases.WITH_POD:
        return _being_started(vm) if decision.on else f"the virtual machine is off ({summary.word(vm)}); {remedies.of_absent_guest(vm)}"
    if not decision.on:
        return f"the virtual machine is being shut down ({summary.word(vm)}); {remedies.of_absent_guest(vm)}"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is already being restarted"
    return None


def refuse_pause(vm: Object) -> Refusal:
    """Return why the machine cannot pause, or None."""
    return _refuse_busy(vm, "pause") or ("the virtual machine is already paused" if power.wants_paused(vm) else None)


def refuse_unpause(vm: Object) -> Refusal:
    """Return why the machine cannot be unpaused, or None."""
    busy = _refuse_busy(vm, "unpause")
    if busy is not None:
        return busy
    if power.wants_paused(vm) or objects.is_true(_conditions(vm), conditions.PAUSED):
        return None
    return f"the virtual machine is not paused ({summary.word(vm)})"


def refuse_reset(vm: Object) -> Refusal:
    """Return why the guest cannot be reset, or None."""
    busy = _refuse_busy(vm, "reset")
    if busy is not None:
        return busy
    paused = objects.condition(_conditions(vm), conditions.PAUSED) or {}
    if (paused.get("status"), paused.get("reason")) == ("True", conditions.GUEST_SUSPENDED):
        return "the guest suspended itself to memory; kubectl virt unpause wakes it, and then it can be reset"
    return None


def _refuse_still(verb: str) -> Callable[[Object], Refusal]:
    """Return a function that returns why ``verb`` cannot be done (the guest is off, busy or paused), or None."""

    def refuse(vm: Object) -> Refusal:
        stands = power.wants_paused(vm) or objects.is_true(_conditions(vm), conditions.PAUSED)
        first = f"the guest is paused; unpause it first: kubectl virt unpause {objects.name_of(vm)}"
        return _refuse_busy(vm, verb) or (first if stands else None)

    return refuse


_refuse_reboot = _refuse_still("reboot")
_refuse_freezing = _refuse_still("freeze")
_refuse_thawing = _refuse_still("thaw")


def refuse_softreboot(vm: Object) -> Refusal:
    """Return why the guest cannot be asked to reboot, or None."""
    return _refuse_reboot(vm) or _refuse_frozen(vm)


def refuse_freeze(vm: Object) -> Refusal:
    """Return why the guest's file systems cannot be frozen, or None."""
    return _refuse_freezing(vm) or _refuse_frozen(vm)


def refuse_thaw(vm: Object) -> Refusal:
    """Return why the guest's file systems cannot be thawed, or None."""
    frozen = freezing.is_frozen(vm) or any(each.get("action") == operations.FREEZE for each in operations.unfinished(vm))
    return _refuse_thawing(vm) or (None if frozen else "the guest's file systems are not frozen")


refuse_set_password = _refuse_still("set a password in")


def _refuse_frozen(vm: Object) -> Refusal:
    return "the guest's file systems are frozen; thaw them first" if freezing.is_frozen(vm) else None


def refuse_suspend(vm: Object) -> Refusal:
    """Return why the guest's memory cannot be saved, or None."""
    busy = _refuse_busy(vm, "suspend") or _refuse_frozen(vm)
    if busy is not None:
        return busy
    claim = managed_save.claim_of(running.spec_of(vm))
    if managed_save.wants_node_disk(vm["spec"]):
        if claim:
            return f"the guest's pod has claim {claim} of an earlier spec.managedSave: restart the virtual machine first"
    elif not claim:
        if managed_save.claim_of(vm["spec"]):
            return "spec.managedSave was set after the guest's start: restart the virtual machine first"
        ways = "set spec.managedSave.claimName and restart it first, or set spec.managedSave.nodeDisk"
        return f"the virtual machine has no place for its memory: {ways}"
    if lost := [each["name"] for each in disks.defaulted(domain_of(vm)) if disks.is_overlaid(each)]:
        return f"what the guest wrote to disk {', '.join(lost)} exists only in its pod, which suspend deletes: use a PersistentVolumeClaim"
    return None


def refuse_migrate(vm: Object) -> Refusal:
    """Return why the machine cannot migrate, or None."""
    busy = _refuse_busy(vm, "migrate") or _refuse_frozen(vm)
    if busy is not None:
        return busy
    if (condition := conditions.false_condition(vm, conditions.MIGRATABLE)) is not None:
        return f"the virtual machine cannot be migrated: {condition.get('message') or condition.get('reason') or 'it is not migratable'}"
    return None


def conflict(vm: Object, reason: str) -> errors.Conflict:
    """Return the Conflict for a verb in the wrong state."""
    name = vm["metadata"]["name"]
    resource = VIRTUAL_MACHINES
    details = errors.Details(name=name, group=resource.group, kind=resource.plural)
    return errors.Conflict(f'Operation cannot be fulfilled on {resource.plural}.{resource.group} "{name}": {reason}', details)


VERBS: Final[Mapping[str, AnyVerb]] = {
    "start": Start("start"),
    "stop": Stop("stop"),
    "poweroff": Stop("poweroff", grace_seconds=0),
    "restart": Restart("restart"),
    "suspend": Suspend(),
    "resume": Resume("resume"),
    "pause": Pause("pause"),
    "unpause": Unpause("unpause"),
    "reset": OperationVerb(operations.RESET, refuse_reset),
    "softreboot": OperationVerb(operations.SOFT_REBOOT, refuse_softreboot),
    "nmi": OperationVerb(operations.INJECT_NMI, _refuse_still("inject an NMI into")),
    "sendkey": OperationVerb(
        operations.SEND_KEY,
        _refuse_still("send keys to"),
        parameters={"keys": None, "holdMilliseconds": keys.DEFAULT_HOLD_MILLISECONDS},
    ),
    "freeze": OperationVerb(operations.FREEZE, refuse_freeze, parameters={"unfreezeTimeoutSeconds": freezing.UNFREEZE_TIMEOUT_SECONDS}),
    "thaw": OperationVerb(operations.THAW, refuse_thaw),
    "migrate": Migrate(),
    "cancelmigration": CancelMigration(),
}


def raise_if_refused(vm: Object, refuse: Callable[[Object], Refusal]) -> None:
    """Raise a Conflict if the machine is being deleted, or ``refuse`` returns a reason."""
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
        raise conflict(
            vm, f"{operations.MAX_KEPT} operations of the virtual machine are unfinished; wait until one of status.operations ends"
        )
    vm["status"]["operations"] = found


def request(vm: Object, action: power.Action, now: datetime, more: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write ``status.request`` for ``action``, with the fields ``more``, in place; checks nothing."""
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


def _verb_of(vm: Object, call_id: str) -> str:
    operation, call = operations.find(vm, call_id), power.call_of(vm, call_id)
    return str((operation or {}).get("action") or (call or {}).get("verb") or "")


def _shortens(vm: Object, grace_seconds: int | None) -> bool:
    return phases.phase_of(vm) in phases.WITH_POD and grace_seconds is not None and grace_seconds < power.grace_seconds(vm)


def _refuse_deleting(vm: Object) -> Refusal:
    return "the virtual machine is being deleted" if vm["metadata"].get("deletionTimestamp") else None


def _refuse_busy(vm: Object, verb: str) -> Refusal:
    decision = power.decide(vm)
    if phases.phase_of(vm) != phases.RUNNING:
        return f"cannot {verb} a virtual machine that is not running ({summary.word(vm)}); {remedies.of_absent_guest(vm)}"
    if not decision.on:
        return "the virtual machine is being shut down"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is being restarted"
    if managed_save.suspending(vm) is not None:
        return "the virtual machine is being suspended"
    migration = (vm.get("status") or {}).get("migration") or {}
    if migration.get("name") and migration.get("phase") not in phases.MIGRATION_FINAL:
        way = f"wait until it ends, or cancel it: kubectl delete {MIGRATIONS.plural}/{migration['name']}"
        return f'the virtual machine is being migrated (migration "{migration["name"]}"): {way}'
    return None


def _being_started(vm: Object) -> str:
    return f"the virtual machine is already being started ({summary.word(vm)}); {remedies.of_absent_guest(vm)}"


def _discard_image(vm: Object) -> None:
    claim = (managed_save.of(vm) or {}).get("claimName")
    if claim and claim != managed_save.claim_of(vm["spec"]):
        raise conflict(
            vm, f"the image is in PersistentVolumeClaim {claim}, which spec.managedSave no longer names: it could not be deleted"
        )
    for field in (managed_save.FIELD, running.RUNNING):
        vm["status"].pop(field, None)


def _waits_to_retry(vm: Object, decision: power.Power) -> bool:
    """Return whether the machine is between an ended attempt and an automatic next one."""
    return decision.on and decision.reason != "Requested" and phases.phase_of(vm) in phases.ENDED


def _is_open(vm: Object, decision: power.Power) -> bool:
    return decision.attempt == power.current_attempt(vm)


def _conditions(vm: Object) -> list[Any]:
    return dig_vm(vm, "status", "conditions") or []
