"""The status of a machine that is off and should be off. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import (
    Object,
    condition,
    generation_of,
    new_condition,
    with_condition,
    with_conditions_judged,
    without_condition,
)
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases, power, summary
from controller.reconcilers.actions import Action, Emit
from controller.reconcilers.pods import absences
from controller.reconcilers.virtual_machines import statuses, unreachable_nodes
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

_NOT_OF_AN_END: Final = power.OFF_REASONS | {*unreachable_nodes.REASONS, summary.BACK_OFF, absences.TARGET_MAY_RUN}
"""They do not tell how an attempt ended; the reason why the machine is off replaces them."""


def report(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Return actions for a machine that is off: it keeps phase and message of the last attempt's end, else becomes Stopped.

    The condition Ready says why no further attempt begins.
    """
    status = statuses.status_of(seen)
    ready = condition(status.get("conditions"), conditions.READY) or {}
    gives_up = ready.get("reason") == summary.BACK_OFF and decision.reason in power.ASKED_TO_BE_OFF
    if gives_up or phases.phase_of(seen.vm) not in phases.ENDED:
        status = phases.enter(status, phases.STOPPED, seen.now)
        status["conditions"] = statuses.ready(seen, "False", decision.reason, decision.message)
    elif ready.get("status") == "True" or ready.get("reason") in _NOT_OF_AN_END:
        status["conditions"] = statuses.ready(seen, "False", decision.reason, decision.message)
    if decision.reason in power.ASKED_TO_BE_OFF and power.was_interrupted(seen.vm) and own_pod(seen, seen.pods) is None:
        # If it stayed, an edit of the run strategy would start the machine days later.
        status["conditions"] = without_condition(status["conditions"], conditions.DISRUPTION_TARGET)
    if (found := _at_rest(seen, decision, status.get("conditions") or [])) != (status.get("conditions") or []):
        status["conditions"] = found
    status = with_conditions_judged(seen.vm, status, (conditions.READY, conditions.STALLED, conditions.DISRUPTION_TARGET))
    status["observedGeneration"] = generation_of(seen.vm)
    told = Emit("Normal", power.RESULT_STOPPED, f"{decision.message}: no further attempt")
    return statuses.write(seen, status, *((told,) if gives_up else ()))


def _at_rest(seen: Observed, decision: power.Power, found: list[Object]) -> list[Object]:
    """Return ``found`` without Ready if the spec wants the machine off; with Stalled only after giving up.

    Helm, Flux and kstatus read Ready=False as "not yet", and Stalled=True as "never".
    """
    if power.is_off_by_its_spec(seen.vm, decision):
        return without_condition(without_condition(found, conditions.READY), conditions.STALLED)
    if not power.has_given_up(seen.vm, decision):
        return without_condition(found, conditions.STALLED)
    stalled = condition(dig_vm(seen.vm, "status", "conditions"), conditions.STALLED)
    new = new_condition(seen.vm, conditions.STALLED, "True", decision.reason, f"{decision.message}: no further automatic start")
    now = str((stalled or {}).get("lastTransitionTime") or times.to_rfc3339(seen.now))
    return with_condition(found, new, now=now)
