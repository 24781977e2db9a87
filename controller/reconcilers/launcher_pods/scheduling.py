"""Placement of a pod: the machine's wishes, and those of the decision to start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt import names

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_PASSED_ON: Final = ("tolerations", "topologySpreadConstraints", "priorityClassName", "schedulerName")


@dataclass(frozen=True, slots=True)
class Placement:
    """The wishes of the decision for a node, beside the machine's own."""

    kvm: bool = False
    avoid_nodes: tuple[str, ...] = ()
    """Start attempts failed there: another node is preferred."""
    not_on_node: str = ""
    """Never there: the source of a migration."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of a Migration; it wins over the machine's."""


def scheduling(vm: Object, placement: Placement) -> Object:
    """Return the fields of a pod's spec by which it is placed."""
    spec = dig(vm, "spec") or {}
    result: Object = {key: spec[key] for key in _PASSED_ON if spec.get(key)}
    if spec.get("nodeName") and not placement.not_on_node:
        result["nodeName"] = spec["nodeName"]
    selector = _translated({**(spec.get("nodeSelector") or {}), **placement.node_selector})
    if selector:
        result["nodeSelector"] = selector
    if affinity := _affinity(spec.get("affinity") or {}, placement):
        result["affinity"] = affinity
    return result


def _translated(selector: Mapping[str, str]) -> dict[str, str]:
    return {(HOSTNAME_LABEL if key == names.HOSTNAME_SELECTOR else key): value for key, value in selector.items()}


def _affinity(given: Object, placement: Placement) -> Object:
    node: Object = dict(given.get("nodeAffinity") or {})
    if placement.not_on_node:
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives: the rule has to stand in each of them
        rule = _not_on((placement.not_on_node,))
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {
            **required,
            "nodeSelectorTerms": [{**term, "matchFields": [*(term.get("matchFields") or []), *rule]} for term in terms],
        }
    if placement.avoid_nodes:
        preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        avoid = {"weight": 100, "preference": {"matchFields": _not_on(placement.avoid_nodes)}}
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, avoid]
    return {**given, "nodeAffinity": node} if node else dict(given)


def _not_on(nodes: Iterable[str]) -> list[Object]:
    """``matchFields`` takes one value a rule; it means the node's name, which its hostname label need not be."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [each]} for each in nodes]
