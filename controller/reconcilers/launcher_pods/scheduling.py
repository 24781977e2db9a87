"""Placement of a pod: the machine's wishes, and those of the decision to start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from controller.reconcilers.launcher_pods import cpu

_PASSED_ON: Final = ("tolerations", "topologySpreadConstraints", "priorityClassName", "schedulerName")


@dataclass(frozen=True, slots=True)
class Placement:
    """The wishes of the decision for a node, beside the machine's own."""

    kvm: bool = False
    avoid_nodes: tuple[str, ...] = ()
    """Attempts to start the machine, or to migrate it, failed there: another node is preferred."""
    not_on_node: str = ""
    """Never there: the source of a migration."""
    never_on: tuple[str, ...] = ()
    """Nor there: virt-handlers that speak another contract."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of a Migration; it wins over the machine's."""
    source_labels: Mapping[str, str] = field(default_factory=dict)
    """Of the source of a migration: what its processors can do, and the guest has come to rely on."""
    chosen: Chosen | None = None
    """The CPU that was chosen for a machine that names none."""


def scheduling(vm: Object, placement: Placement) -> Object:
    """Return the fields of a pod's spec by which it is placed.

    What users say of a label wins over what the processors ask for. A pod with a node of its own asks for none: its kubelet would refuse
    it in words about selectors, and libvirt says what is missing.
    """
    spec = dig(vm, "spec") or {}
    result: Object = {key: spec[key] for key in _PASSED_ON if spec.get(key)}
    if spec.get("nodeName") and not placement.not_on_node:
        result["nodeName"] = spec["nodeName"]
    labels = (*cpu.node_labels(vm), *cpu.of_chosen(placement.chosen)) if placement.kvm and "nodeName" not in result else ()
    wanted = {each.key: cpu.TRUE for each in labels if each.present}
    selector = {**wanted, **placement.source_labels, **_translated(spec.get("nodeSelector") or {}), **_translated(placement.node_selector)}
    if selector:
        result["nodeSelector"] = selector
    unwanted = [each.key for each in labels if not each.present]
    if affinity := _affinity(spec.get("affinity") or {}, placement, unwanted):
        result["affinity"] = affinity
    return result


def _translated(selector: Mapping[str, str]) -> dict[str, str]:
    return {(names.HOSTNAME_LABEL if key == names.HOSTNAME_SELECTOR else key): value for key, value in selector.items()}


def _affinity(given: Object, placement: Placement, unwanted: Sequence[str]) -> Object:
    node: Object = dict(given.get("nodeAffinity") or {})
    rules = {
        "matchFields": _not_on((*((placement.not_on_node,) if placement.not_on_node else ()), *placement.never_on)),
        "matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in unwanted],
    }
    if any(rules.values()):
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives: the rules have to stand in each of them
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {
            **required,
            "nodeSelectorTerms": [
                {**term, **{key: [*(term.get(key) or []), *added] for key, added in rules.items() if added}} for term in terms
            ],
        }
    if placement.avoid_nodes:
        preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        avoid = {"weight": 100, "preference": {"matchFields": _not_on(placement.avoid_nodes)}}
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, avoid]
    return {**given, "nodeAffinity": node} if node else dict(given)


def _not_on(nodes: Iterable[str]) -> list[Object]:
    """``matchFields`` takes one value a rule; it means the node's name, which its hostname label need not be."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [each]} for each in nodes]
