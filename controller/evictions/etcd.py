"""Decides about the eviction of etcd's only member. Pure.

Its data is on one node, or in a volume that one node has, so a drain of that node would take our API away until the node is back. The
eviction is refused until the data has been moved, which is a person's decision. Beside this a PodDisruptionBudget allows none, so that it
also holds for who never asks here, and cluster autoscalers know it before they choose a node; this is for the words.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, is_deleting, labels_of, name_of
from apiserver.apis.virt.places import names
from controller.evictions.eviction_plan import ALLOWED, Decision
from controller.reconcilers.pods import liveness, pod_state

PREFIX: Final = "kubevirt-etcd-"
"""Of the names of etcd's pods; the webhook's ``matchConditions`` in the chart have it, too."""
COMPONENT: Final = "etcd"
COMMAND: Final = "kubectl virt move-etcd --to NODE"


def plan(pod: Object | None) -> Decision:
    """Return whether this pod of the installation's own namespace may be evicted; one that is on no node yet serves nobody."""
    if pod is None or labels_of(pod).get(names.COMPONENT_LABEL) != COMPONENT:
        return ALLOWED
    if is_deleting(pod) or not liveness.may_run(pod) or not pod_state.node_of(pod):
        return ALLOWED
    message = f"pod {name_of(pod)} is the only member of etcd: without it the API of all virtual machines is away (guests run on)"
    return Decision(allowed=False, message=f"{message}. Move it to another node first: {COMMAND}", lasts=True)
