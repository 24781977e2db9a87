"""The verbs ``start``, ``stop``, ``restart``, ``pause``, ``unpause``, ``migrate``: requests and refusals.

A verb writes ``status.request``, read through :mod:`apiserver.apis.virt.lifecycle.power`. One without effect is a Conflict,
because silence would look like a lost request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import errors, objectmeta, objects, times, validation
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions, phases, power
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.v1alpha1.validation import MAX_PRIORITY
from apiserver.registry.generic.strategy import CreatingVerb, Verb

Refusal = str | None
"""Why the verb is refused now; completes ``Operation cannot be fulfilled on … "vm1": …``."""


class RequestVerb(Verb):
    """A verb recorded in ``status.request``."""

    def __init__(self, action: str, refuse: Callable[[Object], Refusal]) -> None:
        self._action = action
        self._refuse = refuse

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        """Record the request for its attempt (Start, Restart: the next one)."""
        _require_fields(obj, body, frozenset())
        reason = _refuse_deleting(obj) or self._refuse(obj)
        if reason is not None:
            raise conflict(obj, reason)
        current = power.current_attempt(obj)
        status = obj.setdefault("status", {})
        status["request"] = {
            "action": self._action,
            "time": times.to_rfc3339_micro(now),
            "runStrategy": power.strategy_of(obj),
            "generation": int(obj["metadata"].get("generation") or 0),
            "attempt": current + 1 if self._action in (power.START, power.RESTART) else current,
        }
        return obj


class Migrate(CreatingVerb):
    """Creates a Migration of this virtual machine; the body may have its ``nodeSelector`` and ``priority``."""

    creates = MIGRATIONS

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        """Return the Migration; its write takes the machine's lock."""
        del now
        _require_fields(obj, body, frozenset({"nodeSelector", "priority"}))
        reason = _refuse_deleting(obj) or refuse_migrate(obj)
        if reason is not None:
            raise conflict(obj, reason)
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
    """Return why this machine cannot be started."""
    decision = power.decide(vm)
    if not decision.on:
        return None
    if _is_open(vm, decision):
        return f"the virtual machine is already on ({phases.phase_of(vm) or 'Pending'})"
    return "the virtual machine is already going to be started"


def refuse_stop(vm: Object) -> Refusal:
    """Return why this machine cannot be stopped."""
    decision = power.decide(vm)
    if decision.on:
        return None
    if phases.phase_of(vm) in phases.WITH_POD:
        return "the virtual machine is already being shut down"
    return "the virtual machine is already off"


def refuse_restart(vm: Object) -> Refusal:
    """Return why this machine cannot be restarted."""
    decision = power.decide(vm)
    if phases.phase_of(vm) not in phases.WITH_POD:
        return "the virtual machine has not been started yet" if decision.on else "the virtual machine is off; start it instead"
    if not decision.on:
        return "the virtual machine is being shut down; start it instead"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is already being restarted"
    return None


def refuse_pause(vm: Object) -> Refusal:
    """Return why this machine cannot be paused."""
    return _refuse_busy(vm, "pause") or ("the virtual machine is already paused" if power.wants_paused(vm) else None)


def refuse_unpause(vm: Object) -> Refusal:
    """Return why this machine cannot be unpaused."""
    busy = _refuse_busy(vm, "unpause")
    if busy is not None:
        return busy
    return None if power.wants_paused(vm) or objects.is_true(_conditions(vm), conditions.PAUSED) else "the virtual machine is not paused"


def refuse_migrate(vm: Object) -> Refusal:
    """Return why this machine cannot be migrated."""
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
    "start": RequestVerb(power.START, refuse_start),
    "stop": RequestVerb(power.STOP, refuse_stop),
    "restart": RequestVerb(power.RESTART, refuse_restart),
    "pause": RequestVerb(power.PAUSE, refuse_pause),
    "unpause": RequestVerb(power.UNPAUSE, refuse_unpause),
    "migrate": Migrate(),
}


def _refuse_deleting(vm: Object) -> Refusal:
    return "the virtual machine is being deleted" if vm["metadata"].get("deletionTimestamp") else None


def _refuse_busy(vm: Object, verb: str) -> Refusal:
    """Refuse unless the machine is running, and not being stopped, restarted or migrated."""
    phase = phases.phase_of(vm)
    if phase != phases.RUNNING:
        return f"only a running virtual machine can {verb}; this one is {phase or 'Pending'}"
    decision = power.decide(vm)
    if not decision.on:
        return "the virtual machine is being shut down"
    if decision.attempt != power.current_attempt(vm):
        return "the virtual machine is being restarted"
    migration = (vm.get("status") or {}).get("migration") or {}
    if migration.get("name") and migration.get("phase") not in phases.MIGRATION_FINAL:
        way = f"wait for its end; see kubectl get {MIGRATIONS.plural}/{migration['name']}, deleting it cancels it"
        return f'the virtual machine is being migrated (migration "{migration["name"]}"): {way}'
    return None


def _is_open(vm: Object, decision: power.Power) -> bool:
    return decision.attempt == power.current_attempt(vm)


def _conditions(vm: Object) -> list[dict[str, Any]]:
    return objects.dig(vm, "status", "conditions") or []


def _require_fields(vm: Object, body: Object, allowed: frozenset[str]) -> None:
    """Refuse unsupported fields."""
    unknown = sorted(body.keys() - allowed - {"kind", "apiVersion"})
    found = [validation.unknown_field(each) for each in unknown]
    selector = body.get("nodeSelector")
    if "nodeSelector" in allowed and selector is not None:
        path = validation.Path("nodeSelector")
        if not isinstance(selector, dict) or not all(isinstance(each, str) for each in selector.values()):
            found.append(validation.type_invalid(path, selector, "must be an object whose values are strings"))
        else:
            found += objectmeta.validate_labels(selector, path)
    priority = body.get("priority")
    if "priority" in allowed and priority is not None:
        path = validation.Path("priority")
        if not isinstance(priority, int) or isinstance(priority, bool):
            found.append(validation.type_invalid(path, priority, "must be an integer"))
        elif abs(priority) > MAX_PRIORITY:
            found.append(validation.invalid(path, priority, f"must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, inclusive"))
    validation.raise_if_any(found, group=names.GROUP, kind="Options", name=objects.name_of(vm))
