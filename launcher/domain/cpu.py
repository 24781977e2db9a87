"""Virtual processors: ``<vcpu>``, ``<cputune>`` and ``<cpu>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import cpu as hardware
from launcher.domain import cpu_numa
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, one_of, word

_EMULATED: Final = {"force": "require", "require": "require", "optional": "require", "disable": "disable", "forbid": "disable"}
"""Feature policies for an emulated CPU: no host processor matters."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the processors, with their pins, model and NUMA nodes."""
    specification = definition.specification
    counts = hardware.counts(specification)
    if min(counts.values()) < 1:
        raise InvalidSpecification("cpu: sockets, cores and threads must be at least 1")
    vcpus, room = hardware.vcpus(specification), hardware.max_vcpus(specification)
    element = SubElement(tree.domain, "vcpu", placement="static")
    element.text = str(room)
    if vcpus < room:
        element.set("current", str(vcpus))
    _append_pins(tree.domain, definition)
    cpu = _append_model(tree.domain, definition)
    counts["sockets"] = hardware.max_sockets(specification)
    SubElement(cpu, "topology", {name: str(count) for name, count in counts.items()})
    _append_features(cpu, definition)
    cpu_numa.append(cpu, definition)


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why the processors prevent live migration; else empty."""
    if not hardware.is_dedicated(specification):
        return ""
    return "its processors are pinned to exclusive processors of the node"


def _append_model(domain: Element, definition: Definition) -> Element:
    wanted, is_kvm = definition.specification.get("cpu") or {}, definition.accelerator == "kvm"
    match wanted.get("model") or "":
        case "" | "host-passthrough" if is_kvm:
            check = "partial" if wanted.get("features") else "none"
            return SubElement(domain, "cpu", mode="host-passthrough", check=check, migratable="on")
        case "host-model" if is_kvm:
            return SubElement(domain, "cpu", mode="host-model", check="partial")
        case "" | "host-passthrough" | "host-model":
            # "maximum" is everything that the emulator supports. Current distributions require more than qemu64 has (x86-64-v2), and Linux
            # boots as fast as with named models.
            return SubElement(domain, "cpu", mode="maximum", check="none", migratable="on")
        case model:
            # With KVM, libvirt checks that the node's processor has all features. A guest that misses one fails with obscure errors.
            cpu = SubElement(domain, "cpu", mode="custom", match="exact", check="partial" if is_kvm else "none")
            SubElement(cpu, "model", fallback="forbid").text = word(model, "cpu.model")
            return cpu


def _append_features(cpu: Element, definition: Definition) -> None:
    for index, feature in enumerate((definition.specification.get("cpu") or {}).get("features") or ()):
        path = f"cpu.features[{index}]"
        policy = one_of(hardware.POLICIES, feature.get("policy") or hardware.POLICY, f"{path}.policy")
        name = word(feature.get("name"), f"{path}.name")
        SubElement(cpu, "feature", policy=policy if definition.accelerator == "kvm" else _EMULATED[policy], name=name)


def _append_pins(domain: Element, definition: Definition) -> None:
    """With dedicated processors, pin each virtual one to one of the pod; QEMU's other threads get those left, or else all."""
    specification, own = definition.specification, definition.processors
    if not (needed := hardware.dedicated(specification)):
        return
    if len(own) != needed:
        raise InvalidSpecification(
            f"cpu.dedicatedCpuPlacement: the machine needs {needed} exclusive processors of the node, but its pod may use {len(own)}: "
            "set cpuManagerPolicy: static in the configuration of the node's kubelet"
        )
    vcpus = hardware.vcpus(specification)
    tune = SubElement(domain, "cputune")
    for index, processor in enumerate(own[:vcpus]):
        SubElement(tune, "vcpupin", vcpu=str(index), cpuset=str(processor))
    SubElement(tune, "emulatorpin", cpuset=",".join(map(str, own[vcpus:] or own)))
