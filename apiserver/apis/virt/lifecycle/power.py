"""Computes whether a virtual machine should be on.

An *attempt* is one launcher pod with at most one run of the guest, numbered from 1. A *request* is the last verb that turned the machine on
or off (``status.request``). It applies until an edit of the strategy: ``status.runStrategyGeneration`` exceeds its ``generation``.

- ``Stop`` keeps the machine off.
- ``Start`` and ``Restart`` start a series with the attempt ``request.attempt``: the machine is on until that attempt ends, whatever the
  strategy; then the strategy considers only this series. ``Restart`` first ends the attempt before.

The *pause* (``status.pause``) belongs to one attempt. An earlier version wrote ``Pause`` and ``Unpause`` into ``status.request``: they mean
the pause, and a series from that attempt.

Without a request the series is all of ``status.attempts``. A running attempt continues under every strategy except ``Halted``. A *failed
start* is an attempt that ended ``Failed``, with a ``nodeName`` (its container ran) and without ``runningTime``. A guest that ran resets the
count, because ``rerun.limit`` limits useless starts.

A *suspended* machine is off, whatever the strategy, until a start is requested after the attempt that ended ``Suspended``.

An *interrupted* attempt does not count as an end, so the machine is on, also under ``Once`` and ``Manual``: it has the condition
``DisruptionTarget`` (its pod was evicted, preempted, not admitted, …; not deleted), its end was not requested, and the guest did not power
itself off.

A machine with a *lost* node is off until a start is requested, if ``spec.onNodeLoss`` is ``Wait``.

After an edit of the spec, attempts of an older ``generation`` without a guest count only if one succeeded. Older failures do not count for
the back-off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.lifecycle import conditions, node_loss, phases

RunStrategy = Literal["Always", "RerunOnFailure", "Once", "Manual", "Halted"]
ALWAYS: Final[RunStrategy] = "Always"
RERUN_ON_FAILURE: Final[RunStrategy] = "RerunOnFailure"
ONCE: Final[RunStrategy] = "Once"
MANUAL: Final[RunStrategy] = "Manual"
HALTED: Final[RunStrategy] = "Halted"
RUN_STRATEGIES: Final[tuple[RunStrategy, ...]] = get_args(RunStrategy)

Action = Literal["Start", "Stop", "Restart", "Pause", "Unpause"]
"""``Pause`` and ``Unpause`` only in objects of an earlier version."""
START: Final[Action] = "Start"
STOP: Final[Action] = "Stop"
RESTART: Final[Action] = "Restart"
PAUSE: Final[Action] = "Pause"
UNPAUSE: Final[Action] = "Unpause"
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_PAUSES: Final = frozenset({PAUSE, UNPAUSE})

Result = Literal["Succeeded", "Failed", "Stopped", "Suspended"]
RESULT_SUCCEEDED: Final[Result] = "Succeeded"
RESULT_FAILED: Final[Result] = "Failed"
RESULT_STOPPED: Final[Result] = "Stopped"
RESULT_SUSPENDED: Final[Result] = "Suspended"
RESULTS: Final[tuple[Result, ...]] = get_args(Result)
PHASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        RESULT_SUCCEEDED: phases.SUCCEEDED,
        RESULT_STOPPED: phases.STOPPED,
        RESULT_FAILED: phases.FAILED,
        RESULT_SUSPENDED: phases.SUSPENDED,
    }
)

DEFAULT_GRACE_SECONDS: Final = 30
DEFAULT_RERUN_LIMIT: Final = 2
MAX_RERUN_LIMIT: Final = 9
MAX_ATTEMPTS_KEPT: Final = 10
"""Enough to count ``1 + MAX_RERUN_LIMIT`` failed starts."""
MAX_CALLS_KEPT: Final = 10
GOOD_RUN: Final = timedelta(minutes=10)
"""A longer run ends a row of failures, as for a kubelet's back-off."""


ASKED_TO_BE_OFF: Final = frozenset({"StopRequested", "Suspended", "Halted", "NotRequested"})
"""Reasons of a :class:`Power` that a user wants to be off."""
OFF_REASONS: Final = ASKED_TO_BE_OFF | {"Succeeded", "RerunLimitReached", "AttemptEnded", "NodeLost"}
"""All reasons to be off, except deletion."""


