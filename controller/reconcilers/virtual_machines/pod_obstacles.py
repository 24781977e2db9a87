"""The obstacles between a pod and its start, as the scheduler and the kubelet describe them. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, name_of, new_condition, with_condition, without_condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases, power
from apiserver.apis.virt.spec import attachments, chosen_cpu
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, Emit, Requeue, WriteStatus
from controller.reconcilers.launcher_pods import cpu, scheduling
from controller.reconcilers.pods import mounted_sources, networks, pod_state, sandboxes
from controller.reconcilers.virtual_machines import start_rules, statuses
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.statuses import Obstacle

MAX_INCOMPATIBLE: Final = 3
_NO_MATCH: Final = "didn't match Pod's node affinity/selector"
_OF_NODES: Final = (_NO_MATCH, "taint", "unschedulable")
"""In the scheduler's messages: causes that are not a lack of resources."""


def report(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Return actions that report why the machine's pod does not run, or requeue the machine."""
    found, unbound = pod_state.obstacle(pod), _unbound(seen, pod)
    if conditions.Wait.VOLUME in conditions.waits_for(seen.vm) and not unbound:
        changed = with_condition(statuses.status_of(seen).get("conditions"), statuses.disks_ready(seen), now=times.to_rfc3339(seen.now))
        return (WriteStatus({**statuses.status_of(seen), "conditions": changed}), Requeue(MIN_REQUEUE_SECONDS))
    if found is not None:
        return _report_of_pod(seen, pod, *found, unbound)
    if (fault := networks.fault(seen.networks)) is not None:
        return statuses.wait(seen, _of_network(seen, fault))
    return _report_sources_came(seen, pod) or _wait_for_sandbox(seen, pod) or _wait_for_sources(seen, pod) or _report_slow(seen, pod)


def _report_of_pod(seen: Observed, pod: Object, reason: str, message: str, unbound: str) -> tuple[Action, ...]:
    """Return actions that report the pod's obstacle, ``reason``: no node takes it, or its container cannot start.

    ``unbound``: a message about claims without a volume, or empty.
    """
    is_unschedulable = pod_state.is_unschedulable(pod)
    demands = cpu.demands(seen.vm, chosen_cpu.chosen(seen.vm)) if is_unschedulable and pod_state.has_kvm(pod) else ""
    foreign = "; ".join(sorted(seen.incompatible.values())[:MAX_INCOMPATIBLE]) if is_unschedulable else ""
    saved_by = start_rules.resumes_only_on(seen.vm, node) if is_unschedulable and (node := cpu.only_node(seen.vm)) else ""
    text = "; ".join(filter(None, (f"{_unmatched(seen.vm, message)}pod {name_of(pod)}: {message}", demands, saved_by, unbound, foreign)))
    status = _with_mounted_sources(seen, pod, statuses.ready(seen, "False", reason, text))
    if unbound:
        lacking = new_condition(seen.vm, conditions.DISKS_READY, "False", conditions.CLAIM_NOT_BOUND, unbound)
        status["conditions"] = with_condition(status["conditions"], lacking, now=times.to_rfc3339(seen.now))
    return statuses.write(seen, status, Emit("Warning", reason, text))


def _unmatched(vm: Object, message: str) -> str:
    """Return the node selectors for a message if, by the scheduler's ``message``, only they or closed nodes exclude all nodes; else ""."""
    causes = message.partition(". ")[0].partition(": ")[2].split(", ")
    selectors = {
        "spec.nodeSelector": dig_vm(vm, "spec", "nodeSelector"),
        "the start's --node (nodeSelector of the verb)": power.node_selector(vm, power.current_attempt(vm)),
    }
    found = ", ".join(f"{origin} {scheduling.in_words(each)}" for origin, each in selectors.items() if each)
    is_cause = any(_NO_MATCH in each for each in causes) and all(any(word in each for word in _OF_NODES) for each in causes)
    return f"{found}: " if found and is_cause else ""


def _unbound(seen: Observed, pod: Object) -> str:
    found = disk_claims.unbound(seen.vm, seen.claims) if pod_state.is_unschedulable(pod) else ()
    if not found:
        return ""
    cause = f"for the cause, such as its StorageClass: kubectl describe pvc {found[0].partition(' ')[0]}"
    return one_line(f"PersistentVolumeClaim not bound: {', '.join(found)}; {cause}", pod_state.MAX_MESSAGE)


def _with_mounted_sources(seen: Observed, pod: Object, found: list[Object]) -> Object:
    if _sources_came(seen, pod):
        found = with_condition(found, statuses.disks_ready(seen), now=times.to_rfc3339(seen.now))
    return {**statuses.status_of(seen), "conditions": found}


def _sources_came(seen: Observed, pod: Object) -> bool:
    return conditions.Wait.SOURCE in conditions.waits_for(seen.vm) and pod_state.has_volumes(pod)


def _report_sources_came(seen: Observed, pod: Object) -> tuple[Action, ...]:
    if not _sources_came(seen, pod):
        return ()
    message = f"pod {name_of(pod)} has its volumes; the kubelet is creating its container"
    status = _with_mounted_sources(seen, pod, statuses.ready(seen, "False", "PodNotRunning", message))
    return (*statuses.write(seen, status), Requeue(pod_state.SLOW_SECONDS))


def _wait_for_sandbox(seen: Observed, pod: Object) -> tuple[Action, ...]:
    fault = sandboxes.fault(seen.networks.definitions, pod_state.node_of(pod), seen.sandbox_events, seen.mount_events)
    if fault is None:
        return ()
    came = (statuses.disks_ready(seen),) if conditions.Wait.SOURCE in conditions.waits_for(seen.vm) else ()
    return statuses.wait(seen, _of_network(seen, fault), *came)


def _of_network(seen: Observed, fault: tuple[str, str]) -> Obstacle:
    return Obstacle(conditions.NETWORK_READY, *fault, phase=phases.SCHEDULING, requeue_seconds=seen.settings.times.networks)


def _wait_for_sources(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Return actions that report missing Secrets or ConfigMaps, or a slow pod; empty if the pod waits for none."""
    again = mounted_sources.requeue_seconds(seen.vm, pod, seen.now)
    if again is None:
        return ()
    if (lacking := mounted_sources.fault(seen.vm, seen.mount_events)) is None:
        return (*_report_slow(seen, pod), Requeue(again))
    return statuses.wait(seen, Obstacle(conditions.DISKS_READY, *lacking, phase="", requeue_seconds=again))


def _report_slow(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Return actions that report a pod with a node for :data:`pod_state.SLOW_SECONDS` that does not run, or a requeue until then."""
    bound_at = pod_state.bound_at(pod)
    if bound_at is None:
        return ()
    if conditions.Wait.NETWORK in conditions.waits_for(seen.vm):
        return _report_networks_came(seen, pod)
    left = (times.parse(bound_at) - seen.now).total_seconds() + pod_state.SLOW_SECONDS
    if left > 0:
        most = seen.settings.times.networks if attachments.of(seen.vm) else pod_state.SLOW_SECONDS
        return (Requeue(min(max(left, MIN_REQUEUE_SECONDS), most)),)
    return statuses.report(seen, "False", pod_state.CREATING, pod_state.slow_words(pod))


def _report_networks_came(seen: Observed, pod: Object) -> tuple[Action, ...]:
    message = f"pod {name_of(pod)} has its networks; the kubelet is creating its container"
    found = without_condition(statuses.ready(seen, "False", "PodNotRunning", message), conditions.NETWORK_READY)
    return (*statuses.write(seen, {**statuses.status_of(seen), "conditions": found}), Requeue(seen.settings.times.networks))
