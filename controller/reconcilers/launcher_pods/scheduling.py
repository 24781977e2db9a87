"""Scheduling of a pod: constraints of the machine and of the decision to start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.places import names, node_states
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from controller.reconcilers.launcher_pods import cpu

MAX_SELECTOR: Final = 300
"""Maximum characters of a node selector in a message."""
_NODE_NAME: Final = "metadata.name"
_PASSED_ON: Final = ("topologySpreadConstraints", "priorityClassName", "schedulerName")
STAYS: Final[tuple[Object, ...]] = tuple(
    {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute"} for each in ("not-ready", "unreachable")
)
"""Without a time limit, so Kubernetes does not shut down the guests of a node that is only cut off.

By default, it deletes pods after 300 s (admission plug-in DefaultTolerationSeconds), and the kubelet ends them when the node is back."""
BOUND: Final[Object] = {"key": node_states.NON_OPERATIONAL_TAINT, "operator": "Exists", "effect": "NoSchedule"}
"""For a pod that can run on one node only, so avoiding that node does not help."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Scheduling constraints besides the machine's own."""

    kvm: bool = False
    avoid_nodes: tuple[str, ...] = ()
    """Preferably; attempts or migrations failed there."""
    not_on_node: str = ""
    never_on: tuple[str, ...] = ()
    """Their virt-handlers are incompatible, or they are fenced."""
    only_on: str = ""
    """A suspended guest needs this node; empty: any."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """From a Migration, or the verb start; overrides the machine's."""
    source_labels: Mapping[str, str] = field(default_factory=dict)
    """CPU features of a migration's source node that the guest may use."""
    chosen: Chosen | None = None


def scheduling(vm: Object, placement: Placement) -> Object:
    """Return the scheduling fields of a pod's spec, except tolerations.

    A user's value for a label overrides that of the processors. A pod without KVM or with a fixed node requires none of their labels:
    libvirt reports missing features.
    """
    spec = dig_vm(vm, "spec") or {}
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


def beside_guest(vm: Object) -> Object:
    """Return the scheduling fields of a pod on the guest's node. The scheduler takes part, because it binds claims."""
    node = str(dig_vm(vm, "status", "nodeName") or "")
    terms = [{"matchFields": [{"key": _NODE_NAME, "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return {"affinity": affinity, "tolerations": tolerations(vm, Placement(only_on=node))}


def tolerations(vm: Object, placement: Placement) -> list[Object]:
    """Return the machine's tolerations, :data:`STAYS`, for unreachable nodes, and with ``only_on`` :data:`BOUND`.

    Of all tolerations that match a taint, Kubernetes uses the shortest time.
    """
    return [*(dig_vm(vm, "spec", "tolerations") or ()), *STAYS, *([BOUND] if placement.only_on else ())]


def tolerates_fence(vm: Object) -> bool:
    """Return whether the machine's tolerations match the taint ``out-of-service``, so it does not keep the machine's pods away.

    The machine may be invalid.
    """
    given: Any = dig_vm(vm, "spec", "tolerations")
    return any(
        isinstance(each, dict) and each.get("key") in (None, "", node_states.OFF_TAINT) and each.get("effect") in (None, "", "NoExecute")
        for each in (given if isinstance(given, list) else ())
    )


def never_on(vm: Object, incompatible: Iterable[str], fenced: Iterable[str]) -> tuple[str, ...]:
    """Return :attr:`Placement.never_on`. Fenced nodes are named only if the machine tolerates their taint, which may go earlier."""
    return tuple(sorted({*incompatible, *(fenced if tolerates_fence(vm) else ())}))


def in_words(selector: Mapping[str, str]) -> str:
    """Return the labels of a node selector for a message."""
    return one_line(", ".join(f"{key}={value}" for key, value in sorted(selector.items())), MAX_SELECTOR)


def _translated(selector: Mapping[str, str]) -> dict[str, str]:
    return {(names.HOSTNAME_LABEL if key == names.HOSTNAME_SELECTOR else key): value for key, value in selector.items()}


def _affinity(given: Object, placement: Placement, unwanted: Sequence[str]) -> Object:
    node: Object = dict(given.get("nodeAffinity") or {})
    rules = {
        "matchFields": [
            *([{"key": _NODE_NAME, "operator": "In", "values": [placement.only_on]}] if placement.only_on else ()),
            *_not_on((*((placement.not_on_node,) if placement.not_on_node else ()), *placement.never_on)),
        ],
        "matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in unwanted],
    }
    if any(rules.values()):
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives, so each must contain the rules
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
    return [{"key": _NODE_NAME, "operator": "NotIn", "values": [each]} for each in nodes]
