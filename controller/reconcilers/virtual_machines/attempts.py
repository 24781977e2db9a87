"""The attempts in a machine's status, and the time limits of a start. Pure.

The limit counts from when the container runs: pulling an image, attaching a volume and waiting for a node are unlimited, as for a Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from apiserver.apis.meta import backoff, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, annotations_of, condition, dig, generation_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases, power
from apiserver.apis.virt.places import names
from controller.reconcilers.launcher_pods import launcher_pod, made_from
from controller.reconcilers.pods import pod_state

if TYPE_CHECKING:
    from apiserver.apis.virt.typed import Attempt

FIRST_PAUSE_SECONDS: Final = 5.0
"""Before the attempt that follows two short ones, doubled for each further one."""
LONGEST_PAUSE_SECONDS: Final = 300.0
"""As in a kubelet's crash loop."""
MAX_WORDS: Final = 1024
DEFAULT_START_SECONDS: Final = 180


def is_open(vm: Object) -> bool:
    """True if the newest attempt has begun and its end is not recorded."""
    current = power.current_attempt(vm)
    return current > 0 and not any(int(each["number"]) == current and power.has_ended(each) for each in _all(vm))


def is_handled(vm: Object) -> bool:
    """True if a guest may run in the pod that the status names, and virt-handler of its node writes how it ends."""
    return is_open(vm) and phases.phase_of(vm) in phases.HANDLED


def is_stopped(vm: Object) -> bool:
    """True if virt-controller requested the end of the newest attempt, so its end is not a failure."""
    return bool(power.newest_attempt(vm).get("stopTime"))


def is_outdated(vm: Object, pod: Object | None) -> bool:
    """True if an edit of the spec changed the newest attempt's pod or domain before its guest started.

    ``pod`` is that attempt's; None if gone: any edit counts. A pod of an older version without a hash counts as changed.
    """
    if phases.phase_of(vm) != phases.SCHEDULING or not power.is_older(power.newest_attempt(vm), generation_of(vm)):
        return False
    if annotations_of(pod or {}).get(names.SPEC_ANNOTATION) != made_from.spec_hash(vm):
        return True
    bound = dig(pod, "spec", "terminationGracePeriodSeconds")
    return isinstance(bound, int) and launcher_pod.grace_seconds(vm) > bound


def changed(vm: Object, number: int, changes: Mapping[str, str]) -> list[Object]:
    """Return the newest of ``status.attempts``, with ``changes`` applied to the attempt of this number, which is added if missing."""
    stored = _all(vm)
    if not any(int(each["number"]) == number for each in stored):
        stored = [*stored, {"number": number}]
    return [{**each, **changes} if int(each["number"]) == number else dict(each) for each in stored][-power.MAX_ATTEMPTS_KEPT :]


def moved(vm: Object, node: str) -> dict[str, str]:
    """Return the changes of the newest attempt if its guest is on ``node``: after a migration also where it started."""
    newest = power.newest_attempt(vm)
    before = str(newest.get("nodeName") or node)
    return {"nodeName": node} if before == node else {"nodeName": node, "startNodeName": str(newest.get("startNodeName") or before)}


def failed_nodes(vm: Object) -> tuple[str, ...]:
    """Return the nodes of the latest consecutive failed starts of the current spec."""
    nodes: list[str] = []
    for each in reversed(_all(vm)):
        if each.get("result") != power.RESULT_FAILED or each.get("runningTime") or power.is_older(each, generation_of(vm)):
            break
        if each.get("nodeName"):
            nodes.append(each["nodeName"])
    return tuple(sorted(set(nodes)))


def pause_before(decision: power.Power, rested: float) -> float:
    """Return how many seconds the next attempt must wait because previous ones ended soon; the newest ended ``rested`` seconds ago."""
    return max(pause_seconds(decision) - rested, 0.0)


def pause_seconds(decision: power.Power) -> float:
    """Return the seconds from the newest attempt's end to the next attempt."""
    return backoff.pause_seconds(decision.failures - 1, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


def last_words(vm: Object) -> str:
    """Return how the newest attempt ended, in one line; "no reason given" without a message."""
    return one_line(str(power.newest_attempt(vm).get("message") or "no reason given"), MAX_WORDS)


def start_left(vm: Object, pod: Object, now: datetime) -> timedelta | None:
    """Return the time left for the guest to start, negative if it is over.

    None before the container runs, or while it waits for an image or network plugin.
    """
    began = _container_began(vm, pod)
    if began is None or conditions.waits_for(vm) & {conditions.Wait.IMAGE, conditions.Wait.NETWORK_PLUGIN}:
        return None
    begins = times.parse(began)
    for kind in (conditions.DISKS_READY, conditions.NETWORK_READY):
        ready = condition(dig_vm(vm, "status", "conditions"), kind) or {}
        if ready.get("status") == "True" and ready.get("lastTransitionTime"):
            # The node did not cause this wait. It wrote the end, and its clock may differ.
            begins = max(begins, min(times.parse(ready["lastTransitionTime"]), now))
    return timedelta(seconds=start_seconds(vm)) - (now - begins)


def _container_began(vm: Object, pod: Object) -> str | None:
    """Return when the machine was assigned to virt-handler; before that, when the kubelet started its container, or None."""
    entered = [each for each in dig_vm(vm, "status", "phaseTransitionTimestamps") or () if each["phase"] == phases.SCHEDULED]
    return entered[-1]["time"] if entered else pod_state.running_since(pod)


def start_seconds(vm: Object) -> int:
    """Return the time limit of a start, in seconds."""
    return int(dig_vm(vm, "spec", "rerun", "startTimeoutSeconds") or DEFAULT_START_SECONDS)


def _all(vm: Object) -> list[Attempt]:
    return dig_vm(vm, "status", "attempts") or []
