"""Pods on nodes that do not report: what is said of them, and when to requeue. Pure."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig, name_of
from apiserver.apis.virt.lifecycle import phases
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, Emit, Requeue
from controller.reconcilers.pods import pod_state
from controller.reconcilers.virtual_machines import statuses
from controller.reconcilers.virtual_machines.observed import Observed, own_pod

NODE_UNREACHABLE: Final = "NodeUnreachable"
KUBELET_UNREACHABLE: Final = "KubeletUnreachable"
NODE_NOT_FOUND: Final = "NodeNotFound"
REASONS: Final = frozenset({NODE_UNREACHABLE, KUBELET_UNREACHABLE, NODE_NOT_FOUND})
EDIT_NODE_NAME: Final = "spec.nodeName names it: edit that; kubectl get nodes lists those there are"


def until_silent(seen: Observed) -> tuple[Action, ...]:
    """The last sign of life of a virt-handler runs out without an event."""
    nodes = {pod_state.node_of(pod) for pod in seen.pods if not pod_state.is_over(pod)}
    left = [seconds for node, seconds in seen.silence.of_kubelet.items() if node in nodes]
    return (Requeue(max(min(left), MIN_REQUEUE_SECONDS)),) if left else ()


def wait_for(seen: Observed, pods: tuple[Object, ...]) -> tuple[Action, ...]:
    """Pods on nodes that do not answer: say so, and what a person can do; nothing is decided over the head of a node."""
    handled = phases.phase_of(seen.vm) in phases.HANDLED
    own = own_pod(seen, pods)
    if handled and own is not None:
        pods = (own,)  # of the other side of a migration, the machine's virt-handler is not silenced
    lost = next((pod for pod in pods if pod_state.node_of(pod) in seen.silence.whole), None)
    if lost is not None and pod_state.node_of(lost) in seen.silence.missing and not handled and not pod_state.has_run(lost):
        return _report_missing(seen, lost)
    if lost is not None:
        return _report_lost(seen, lost)
    stuck = next((pod for pod in pods if pod_state.node_of(pod) in seen.silence.of_kubelet), None)
    return _report_stuck(seen, stuck) if stuck is not None and not handled else ()


def _report_stuck(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Only a kubelet starts and ends pods. virt-handler does not write of this machine now, so that this is no contradiction."""
    node = pod_state.node_of(pod)
    message = (
        f"the kubelet of node {node} does not report, but virt-handler there does: the node is on. "
        f"Pod {name_of(pod)} neither starts nor ends until the kubelet is back: look at it on the node; do not delete the pod by force"
    )
    return statuses.report(seen, "False", KUBELET_UNREACHABLE, message)


def _report_missing(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """The pod was bound past the scheduler, which knows the nodes there are; nothing ever ran in it."""
    node = pod_state.node_of(pod)
    message = f'there is no node "{node}", which pod {name_of(pod)} is for'
    pinned = dig(seen.vm, "spec", "nodeName") == node
    return statuses.report(seen, "False", NODE_NOT_FOUND, f"{message}; {EDIT_NODE_NAME}" if pinned else message)


def _report_lost(seen: Observed, lost: Object) -> tuple[Action, ...]:
    pod, node = name_of(lost), pod_state.node_of(lost)
    message = (
        f"node {node} does not report, and pod {pod} may still run there. If the node is certainly off: "
        f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or kubectl delete pod {pod} --force"
    )
    status = {**statuses.status_of(seen), "conditions": statuses.ready(seen, "Unknown", NODE_UNREACHABLE, message)}
    if phases.phase_of(seen.vm) in phases.OWNED_BY_HANDLER:
        status = phases.enter(status, phases.UNKNOWN, seen.now)
    return statuses.write(seen, status, Emit("Warning", NODE_UNREACHABLE, message))
