"""A VM with every field that virt-controller copies into its pod."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from tests.unit.controller.reconcilers.builders import a_vm

_LABELS: Object = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["db"]}]}
_NODES: Object = {
    "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node9"]}],
}
_NEIGHBOURS: Object = {
    "labelSelector": _LABELS,
    "namespaces": ["a"],
    "namespaceSelector": _LABELS,
    "topologyKey": "zone",
    "matchLabelKeys": ["generation"],
    "mismatchLabelKeys": ["tenant"],
}
_OF_PODS: Object = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_NEIGHBOURS],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _NEIGHBOURS}],
}
_SPREAD: Object = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": _LABELS,
    "minDomains": 2,
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Honor",
    "matchLabelKeys": ["generation"],
}
COPIED = a_vm(
    tolerations=[{"key": "dedicated", "operator": "Equal", "value": "vms", "effect": "NoExecute", "tolerationSeconds": 60}],
    topologySpreadConstraints=[_SPREAD],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": _NODES}],
        },
        "podAffinity": _OF_PODS,
        "podAntiAffinity": _OF_PODS,
    },
)
