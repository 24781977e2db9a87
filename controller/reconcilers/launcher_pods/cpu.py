"""Virtual processors: ``cpu``, and the labels that nodes have to have for them (:mod:`handler.cpu` writes those)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt import names
from apiserver.apis.virt.hardware import cpu, resources
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

VCPU_BYTES: Final = 8 * MIB
"""A thread's stack and libvirt's and QEMU's books about it."""
TRUE: Final = "true"
"""Value of every such label."""
MAX_LABELS: Final = 512
"""Of a source node that its guest's next node has to have, too: virt-handler writes no more."""
MAX_TOLD: Final = 4
_MAX_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A label that a node has to have for the sake of a field, or may not have."""

    path: str
    """Of the field."""
    name: str
    """Of the model or feature."""
    key: str
    present: bool = True


def needs(domain: Object, claims: Claims) -> Needs:
    """Return what the processors need."""
    del claims
    return Needs(
        overhead_bytes=VCPU_BYTES * cpu.vcpus(domain),
        cpu_request_milli=resources.cpu_request(domain),
        cpu_limit_milli=resources.cpu_limit(domain),
    )


def node_labels(vm: Object) -> tuple[NodeLabel, ...]:
    """Return the labels that the fields of a machine with KVM ask for; of one with XML none, for its processors stand in that.

    A node can have a model without some of its features. So the model's label is not asked for where the machine takes features away from
    it: whether the node can do the rest only libvirt says, at the start. ``force`` and ``optional`` hold on every node.
    """
    if dig(vm, "spec", "domainXML"):
        return ()
    domain = dig(vm, "spec", "domain") or {}
    features = [(each.get("name") or "", each.get("policy") or cpu.POLICY) for each in dig(domain, "cpu", "features") or ()]
    found = []
    if (model := cpu.model(domain)) and all(policy == "require" for _, policy in features):
        found.append(NodeLabel("spec.domain.cpu.model", model, names.CPU_MODEL_LABELS + model))
    for position, (name, policy) in enumerate(features):
        if policy in ("require", "forbid"):
            path = f"spec.domain.cpu.features[{position}]"
            found.append(NodeLabel(path, name, names.CPU_FEATURE_LABELS + name, present=policy == "require"))
    return tuple(found)


def demands(vm: Object) -> str:
    """Return what a machine with KVM asks of the labels of nodes, in words and with the fields' paths; empty if nothing."""
    labels = node_labels(vm)
    told = [f"{each.path}: {each.name} needs a node with{'' if each.present else 'out'} the label {each.key}" for each in labels[:MAX_TOLD]]
    if len(labels) > MAX_TOLD:
        told.append(f"and {len(labels) - MAX_TOLD} more of spec.domain.cpu.features")
    return one_line("; ".join(told), _MAX_TEXT)


def is_the_nodes(vm: Object) -> bool:
    """Return whether the guest of a machine with KVM has what the processors of the node have that it started on."""
    return not dig(vm, "spec", "domainXML") and not cpu.model(dig(vm, "spec", "domain") or {})


def of_source(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those of a node's labels that say what a guest with its processors has: the guest's next node has to have them all."""
    found = sorted(each for each in labels if each.startswith((names.HOST_MODEL_LABELS, names.CPU_FEATURE_LABELS)))
    return {key: labels[key] for key in found[:MAX_LABELS]}