@dataclass(frozen=True, slots=True)
class Power:
    """The decision whether a machine should be on, and its reason.

    ``attempt`` is the one that should run (a lower current one must end first), or, when off, the current one (0: none).
    """

    on: bool
    attempt: int
    reason: str
    """``Deleting``, ``StopRequested``, ``Suspended``, ``Requested``, ``Always``, ``FirstAttempt``, ``Rerun``, ``Running``, ``Interrupted``,
    ``Succeeded``, ``NodeLost``, ``RerunLimitReached``, ``AttemptEnded``, ``NotRequested``, ``Halted``."""
    message: str
    failures: int = 0
    """Consecutive attempts at the series' end that ended by themselves before :data:`GOOD_RUN`."""


def decide(vm: Mapping[str, Any]) -> Power:
    """Decide whether this VirtualMachine should be on, its attempt, and the reason. Ignores back-off."""
    status = vm.get("status") or {}
    attempts: Sequence[Mapping[str, Any]] = status.get("attempts") or []
    current = _current(status, attempts)
    if (vm.get("metadata") or {}).get("deletionTimestamp"):
        return Power(on=False, attempt=current, reason="Deleting", message="the virtual machine is being deleted")
    spec = vm.get("spec") or {}
    strategy = strategy_of(vm)
    request = effective_request(vm)
    if _is_suspended(vm, request):
        return Power(on=False, attempt=current, reason="Suspended", message="suspend was requested; resume continues from the image")
    if request is None:
        series, wanted = list(attempts), 0
    elif request.get("action") == STOP:
        return Power(on=False, attempt=current, reason="StopRequested", message="stop was requested")
    else:
        wanted = int(request.get("attempt") or 0)
        series = [each for each in attempts if int(each["number"]) >= wanted]
    generation = int((vm.get("metadata") or {}).get("generation") or 0)
    ended = [each for each in series if has_ended(each) and not _is_forgotten(each, generation)]
    is_open = current > 0 and not any(int(each["number"]) == current and has_ended(each) for each in attempts)
    next_attempt = current if is_open and current >= wanted else current + 1
    if request is not None and not ended:
        message = f"{str(request.get('action')).lower()} was requested"
        return Power(on=True, attempt=next_attempt, reason="Requested", message=message)
    if strategy != HALTED and not is_open and node_loss.waits_for_user(vm):
        message = "the node of the last attempt was lost, and spec.onNodeLoss is Wait; to start the machine: kubectl virt start"
        return Power(on=False, attempt=current, reason="NodeLost", message=message)
    failures = _trailing_failures([each for each in ended if not is_older(each, generation)])
    if strategy != HALTED and was_interrupted(vm):
        message = "the cluster ended the last attempt, without a request to stop"
        return Power(on=True, attempt=next_attempt, reason="Interrupted", message=message, failures=failures)
    return _by_strategy(strategy, spec, ended, current=current, next_attempt=next_attempt, failures=failures)


def _is_suspended(vm: Mapping[str, Any], request: Mapping[str, Any] | None) -> bool:
    newest = newest_attempt(vm)
    if newest.get("result") != RESULT_SUSPENDED:
        return False
    starts = request is not None and request.get("action") != STOP
    return not (starts and int((request or {}).get("attempt") or 0) > int(newest["number"]))


def has_given_up(vm: Mapping[str, Any], decision: Power) -> bool:
    """Return whether a machine is off because its last attempt failed, without an edit since, or its node was lost.

    ``decision``: the machine's, by :func:`decide`.
    """
    if decision.reason == "NodeLost":
        return True
    newest = newest_attempt(vm)
    generation = int((vm.get("metadata") or {}).get("generation") or 0)
    failed = newest.get("result") == RESULT_FAILED and not is_older(newest, generation)
    return not decision.on and failed and decision.reason not in {"Deleting", "StopRequested", "Suspended", "Halted"}


def is_off_by_its_spec(vm: Mapping[str, Any], decision: Power) -> bool:
    """Return whether a machine is off by its spec: it wants no further guest.

    A deleted machine is not, nor one that has given up. A stopped or suspended one is, if its strategy is ``Halted`` or ``Manual``.
    """
    if decision.on or decision.reason == "Deleting" or has_given_up(vm, decision):
        return False
    return decision.reason not in {"StopRequested", "Suspended"} or strategy_of(vm) in {HALTED, MANUAL}


