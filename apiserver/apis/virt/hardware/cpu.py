"""Virtual processors: ``cpu``."""

from __future__ import annotations

import math
from typing import Final, Literal, get_args

from apiserver.apis.virt.hardware.given import Domain

COUNTS: Final = ("sockets", "cores", "threads")
OF_THE_NODE: Final = frozenset({"host-model", "host-passthrough"})
"""In place of a model. With KVM the guest has the node's features, as without a model."""
Policy = Literal["force", "require", "optional", "disable", "forbid"]
POLICIES: Final = get_args(Policy)
POLICY: Final = "require"
"""libvirt's default for features."""
MAX_QUEUES: Final = 8
"""More make a pod's disk or network card no faster."""


def counts(domain: Domain) -> dict[str, int]:
    """Return the guest's initial numbers, default 1, of ``sockets``, ``cores`` and ``threads``, by these names."""
    cpu = domain.get("cpu") or {}
    return {each: int(cpu.get(each) or 1) for each in COUNTS}


def vcpus(domain: Domain) -> int:
    """Count the processors: sockets times cores times threads."""
    return math.prod(counts(domain).values())


def max_sockets(domain: Domain) -> int:
    """Return the most sockets after hot-plug."""
    return max(int((domain.get("cpu") or {}).get("maxSockets") or 0), counts(domain)["sockets"])


def max_vcpus(domain: Domain) -> int:
    """Return the most processors after hot-plug."""
    return math.prod((counts(domain) | {"sockets": max_sockets(domain)}).values())


def grows(domain: Domain, other: Domain) -> bool:
    """Return whether a running guest with the sockets of ``domain`` can get those of ``other``: more, up to the maximum of ``domain``.

    Cores and threads must be equal; other fields of ``cpu`` are not compared. Never with dedicated processors or ``numa``.
    """
    room = counts(domain)["sockets"] < counts(other)["sockets"] <= max_sockets(domain)
    return (
        room
        and not is_dedicated(domain)
        and not (domain.get("cpu") or {}).get("numa")
        and counts(domain) | {"sockets": 0} == counts(other) | {"sockets": 0}
    )


def highest_apic_id(domain: Domain) -> int:
    """Return the highest APIC id after hot-plug; if cores or threads are not a power of two, ids are skipped (Intel SDM, 10.9.1)."""
    each = counts(domain)
    threads, cores = (max(each[name] - 1, 0).bit_length() for name in ("threads", "cores"))
    return ((max_sockets(domain) - 1 << cores) + each["cores"] - 1 << threads) + each["threads"] - 1


def queues(domain: Domain) -> int:
    """Return a multi-queue device's number of queues: one per processor, up to ``MAX_QUEUES``."""
    return min(vcpus(domain), MAX_QUEUES)


def model(domain: Domain) -> str:
    """Return the guest's CPU model; empty if that is unspecified, or that of the node."""
    name = str((domain.get("cpu") or {}).get("model") or "")
    return "" if name in OF_THE_NODE else name


def is_dedicated(domain: Domain) -> bool:
    """Return whether each processor of the guest gets a dedicated one of the node."""
    return bool((domain.get("cpu") or {}).get("dedicatedCpuPlacement"))


def isolates_emulator(domain: Domain) -> bool:
    """Return whether QEMU's other threads get a further dedicated processor."""
    return is_dedicated(domain) and bool((domain.get("cpu") or {}).get("isolateEmulatorThread"))


def dedicated(domain: Domain) -> int:
    """Count the node's processors dedicated to the machine and QEMU; 0: none."""
    return vcpus(domain) + isolates_emulator(domain) if is_dedicated(domain) else 0
