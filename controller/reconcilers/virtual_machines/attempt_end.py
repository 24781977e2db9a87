"""The end of an attempt that no virt-handler wrote: the pod's own end tells it. Pure."""

from __future__ import annotations

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import (
    Object,
    condition,
    generation_of,
    is_deleting,
    name_of,
    new_condition,
    with_condition,
    without_condition,
)
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, managed_save, node_loss, operations, phases, power
from apiserver.apis.virt.spec import running
from controller.reconcilers.actions import Action, Emit, WriteStatus
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.pods.liveness import Loss, Witness
from controller.reconcilers.virtual_machines import attempts, disruptions, statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod


def record(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Return actions that record the newest attempt's end, because virt-handler was away or never got the guest."""
    current = power.current_attempt(seen.vm)
    result, message = _result(seen, decision, current)
    image = _image(seen, result, message)
    if result == power.RESULT_SUSPENDED and image is None:  # a guest may control its launcher
        result = power.RESULT_FAILED
    if image is not None:
        message = managed_save.in_words(image, name_of(seen.vm))
    message = disruptions.added(seen, message)
    end = {"endTime": times.to_rfc3339(seen.now), "result": result, "message": message}
    if (last := _last_pod(seen)) is not None and pod_state.has_run(last):
        end |= attempts.moved(seen.vm, pod_state.node_of(last))
    status = {
        **phases.enter(statuses.status_of(seen), power.PHASES[result], seen.now),
        "conditions": statuses.ready(seen, "False", f"Attempt{result}", message),
        "attempts": attempts.changed(seen.vm, current, end),
        "observedGeneration": generation_of(seen.vm),
    }
    if image is not None:
        status[managed_save.FIELD] = image
        status["operations"] = operations.with_result(seen.vm, image["id"], operations.SUCCEEDED, "", seen.now)
    if result == power.RESULT_FAILED and (lost := _loss(seen)) is not None:
        reason = node_loss.SEALED if lost.by is Witness.GUARDIAN else node_loss.FENCED
        new = new_condition(seen.vm, conditions.NODE_LOST, "True", reason, f"attempt {current} was lost with node {lost.node}")
        status["conditions"] = with_condition(status["conditions"], new, now=times.to_rfc3339(seen.now))
    status = phases.without_guest(status)
    status["conditions"] = without_condition(status["conditions"], conditions.LAUNCHER_OUTDATED)
    return (WriteStatus(status), Emit("Warning" if result == power.RESULT_FAILED else "Normal", result, message))


def _result(seen: Observed, decision: power.Power, current: int) -> tuple[str, str]:
    last = _last_pod(seen)
    if last is not None and (end := pod_state.end_of(last)).result == power.RESULT_SUSPENDED:
        return end.result, end.message  # the image has the guest, whatever was requested since
    if not decision.on or decision.attempt > current:
        return power.RESULT_STOPPED, decision.message
    if attempts.is_stopped(seen.vm):
        is_edited = attempts.is_outdated(seen.vm, last)
        return power.RESULT_STOPPED, "the spec was edited before the guest was started" if is_edited else "a stop was requested"
    ready = condition(dig_vm(seen.vm, "status", "conditions"), "Ready") or {}
    if ready.get("reason") in (conditions.START_TIMEOUT, conditions.LIVENESS_FAILED):
        return power.RESULT_FAILED, str(ready.get("message"))
    if (lost := _loss(seen)) is not None:
        return power.RESULT_FAILED, _words(lost)
    if last is None:
        return power.RESULT_FAILED, "the pod was deleted by another client"
    end = pod_state.end_of(last)
    if is_deleting(last) and end.result != power.RESULT_FAILED:
        return power.RESULT_STOPPED, f"the pod was deleted by another client ({end.message})"
    return end.result, end.message


def _image(seen: Observed, result: str, message: str) -> Object | None:
    if result != power.RESULT_SUSPENDED:
        return None
    claim = managed_save.claim_of(running.spec_of(seen.vm))
    return managed_save.saved(seen.vm, claim, message, times.to_rfc3339(seen.now))


def _loss(seen: Observed) -> Loss | None:
    return liveness.loss_of(_last_pod(seen), seen.evidence)


def _words(lost: Loss) -> str:
    if lost.by is Witness.GUARDIAN:
        return f"node {lost.node} does not report, and its guardian has ended the guest there"
    return f"node {lost.node} is off, as a person states"


def _last_pod(seen: Observed) -> Object | None:
    """Return the pod that the guest ended in: the machine's own, or a migration's target."""
    own = own_pod(seen, seen.pods)
    if own is not None and pod_state.has_migrated(own):
        return next((pod for pod in seen.pods if pod is not own and name_of(pod) in seen.targets), own)
    return own