def end_asked_for(vm: Mapping[str, Any]) -> str:
    """Return why the current attempt should end (off or restart), or "". Call it only while an attempt runs."""
    wanted = decide(vm)
    is_restart = wanted.reason == "Requested" and wanted.attempt > current_attempt(vm)
    return wanted.message if not wanted.on or is_restart else ""


def was_interrupted(vm: Mapping[str, Any]) -> bool:
    """Return whether the cluster ended the newest attempt's pod, and no user had requested a stop.

    False if the guest powered itself off then. The result stays True until the next attempt begins.
    """
    newest = newest_attempt(vm)
    if not has_ended(newest) or newest.get("stopTime") or newest.get("result") == RESULT_SUCCEEDED:
        return False
    return objects.is_true((vm.get("status") or {}).get("conditions"), conditions.DISRUPTION_TARGET)


def _by_strategy(
    strategy: str, spec: Mapping[str, Any], ended: Sequence[Mapping[str, Any]], *, current: int, next_attempt: int, failures: int
) -> Power:

    def on(reason: str, message: str) -> Power:
        return Power(on=True, attempt=next_attempt, reason=reason, message=message, failures=failures)

    def off(reason: str, message: str) -> Power:
        return Power(on=False, attempt=current, reason=reason, message=message, failures=failures)

    if strategy == ALWAYS:
        return on("Always", "runStrategy is Always")
    if strategy == HALTED:
        return off("Halted", "runStrategy is Halted")
    if next_attempt == current:
        return on("Running", f"runStrategy is {strategy} and the attempt has not ended")
    if strategy == MANUAL:
        return off("NotRequested", "runStrategy is Manual and no start was requested")
    if not ended:
        return on("FirstAttempt", f"runStrategy is {strategy}")
    if strategy == ONCE:
        return off("AttemptEnded", "runStrategy is Once and the attempt has ended")
    if any(each.get("result") == RESULT_SUCCEEDED for each in ended):
        return off("Succeeded", "the guest powered off")
    limit = rerun_limit(spec)
    failed_starts = _failed_starts(ended)
    if failed_starts > limit:
        return off("RerunLimitReached", f"{failed_starts} starts failed in a row; spec.rerun.limit is {limit}")
    return on("Rerun", f"the last attempt did not succeed; {failed_starts} of {limit + 1} starts failed")


