"""Nodes that are being drained or kept empty. Pure.

Cordoning or tainting a node needs rights on Nodes, which no tenant has.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig

EMPTYING_TAINTS: Final = frozenset({"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints that mean this, besides ``spec.unschedulable``: of kubectl cordon, the cluster autoscaler and Karpenter."""


OFF_TAINT: Final = "node.kubernetes.io/out-of-service"
"""The taint of a node that is off, as a person states (KEP-2268)."""


def is_being_emptied(node: Object | None) -> bool:
    """Return True if the node is being drained or kept empty."""
    return bool(dig(node, "spec", "unschedulable")) or any(each["key"] in EMPTYING_TAINTS for each in _taints(node))


def is_called_off(node: Object | None) -> bool:
    """Return True if a person states that the node is off: by the taint, or by the deletion of the Node."""
    return node is None or any(each["key"] == OFF_TAINT for each in _taints(node))


def trim(node: Object) -> Object:
    """Return the relevant part of a Node's ``spec``."""
    cordoned: Object = {"unschedulable": True} if dig(node, "spec", "unschedulable") else {}
    taints = _taints(node)
    return {**cordoned, **({"taints": [{"key": each["key"], "effect": each["effect"]} for each in taints]} if taints else {})}


def _taints(node: Object | None) -> list[Object]:
    taints = dig(node, "spec", "taints") or ()
    return [each for each in taints if each.get("key") == OFF_TAINT or _empties(each)]


def _empties(taint: Object) -> bool:
    return taint.get("key") in EMPTYING_TAINTS and taint.get("effect") == "NoSchedule"
