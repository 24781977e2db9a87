"""Nodes that somebody takes everything off, or keeps empty. Pure.

Cordoning a node, or giving it a taint, takes rights on Nodes, which no tenant has.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object, dig

EMPTYING_TAINTS: Final = frozenset({"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints of nodes that are being emptied, beside ``spec.unschedulable``: of kubectl cordon, the cluster autoscaler and Karpenter."""


def is_being_emptied(node: Object | None) -> bool:
    """Return whether somebody with rights on Nodes is taking everything off this one, or keeps it empty."""
    return bool(dig(node, "spec", "unschedulable")) or bool(_taints(node))


def trim(node: Object) -> Object:
    """Return what of a Node's ``spec`` says so."""
    cordoned: Object = {"unschedulable": True} if dig(node, "spec", "unschedulable") else {}
    taints = _taints(node)
    return {**cordoned, **({"taints": [{"key": each["key"], "effect": each["effect"]} for each in taints]} if taints else {})}


def _taints(node: Object | None) -> list[Object]:
    taints = dig(node, "spec", "taints") or ()
    return [each for each in taints if each.get("key") in EMPTYING_TAINTS and each.get("effect") == "NoSchedule"]
