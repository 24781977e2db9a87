"""Virtual processors: ``<vcpu>`` and ``<cpu>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import cpu as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, word


def append(tree: Tree, definition: Definition) -> None:
    """Append the processors."""
    wanted = definition.specification.get("cpu") or {}
    counts = {key: int(wanted.get(key) or 1) for key in hardware.COUNTS}
    if min(counts.values()) < 1:
        raise InvalidSpecification("cpu: sockets, cores and threads are at least 1")
    SubElement(tree.domain, "vcpu", placement="static").text = str(hardware.vcpus(definition.specification))
    match wanted.get("model") or "":
        case "" | "host-passthrough" if definition.accelerator == "kvm":
            cpu = SubElement(tree.domain, "cpu", mode="host-passthrough", check="none", migratable="on")
        case "host-model" if definition.accelerator == "kvm":
            cpu = SubElement(tree.domain, "cpu", mode="host-model", check="partial")
        case "" | "host-passthrough" | "host-model":
            # Everything the emulator can do: what today's distributions ask for (qemu64 is below their x86-64-v2), and a Linux boots with
            # it as fast as with named models (2.2 to 2.5 s of processor time for all). The host has no part in it: the same on every node.
            cpu = SubElement(tree.domain, "cpu", mode="maximum", check="none", migratable="on")
        case model:
            cpu = SubElement(tree.domain, "cpu", mode="custom", match="exact", check="none")
            SubElement(cpu, "model", fallback="forbid").text = word(model, "cpu.model")
    SubElement(cpu, "topology", sockets=str(counts["sockets"]), cores=str(counts["cores"]), threads=str(counts["threads"]))
