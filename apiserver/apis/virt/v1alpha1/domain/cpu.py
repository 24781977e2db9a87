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
"""More need x2APIC behind an IOMMU, which pc and older q35 versions lack."""
MAX_FEATURES: Final = 128


class CPUFeature(Model):
    """One feature of the processors."""

    name: str = Field(description="Its name in libvirt, such as avx2.")
    policy: hardware.Policy | None = Field(
        None,
        description="Rule for the feature. force: the guest has it on every node. require: with KVM, the machine starts only on nodes "
        "with the feature. optional: the guest has it if the node has it. disable: the guest lacks it. forbid: the guest lacks it, and "
        "with KVM the machine starts only on nodes without the feature. Without KVM the node does not matter: force, require and optional "
        "turn it on if the emulator has it. Default require.",
    )


class CPU(Model):
    """The guest's virtual processors: sockets x cores x threads."""

    sockets: Int32 | None = Field(
        None, description="Number of sockets. A running guest gets more of them, up to the maxSockets of its start. Default 1."
    )
    cores: Int32 | None = Field(None, description="Cores of each socket. Default 1.")
    threads: Int32 | None = Field(None, description="Threads of each core. Default 1.")
    max_sockets: Int32 | None = Field(
        None, description="Maximum number of sockets; those beyond sockets are empty. Default: as many as sockets."
    )
    model: str | None = Field(
        None,
        description="A CPU model that libvirt knows, host-model or host-passthrough. Empty, with KVM: the best model that all possible "
        "nodes of the machine support, so that it can migrate between them (see status.cpu), or the node's own processor if they have no "
        "model in common. Empty, without KVM: the emulator's best. With KVM, a machine with a model starts only on nodes that support it.",
    )
    features: list[CPUFeature] | None = Field(
        None, description="Features that the processors have or lack, different from their model.", json_schema_extra=ATOMIC
    )
    dedicated_cpu_placement: bool | None = Field(
        None,
        description="Each virtual processor has an exclusive processor of the node. Needs a kubelet with the static CPU manager policy; "
        "on other nodes the start fails with a message. The machine cannot migrate live. Default false.",
    )
    isolate_emulator_thread: bool | None = Field(
        None, description="One more processor of the node runs QEMU's own threads; only with dedicatedCpuPlacement. Default false."
    )
    numa: NUMA | None = Field(None, description="The guest's NUMA topology. Default: one node.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``cpu``, below ``path``, of a domain with defaults."""
    cpu, path = domain["cpu"], path.child("cpu")
    found = _validate_counts(domain, cpu, path)
    if (model := cpu.get("model")) and model not in cpu_names.MODELS | hardware.OF_THE_NODE:
        found.append(invalid(path.child("model"), model, "must be the name of a CPU model of libvirt, host-model or host-passthrough"))
    found += _validate_features(cpu.get("features") or [], path.child("features"))
    if cpu.get("isolateEmulatorThread") and not hardware.is_dedicated(domain):
        found.append(forbidden(path.child("isolateEmulatorThread"), "needs dedicatedCpuPlacement"))
    if cpu.get("maxSockets") is not None and hardware.is_dedicated(domain):
        text = "may not be set with dedicatedCpuPlacement: additional processors would have no dedicated processors of the node"
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
        text = f"sockets x cores x threads must be less than or equal to {MAX_CPUS} with cores and threads rounded up to powers of two"
        found.append(invalid(place, total, text))
    return found


def _validate_features(features: list[Object], path: Path) -> list[FieldError]:
    found = validate_count(features, MAX_FEATURES, path)
    for position, feature in enumerate(features):
        if (name := feature.get("name") or "") not in cpu_names.FEATURES:
            found.append(invalid(path.index(position).child("name"), name, "must be the name of a CPU feature of libvirt such as avx2"))
    return found + validate_unique(features, "name", path)
