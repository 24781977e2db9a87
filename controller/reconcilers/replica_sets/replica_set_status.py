"""A set's status, from its plan. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import names, times
from apiserver.apis.meta.objects import Object, generation_of, labels_of, name_of, new_condition, with_condition, without_condition
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_replica_set
from apiserver.apis.virt.lifecycle import ordinals, replica_sets, revisions, summary
from controller.reconcilers.replica_sets import readiness, rollout_plan
from controller.reconcilers.replica_sets.replica_set_plan import Plan, min_ready_seconds, wanted_replicas

MAX_READ: Final = 8192
"""Characters of a refusal's message that the set reads. A tenant can fill the rest: virt-api repeats values of the template."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a condition is True: a refused write of a machine, or what the set waits for."""

    reason: str
    message: str


def refusal(replica_set: Object, reason: str, message: str) -> Failure:
    """Return the Failure of a refused write, without the random characters of a new machine: of its name, only the prefix.

    New characters in each pass would change the status, which starts the next pass at once.
    """
    if reason != replica_sets.FAILED_CREATE or ordinals.has_ordinals(replica_set):
        return Failure(reason, message)
    prefix = f"{name_of(replica_set)}-"[: names.MAX_GENERATED_BASE]
    random_name = rf"{re.escape(prefix)}([{names.GENERATED_ALPHABET}]{{{names.GENERATED_SUFFIX}}})(?![a-z0-9])"
    told = re.sub(random_name, prefix, message[:MAX_READ])
    for suffix in set(re.findall(random_name, message[:MAX_READ])):
        told = told.replace(suffix, "$(vm.suffix)")  # in a value with this placeholder
    return Failure(reason, told)


def status(replica_set: Object, plan: Plan, failure: Failure | None, now: datetime) -> Object:
    """Return the set's new, whole ``status``; ``failure``: a write that was refused in this pass."""
    wanted = (dig_replica_set(replica_set, "spec", "template", "metadata", "labels") or {}).items()
    available = [readiness.available_from(vm, min_ready_seconds(replica_set)) for vm in plan.active]
    return {
        "replicas": len(plan.active),
        "fullyLabeledReplicas": sum(1 for vm in plan.active if wanted <= labels_of(vm).items()),
        "readyReplicas": sum(1 for each in available if each is not None),
        "availableReplicas": sum(1 for each in available if each is not None and each <= now),
        "terminatingReplicas": plan.terminating,
        "finishedReplicas": plan.finished,
        "observedGeneration": generation_of(replica_set),
        **_revisions(replica_set, plan),
        "conditions": _conditions(replica_set, failure or _back_off(plan), _lack(replica_set, plan, now), now),
    }


def _revisions(replica_set: Object, plan: Plan) -> Object:
    if not (newest := revisions.newest(replica_set)):
        return {}
    return {
        "currentRevision": newest if plan.rollout.is_complete else revisions.current(replica_set),
        "updateRevision": newest,
        "updatedReplicas": plan.rollout.updated,
        "revisions": revisions.of_set(replica_set),
    }


def _back_off(plan: Plan) -> Failure | None:
    text = f"the set replaces finished machines after a pause; these wait: {plan.waiting}"
    return Failure(replica_sets.BACK_OFF, text) if plan.waiting else None


def _lack(replica_set: Object, plan: Plan, now: datetime) -> Failure | None:
    """Return a failure with what the set waits for; None once all replicas are available or off, and a rolling update is complete.

    With random names, only a machine that its run strategy keeps off counts as off: one that a user stopped delays the set.
    """
    seconds = min_ready_seconds(replica_set)
    available = [readiness.available_from(vm, seconds) for vm in plan.active]
    wanted = wanted_replicas(replica_set)
    unavailable = [vm for vm, each in zip(plan.active, available, strict=True) if each is None or each > now]
    is_off = rollout_plan.is_at_rest if ordinals.has_ordinals(replica_set) else readiness.is_off_as_specified
    lacking = [vm for vm in unavailable if not is_off(vm)]
    settled = len(plan.active) - len(lacking)
    rolls = revisions.newest(replica_set) and revisions.strategy_of(replica_set) == revisions.ROLLING_UPDATE
    stale = wanted - plan.rollout.updated if rolls and not revisions.partition(replica_set) else 0
    if settled == len(plan.active) == wanted and not stale and not plan.rollout.restarting and not plan.rollout.behind:
        return None
    told = [f"{settled} of {wanted} machines are available{' or off' if len(lacking) < len(unavailable) else ''}"]
    if stale:
        told.append(f"{plan.rollout.updated} have the newest template")
    if plan.rollout.restarting:
        told.append(f"{plan.rollout.restarting} are about to restart or stop")
    if plan.rollout.behind:
        told.append(f"{plan.rollout.behind} guests lack a part of the newest template (status.changes, RestartRequired)")
    if len(plan.active) != wanted:
        told.append(f"the set has {len(plan.active)}")
    told += [f"{name_of(vm)}: {_state(vm)}" for vm in lacking[:1]]
    return Failure(replica_sets.REPLICAS_UNAVAILABLE, "; ".join(told))


def _state(vm: Object) -> str:
    return "malformed" if structure.of_virtual_machine(vm) else summary.reason(vm) or summary.word(vm)


def _conditions(replica_set: Object, failure: Failure | None, lack: Failure | None, now: datetime) -> list[Object]:
    found: list[Any] = list(dig_replica_set(replica_set, "status", "conditions") or ())
    pause = Failure(replica_sets.PAUSED, "spec.paused is true") if dig_replica_set(replica_set, "spec", "paused") else None
    reasons = {replica_sets.REPLICA_FAILURE: failure, replica_sets.REPLICA_PAUSED: pause, replica_sets.RECONCILING: lack}
    for kind, why in reasons.items():
        if why is None:
            found = without_condition(found, kind)
        else:
            found = with_condition(found, new_condition(replica_set, kind, "True", why.reason, why.message), now=times.to_rfc3339(now))
    return found
