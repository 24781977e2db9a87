"""Virtual processors: ``cpu``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import cpu as hardware
from apiserver.apis.virt.v1alpha1.domain import cpu_names, cpu_numa
from apiserver.apis.virt.v1alpha1.domain.cpu_numa import NUMA
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_count, validate_unique

MAX_CPUS: Final = 255
"""More need an interrupt controller (x2APIC behind an IOMMU) that the pc machine types and the older ones of q35 do not have."""
MAX_FEATURES: Final = 128


class CPUFeature(Model):
    """One feature of the processors."""

    name: str = Field(description="Its name in libvirt, such as avx2.")
    policy: hardware.Policy | None = Field(
        None,
        description="Rule by which the guest has it. force: whatever the node's processors have; require: with KVM, the machine starts on "
        "no node without it; optional: where the node has it; disable: never; forbid: never, and with KVM the machine starts on no node "
        "that has it. Without KVM there is no node to ask: force, require and optional turn it on as far as the emulator has it. Default "
        "require.",
    )


class CPU(Model):
    """The virtual processors that the guest sees: sockets x cores x threads of them."""

    sockets: Int32 | None = Field(None, description="Number of sockets. Default 1.")
    cores: Int32 | None = Field(None, description="Cores of each socket. Default 1.")
    threads: Int32 | None = Field(None, description="Threads of each core. Default 1.")
    max_sockets: Int32 | None = Field(
        None, description="Number of sockets that there is room for; those beyond sockets are empty. Default: as many as sockets."
    )
    model: str | None = Field(
        None,
        description="A CPU model that libvirt knows, host-model or host-passthrough. Empty: with KVM, the best model that all nodes have "
        "which the machine may run on, so that it can move between them (status.cpu says which), or the node's own processor where they "
        "have none in common; the emulator's best without KVM. With KVM, a machine that has a model starts only on nodes that can do it.",
    )
    features: list[CPUFeature] | None = Field(
        None, description="Features that the processors have, or have not, beside those of their model.", json_schema_extra=ATOMIC
    )
    dedicated_cpu_placement: bool | None = Field(
        None,
        description="Each virtual processor runs on one of the node's that nobody else uses. Needs a kubelet with the static policy of its "
        "CPU manager; on another node the start fails and says so. The machine cannot be migrated live. Default false.",
    )
    isolate_emulator_thread: bool | None = Field(
        None, description="One more of the node's processors is for QEMU's own threads; with dedicatedCpuPlacement only. Default false."
    )
    numa: NUMA | None = Field(None, description="The guest's NUMA topology. Default: one node.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return the errors of ``cpu``."""
    cpu, path = domain["cpu"], path.child("cpu")
    found = _validate_counts(domain, cpu, path)
    if (model := cpu.get("model")) and model not in cpu_names.MODELS | hardware.OF_THE_NODE:
        found.append(invalid(path.child("model"), model, "must be the name of a CPU model of libvirt, host-model or host-passthrough"))
    found += _validate_features(cpu.get("features") or [], path.child("features"))
    if cpu.get("isolateEmulatorThread") and not hardware.is_dedicated(domain):
        found.append(forbidden(path.child("isolateEmulatorThread"), "needs dedicatedCpuPlacement"))
    if cpu.get("maxSockets") is not None and hardware.is_dedicated(domain):
        text = "may not be set with dedicatedCpuPlacement: processors that come later would have none of the node's for themselves"
        found.append(forbidden(path.child("maxSockets"), text))
    return found or cpu_numa.validate(domain, path)


def _validate_counts(domain: Object, cpu: Object, path: Path) -> list[FieldError]:
    found = [error for field in hardware.COUNTS for error in validate_between(cpu[field], 1, MAX_CPUS, path.child(field))]
    most = path.child("maxSockets")
    if (room := cpu.get("maxSockets")) is not None:
        found += validate_between(room, cpu["sockets"], MAX_CPUS, most)
    place = path if room is None else most
    if not found and (total := hardware.max_vcpus(domain)) > MAX_CPUS:
        found.append(invalid(place, total, f"sockets x cores x threads must be less than or equal to {MAX_CPUS}"))
    elif not found and (total := hardware.highest_apic_id(domain) + 1) > MAX_CPUS:
        text = f"sockets x cores x threads must be less than or equal to {MAX_CPUS} where cores and threads count as the next power of two"
        found.append(invalid(place, total, text))
    return found


def _validate_features(features: list[Object], path: Path) -> list[FieldError]:
    found = validate_count(features, MAX_FEATURES, path)
    for position, feature in enumerate(features):
        if (name := feature.get("name") or "") not in cpu_names.FEATURES:
            found.append(invalid(path.index(position).child("name"), name, "must be the name of a CPU feature of libvirt such as avx2"))
    return found + validate_unique(features, "name", path)
