"""The start attempts of a machine, as its status keeps them, and the times that bound a start. Pure.

The limit of a start counts from the moment at which the container was seen to run: an image that is pulled, a volume that is attached or
a node that is waited for has no limit, as in a Pod. A pod that got as far is virt-handler's, and what is slow then is this node.
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
"""Before the attempt that follows two short ones in a row, doubled with each further one; after one alone there is none."""
LONGEST_PAUSE_SECONDS: Final = 300.0
"""As a kubelet's in a crash loop."""
MAX_WORDS: Final = 1024
"""Characters of what is repeated of an attempt's end."""
DEFAULT_START_SECONDS: Final = 180


def is_open(vm: Object) -> bool:
    """True if the newest attempt was begun and its end was not written down."""
    current = power.current_attempt(vm)
    return current > 0 and not any(int(each["number"]) == current and power.has_ended(each) for each in _all(vm))


def is_handled(vm: Object) -> bool:
    """True if a guest may run in the pod that the status names, and virt-handler of its node writes how it ends."""
    return is_open(vm) and phases.phase_of(vm) in phases.HANDLED


def is_stopped(vm: Object) -> bool:
    """True if virt-controller asked for the end of the newest attempt: however its pod ends then, it is no failure."""
    return bool(power.newest_attempt(vm).get("stopTime"))


def is_outdated(vm: Object, pod: Object | None) -> bool:
    """True if an edit of the spec changed the pod or the domain of the newest attempt before a guest of it was started.

    Args:
        vm: the machine.
        pod: of that attempt; None where it is gone, so that any edit counts. One of a release that wrote no hash is replaced, too.
    """
    if phases.phase_of(vm) != phases.SCHEDULING or not power.is_older(power.newest_attempt(vm), generation_of(vm)):
        return False
    if annotations_of(pod or {}).get(names.SPEC_ANNOTATION) != made_from.spec_hash(vm):
        return True
    bound = dig(pod, "spec", "terminationGracePeriodSeconds")
    return isinstance(bound, int) and launcher_pod.grace_seconds(vm) > bound


def changed(vm: Object, number: int, changes: Mapping[str, str]) -> list[Object]:
    """Return ``status.attempts`` with ``changes`` in the attempt of this number, which is added where it is absent."""
    known = _all(vm)
    if not any(int(each["number"]) == number for each in known):
        known = [*known, {"number": number}]
    return [{**each, **changes} if int(each["number"]) == number else dict(each) for each in known][-power.MAX_ATTEMPTS_KEPT :]


def failed_nodes(vm: Object) -> tuple[str, ...]:
    """Return the nodes of the failed starts in a row, of the spec as it is, that came before the next one."""
    nodes: list[str] = []
    for each in reversed(_all(vm)):
        if each.get("result") != power.RESULT_FAILED or each.get("runningTime") or power.is_older(each, generation_of(vm)):
            break
        if each.get("nodeName"):
            nodes.append(each["nodeName"])
    return tuple(sorted(set(nodes)))


def pause_before(decision: power.Power, rested: float) -> float:
    """Return for how many seconds the next attempt has to wait, because those before it ended soon by themselves.

    Args:
        decision: about the power of the machine.
        rested: for how many seconds the newest attempt is over.
    """
    return max(pause_seconds(decision) - rested, 0.0)


def pause_seconds(decision: power.Power) -> float:
    """Return how long the whole pause before the next attempt is."""
    return backoff.pause_seconds(decision.failures - 1, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


def last_words(vm: Object) -> str:
    """Return how the newest attempt ended, in one line."""
    return one_line(str(power.newest_attempt(vm).get("message") or "it said nothing"), MAX_WORDS)


def start_left(vm: Object, pod: Object, now: datetime) -> timedelta | None:
    """Return how long the guest may still take to run; None while its container does not run, or waits for what any node would lack."""
    began = _container_began(vm, pod)
    if began is None or conditions.waits_for(vm) & {conditions.Wait.IMAGE, conditions.Wait.NETWORK_PLUGIN}:
        return None  # nobody has filled a claim yet, or a plugin of the administrator's does not do what it is asked to
    begins = times.parse(began)
    for kind in (conditions.DISKS_READY, conditions.NETWORK_READY):
        ready = condition(dig_vm(vm, "status", "conditions"), kind) or {}
        if ready.get("status") == "True" and ready.get("lastTransitionTime"):
            # The wait was not the node's. The node wrote when it ended, which may be by a clock of its own.
            begins = max(begins, min(times.parse(ready["lastTransitionTime"]), now))
    return timedelta(seconds=start_seconds(vm)) - (now - begins)


def _container_began(vm: Object, pod: Object) -> str | None:
    """Return when the machine was handed to virt-handler, by this process' clock; the kubelet's word where that was forgotten."""
    entered = [each for each in dig_vm(vm, "status", "phaseTransitionTimestamps") or () if each["phase"] == phases.SCHEDULED]
    return entered[-1]["time"] if entered else pod_state.running_since(pod)


def start_seconds(vm: Object) -> int:
    """Return the time after which a start counts as failed."""
    return int(dig_vm(vm, "spec", "rerun", "startTimeoutSeconds") or DEFAULT_START_SECONDS)


def _all(vm: Object) -> list[Attempt]:
    return dig_vm(vm, "status", "attempts") or []
