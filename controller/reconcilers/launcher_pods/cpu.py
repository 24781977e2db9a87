"""Virtual processors: ``cpu``, and the labels that nodes need for them (written by :mod:`handler.cpu`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.names import qualified_name_errors
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.hardware import cpu, resources
from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import chosen_cpu, running
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

VCPU_BYTES: Final = 8 * MIB
"""A thread's stack, and the bookkeeping of libvirt and QEMU."""
TRUE: Final = "true"
MAX_LABELS: Final = 512
"""virt-handler writes no more."""
MAX_TOLD: Final = 4
_MAX_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A label that a node must or must not have because of a field."""

    path: str
    name: str
    key: str
    present: bool = True


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the processors' overhead in memory, their CPU request and CPU limit."""
    del claims
    return Requirements(
        overhead_bytes=VCPU_BYTES * cpu.max_vcpus(domain),
        cpu_request_milli=resources.cpu_request(domain),
        cpu_limit_milli=resources.cpu_limit(domain),
    )


def node_labels(vm: Object) -> tuple[NodeLabel, ...]:
    """Return the labels that a node must or must not have because of the CPU in a KVM machine's fields or XML.

    The model's label is required only if each named feature is; else libvirt checks the model at the start. ``force`` and ``optional``
    work on all nodes.
    """
    spec = running.spec_of(vm)
    if spec.get("domainXML"):
        return _labels_of_xml(vm)
    domain = spec.get("domain") or {}
    given = enumerate(dig(domain, "cpu", "features") or ())
    features = [(f"spec.domain.cpu.features[{at}]", each.get("name") or "", each.get("policy") or cpu.POLICY) for at, each in given]
    return _labels("spec.domain.cpu.model", cpu.model(domain), features)


def _labels(model_path: str, model: str, features: Sequence[tuple[str, str, str]]) -> tuple[NodeLabel, ...]:
    found = []
    if model and all(policy == "require" for _, _, policy in features):
        found.append(NodeLabel(model_path, model, names.CPU_MODEL_LABELS + model))
    for path, name, policy in features:
        if policy in ("require", "forbid"):
            found.append(NodeLabel(path, name, names.CPU_FEATURE_LABELS + name, present=policy == "require"))
    return tuple(found)


def _labels_of_xml(vm: Object) -> tuple[NodeLabel, ...]:
    """Return the labels that the XML requires, except invalid ones: libvirt checks these names."""
    found = _in_xml(vm)
    if found is None:
        return ()
    features = [(f"spec.domainXML: {each.path}", each.name, each.policy) for each in found.features]
    labels = _labels(f"spec.domainXML: {found.model_path}", found.model, features)
    return tuple(each for each in labels if not qualified_name_errors(each.key))


def _in_xml(vm: Object) -> reading.CPU | None:
    """Return the model and features in ``<cpu>`` of ``domainXML``; None if the guest is emulated, or the XML missing or malformed."""
    try:
        found = reading.read(str(running.spec_of(vm).get("domainXML")))
    except parsing.Malformed:
        return None
    return found.cpu if found.type != "qemu" else None


def of_chosen(chosen: Chosen | None) -> tuple[NodeLabel, ...]:
    """Return the labels of the chosen CPU, including features that the machine disables."""
    if chosen is None:
        return ()
    features = (
        NodeLabel(f"status.cpu.features[{position}]", name, names.CPU_FEATURE_LABELS + name)
        for position, name in enumerate(chosen.features)
    )
    return (NodeLabel("status.cpu.model", chosen.model, names.CPU_MODEL_LABELS + chosen.model), *features)


def demands(vm: Object, chosen: Chosen | None = None) -> str:
    """Return a KVM machine's required node labels as text with the fields' paths; empty if none."""
    labels = (*node_labels(vm), *of_chosen(chosen))
    told = [f"{each.path}: {each.name} needs a node with{'' if each.present else 'out'} the label {each.key}" for each in labels[:MAX_TOLD]]
    if len(labels) > MAX_TOLD:
        told.append(f"and {len(labels) - MAX_TOLD} more of {_list_of(labels[-1].path)}")
    return one_line("; ".join(told), _MAX_TEXT)


def _list_of(path: str) -> str:
    return path.rpartition("[")[0] or path


def is_the_nodes(vm: Object) -> bool:
    """Return whether the guest of a KVM machine has the CPU features of the node where it started."""
    return _is_the_nodes(vm, chosen_cpu.running(vm))


def only_node(vm: Object) -> str:
    """Return the only node where a suspended guest can resume, because of its CPU or the memory on its disk; empty: any."""
    if node := managed_save.node_with(vm):
        return node
    image = managed_save.of(vm)
    if image is None or image.get("type") == "qemu" or not _is_the_nodes(vm, chosen_cpu.chosen(vm)):
        return ""
    return str(image.get("nodeName") or "")


def _is_the_nodes(vm: Object, chosen: Chosen | None) -> bool:
    spec = running.spec_of(vm)
    if spec.get("domainXML"):
        found = _in_xml(vm)
        return found is not None and found.is_the_nodes
    return not cpu.model(spec.get("domain") or {}) and chosen is None


def of_source(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node that describe its CPU, at most ``MAX_LABELS``. A guest with it needs them all on its next node."""
    found = sorted(each for each in labels if each.startswith((names.HOST_MODEL_LABELS, names.CPU_FEATURE_LABELS)))
    return {key: labels[key] for key in found[:MAX_LABELS]}
