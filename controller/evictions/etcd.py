"""Decides about the eviction of etcd's only member. Pure.

Draining the node with its data would stop our API, so an administrator must move the data first. A PodDisruptionBudget also forbids it, for
cluster autoscalers and clients that bypass this webhook; this module explains it.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, is_deleting, labels_of, name_of
from apiserver.apis.virt.places import names
from controller.evictions.eviction_plan import ALLOWED, Decision
from controller.reconcilers.pods import liveness, pod_state

PREFIX: Final = "kubevirt-etcd-"
"""Also in the webhook's ``matchConditions`` in the chart."""
COMPONENT: Final = "etcd"
COMMAND: Final = "kubectl virt move-etcd --to NODE"


def plan(pod: Object | None) -> Decision:
    """Return a refusal for a pod of etcd that has a node, may run, and is not being deleted; allow any other."""
    if pod is None or labels_of(pod).get(names.COMPONENT_LABEL) != COMPONENT:
        return ALLOWED
    if is_deleting(pod) or not liveness.may_run(pod) or not pod_state.node_of(pod):
        return ALLOWED
    message = (
        f"pod {name_of(pod)} is the only member of etcd. Without it, the API of virtual machines is unavailable; running guests continue"
    )
    return Decision(allowed=False, message=f"{message}. Move it to another node first: {COMMAND}", lasts=True)
