"""Virtual processors: ``cpu``."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.apis.virt.hardware import cpu as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

MAX_CPUS: Final = 512

_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class CPU(Model):
    """The virtual processors that the guest sees: sockets x cores x threads of them."""

    sockets: Int32 | None = Field(None, description="Number of sockets. Default 1.")
    cores: Int32 | None = Field(None, description="Cores of each socket. Default 1.")
    threads: Int32 | None = Field(None, description="Threads of each core. Default 1.")
    model: str | None = Field(
        None,
        description="A CPU model that libvirt knows, host-model or host-passthrough. Empty: the host's own processor with KVM, and the "
        "emulator's best without.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return what is wrong with ``cpu``."""
    cpu, path = domain["cpu"], path.child("cpu")
    found = [error for field in hardware.COUNTS for error in validate_between(cpu[field], 1, MAX_CPUS, path.child(field))]
    if not found and (total := hardware.vcpus(domain)) > MAX_CPUS:
        found.append(invalid(path, total, f"sockets x cores x threads must be less than or equal to {MAX_CPUS}"))
    if (model := cpu.get("model")) and not _MODEL.fullmatch(model):
        found.append(invalid(path.child("model"), model, "must be the name of a CPU model of libvirt, host-model or host-passthrough"))
    return found
