"""Pods on unreachable nodes: their conditions, and the time of the next look. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, condition, name_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, phases
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, Emit, Requeue
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.pods.liveness import Absent, Unknown
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

NODE_UNREACHABLE: Final = "NodeUnreachable"
KUBELET_UNREACHABLE: Final = "KubeletUnreachable"
NODE_NOT_FOUND: Final = "NodeNotFound"
NODE_FENCED: Final = "NodeFenced"
POD_MAY_RUN: Final = "PodMayRun"
REASONS: Final = frozenset({NODE_UNREACHABLE, KUBELET_UNREACHABLE, NODE_NOT_FOUND, NODE_FENCED, POD_MAY_RUN})
EDIT_NODE_NAME: Final = "change spec.nodeName to a node that kubectl get nodes lists"


def until_unreachable(seen: Observed) -> tuple[Action, ...]:
    """Return a requeue for when a virt-handler's newest report expires, which causes no event; else empty."""
    found = (liveness.verdict(pod, seen.evidence) for pod in seen.pods)
    left = [each.seconds for each in found if isinstance(each, Unknown) and each.seconds is not None]
    return (Requeue(max(min(left), MIN_REQUEUE_SECONDS)),) if left else ()


def wait_for(seen: Observed, pods: tuple[Object, ...]) -> tuple[Action, ...]:
    """Return actions that report a pod on a node that is unreachable, or only its kubelet, and what a person can do; else empty."""
    handled = phases.phase_of(seen.vm) in phases.HANDLED
    own = own_pod(seen, pods)
    if handled and own is not None:
        pods = (own,)  # a migration's other node may be unreachable while the machine's virt-handler reports
    found = [(pod, liveness.verdict(pod, seen.evidence)) for pod in pods]
    lost = next((pod for pod, each in found if each == liveness.LOST), None)
    if lost is not None and pod_state.node_of(lost) in seen.evidence.unreachable.missing and not handled and not pod_state.has_run(lost):
        return _report_missing(seen, lost)
    if lost is not None:
        return _report_lost(seen, lost)
    stuck = next((pod for pod, each in found if isinstance(each, Unknown)), None)
    return _report_stuck(seen, stuck) if stuck is not None and not handled else ()


def _report_stuck(seen: Observed, pod: Object) -> tuple[Action, ...]:
    node = pod_state.node_of(pod)
    message = (
        f"the kubelet of node {node} does not report, but virt-handler on that node does, so the node is on. Pod {name_of(pod)} can "
        f"neither start nor end until the kubelet reports again: repair the kubelet; do not force-delete the pod"
    )
    return statuses.report(seen, "False", KUBELET_UNREACHABLE, message)


def _report_missing(seen: Observed, pod: Object) -> tuple[Action, ...]:
    node = pod_state.node_of(pod)
    message = f'node "{node}" not found; pod {name_of(pod)} was scheduled to it'
    pinned = dig_vm(seen.vm, "spec", "nodeName") == node
    return statuses.report(seen, "False", NODE_NOT_FOUND, f"{message}; {EDIT_NODE_NAME}" if pinned else message)


def _report_lost(seen: Observed, lost: Object) -> tuple[Action, ...]:
    pod, node = name_of(lost), pod_state.node_of(lost)
    guardian = _of_guardian(node, uid_of(lost), seen)
    by_force = "" if node in seen.evidence.unreachable.fenced_before else f", or kubectl delete pod {pod} --force"
    message = f"node {node} does not report, and pod {pod} may still run there{guardian}{if_off(node)}{by_force}"
    return _report_unknown(seen, NODE_UNREACHABLE, message)


def _of_guardian(node: str, pod: str, seen: Observed) -> str:
    if node in seen.evidence.virtual:
        return "; its guardian promises nothing on a virtual machine (VirtualNode): only a fence agent restarts it"
    promised = seen.evidence.promised.get(node)
    if promised is None:
        return ""
    if pod in promised:
        return f"; it restarts elsewhere once its guardian must have ended it (Events of node {node} say why if not)"
    return "; its guardian was cut off before it could promise to end this pod"


def report_deleted(seen: Observed, pod: Absent) -> tuple[Action, ...]:
    """Return actions that report a pod deleted before its node became unreachable: the node may not have ended it."""
    message = f"pod {pod.name} was deleted before node {pod.node} stopped reporting, and may still run there{if_off(pod.node)}"
    return _report_unknown(seen, POD_MAY_RUN, message)


def if_off(node: str) -> str:
    """Return a message's end, with the command to use if the node is off."""
    return f". If you are certain that the node is off: kubectl virt fence {node} --off"


def is_reported(vm: Object) -> bool:
    """Return whether the machine's Ready says that its node is unreachable; it says so only of a pod that exists."""
    return (condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}).get("reason") == NODE_UNREACHABLE


def _report_unknown(seen: Observed, reason: str, message: str) -> tuple[Action, ...]:
    status = {**statuses.status_of(seen), "conditions": statuses.ready(seen, "Unknown", reason, message)}
    if phases.phase_of(seen.vm) in phases.OWNED_BY_HANDLER:
        status = phases.enter(status, phases.UNKNOWN, seen.now)
    return statuses.write(seen, status, Emit("Warning", reason, message))