def effective_request(vm: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return ``status.request``, unless the run strategy was edited since; else None.

    Without ``generation``, from an older version, it applies while the strategy is the same.
    """
    status = vm.get("status") or {}
    request = status.get("request")
    if not request or request.get("runStrategy") != strategy_of(vm):
        return None
    return request if int(request.get("generation") or 0) >= int(status.get("runStrategyGeneration") or 0) else None


def strategy_of(vm: Mapping[str, Any]) -> str:
    """Return ``spec.runStrategy``, by default ``RerunOnFailure``."""
    return (vm.get("spec") or {}).get("runStrategy") or RERUN_ON_FAILURE


def grace_seconds(vm: Mapping[str, Any]) -> int:
    """Return the grace period in seconds: the spec's, or a shorter one of the verb stop."""
    requested = requested_grace(vm)
    return grace_of_spec(vm) if requested is None else min(grace_of_spec(vm), requested)


def grace_of_spec(vm: Mapping[str, Any]) -> int:
    """Return ``spec.terminationGracePeriodSeconds``, by default 30."""
    given = (vm.get("spec") or {}).get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if given is None else int(given)


def requested_grace(vm: Mapping[str, Any]) -> int | None:
    """Return the grace period, in seconds, of a verb stop in effect, if it gave one; else None."""
    request = effective_request(vm) or {}
    given = request.get("gracePeriodSeconds") if request.get("action") == STOP else None
    return None if given is None else int(given)


def wants_paused(vm: Mapping[str, Any]) -> bool:
    """Return whether the current attempt should be paused: the last call of ``pause`` or ``unpause`` for it was ``pause``."""
    level = _pause_of(vm.get("status") or {})
    return bool(level.get("wanted")) and int(level.get("attempt") or 0) == current_attempt(vm)


def node_selector(vm: Mapping[str, Any], attempt: int) -> Mapping[str, str]:
    """Return the node labels that the verb start requires for this attempt; empty without any."""
    request = effective_request(vm) or {}
    found: Mapping[str, str] = (request.get("nodeSelector") if int(request.get("attempt") or 0) == attempt else None) or {}
    return found


def call_of(vm: Mapping[str, Any], call_id: str) -> Mapping[str, Any] | None:
    """Return the call with this id in ``status.calls``, or None."""
    return next((each for each in (vm.get("status") or {}).get("calls") or () if each.get("id") == call_id), None)


def keep_call(vm: dict[str, Any], call_id: str, verb: str) -> None:
    """Add a verb's call to ``status.calls``, in place; drop the oldest beyond ``MAX_CALLS_KEPT``."""
    status = vm.setdefault("status", {})
    status["calls"] = [*(status.get("calls") or ()), {"id": call_id, "verb": verb}][-MAX_CALLS_KEPT:]


def set_pause(vm: dict[str, Any], moment: str, *, wanted: bool, attempt: int | None = None) -> None:
    """Set ``status.pause`` of an attempt, by default the current one, in place; ``moment`` is the call's time."""
    keep_pause(vm)
    vm.setdefault("status", {})["pause"] = {
        "wanted": wanted,
        "attempt": current_attempt(vm) if attempt is None else attempt,
        "generation": int((vm.get("metadata") or {}).get("generation") or 0),
        "time": moment,
    }


def keep_pause(vm: dict[str, Any]) -> None:
    """Move an earlier version's pause from ``status.request`` to ``status.pause``, in place; its request becomes ``Start``."""
    status = vm.get("status") or {}
    request = status.get("request") or {}
    if request.get("action") in _PAUSES:
        status["pause"] = _pause_of(status)
        status["request"] = {**request, "action": START}


def _pause_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pause: that of an earlier version in ``status.request``, which is newer, else ``status.pause`` or {}."""
    request = status.get("request") or {}
    if request.get("action") in _PAUSES:
        told = {key: request[key] for key in ("attempt", "generation", "time") if request.get(key) is not None}
        return {"wanted": request["action"] == PAUSE, **told}
    return status.get("pause") or {}


def current_attempt(vm: Mapping[str, Any]) -> int:
    """Return the number of a machine's newest attempt; 0 if none."""
    status = vm.get("status") or {}
    return _current(status, status.get("attempts") or [])


def newest_attempt(vm: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry in ``status.attempts`` of :func:`current_attempt`; empty if it has none."""
    current = current_attempt(vm)
    return next((each for each in (vm.get("status") or {}).get("attempts") or () if int(each["number"]) == current), {})


def has_run(vm: Mapping[str, Any]) -> bool:
    """Return whether the guest ran in the current attempt."""
    return bool(newest_attempt(vm).get("runningTime"))


def has_ended(attempt: Mapping[str, Any]) -> bool:
    """Return whether this entry of ``status.attempts`` has a result."""
    return bool(attempt.get("result"))


def is_older(attempt: Mapping[str, Any], generation: int) -> bool:
    """Return whether the spec was edited since the attempt began; False if its generation is not recorded."""
    return 0 < int(attempt.get("generation") or 0) < generation


def _is_forgotten(attempt: Mapping[str, Any], generation: int) -> bool:
    return is_older(attempt, generation) and not attempt.get("runningTime") and attempt.get("result") != RESULT_SUCCEEDED


def rerun_limit(spec: Mapping[str, Any]) -> int:
    """Return how many further starts follow a failed one: ``rerun.limit``, by default 2."""
    limit = (spec.get("rerun") or {}).get("limit")
    return DEFAULT_RERUN_LIMIT if limit is None else int(limit)


def _current(status: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> int:
    return max([int(status.get("attempt") or 0), *(int(each["number"]) for each in attempts)])


def _failed_starts(ended: Sequence[Mapping[str, Any]]) -> int:
    count = 0
    for each in reversed(ended):
        if each.get("result") != RESULT_FAILED or each.get("runningTime"):
            break
        count += bool(each.get("nodeName"))
    return count


def _trailing_failures(ended: Sequence[Mapping[str, Any]]) -> int:
    """Count the newest attempts in a row that ended by themselves, also successfully, before ``GOOD_RUN``.

    A stopped attempt ends the row only if virt-controller requested the stop, because a guest may control its launcher.
    """
    count = 0
    for each in reversed(ended):
        if (each.get("result") == RESULT_STOPPED and each.get("stopTime")) or _ran_well(each):
            break
        count += 1
    return count


def _ran_well(attempt: Mapping[str, Any]) -> bool:
    began, ended = (times.parsed(attempt.get(each)) for each in ("runningTime", "endTime"))
    return began is not None and ended is not None and ended - began >= GOOD_RUN
