"""Reads from a Node whether it is drained or fenced, and whether its kubelet reports.

Cordoning or tainting a node needs rights on Nodes, which tenants lack.
"""

from __future__ import annotations

import re
from typing import Final

from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt.places import names

EMPTYING_TAINTS: Final = frozenset({"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints of kubectl cordon, the cluster autoscaler and Karpenter, besides ``spec.unschedulable``."""
OFF_TAINT: Final = "node.kubernetes.io/out-of-service"
"""A person or fence agent states that the node is off (KEP-2268)."""
OFF_VALUE: Final = re.compile(r"(?:nodeshutdown-)?boot-([0-9a-f-]{8,43}[0-9a-f])")
"""A value of that taint which names the boot that ended (``fencing``)."""
NON_OPERATIONAL_TAINT: Final = f"{names.GROUP}/non-operational"
"""virt-controller sets it, if the administrator allows that (docs/operating/nodes.md)."""
NON_OPERATIONAL_CONDITION: Final = "KubevirtNonOperational"
FENCED_BY_ANNOTATION: Final = f"{names.GROUP}/fenced-by"
"""On a Node: who called it off with ``kubectl virt fence``, and when."""
ACCELERATION_ANNOTATION: Final = f"{names.GROUP}/acceleration"
"""On a virt-handler's Lease: ``kvm`` or ``qemu``, and why."""


def is_being_emptied(node: Object | None) -> bool:
    """Return whether the node is cordoned, or has an autoscaler's taint (:func:`is_emptying`); False without a Node."""
    return bool(dig(node, "spec", "unschedulable")) or any(is_emptying(each) for each in taints_of(node))


def is_fenced(node: Object | None) -> bool:
    """Return whether a person or fence agent states that the node is off: by the taint, or by deleting the Node.

    A taint that names a boot says nothing about guests of later boots.
    """
    return node is None or any(_ended_boot(each) in ("", boot_of(node)) for each in taints_of(node) if each.get("key") == OFF_TAINT)


def has_off_taint(node: Object | None) -> bool:
    """Return whether the node has the taint ``out-of-service``, perhaps from before its latest start."""
    return any(each.get("key") == OFF_TAINT for each in taints_of(node))


def _ended_boot(taint: Object) -> str:
    named = OFF_VALUE.fullmatch(str(taint.get("value") or ""))
    return named[1] if named else ""


def boot_of(node: Object | None) -> str:
    """Return the boot ID that the node's kubelet reported; else empty."""
    return str(dig(node, "status", "nodeInfo", "bootID") or "")


def kubelet_is_unreachable(node: Object | None) -> bool:
    """Return whether a node's ``Ready`` is Unknown or missing, or the Node is gone."""
    ready = condition(dig(node, "status", "conditions"), "Ready")
    return ready is None or ready.get("status") == "Unknown"


def is_emptying(taint: Object) -> bool:
    """Return whether this is a taint, of effect NoSchedule, by kubectl cordon, the cluster autoscaler or Karpenter."""
    return taint.get("key") in EMPTYING_TAINTS and taint.get("effect") == "NoSchedule"


def taints_of(node: Object | None) -> list[Object]:
    """Return the node's taints; none without a Node."""
    return list(dig(node, "spec", "taints") or ())
