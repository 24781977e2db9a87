"""Virtual processors: ``cpu``."""

from __future__ import annotations

import math
from typing import Final, Literal, get_args

from apiserver.apis.virt.hardware.given import Domain

COUNTS: Final = ("sockets", "cores", "threads")
OF_THE_NODE: Final = frozenset({"host-model", "host-passthrough"})
"""Names in place of a model's: with KVM the guest has what the node's own processors have, as it has where no model is named."""
Policy = Literal["force", "require", "optional", "disable", "forbid"]
POLICIES: Final = get_args(Policy)
POLICY: Final = "require"
"""Of a feature that says none: libvirt's own default."""
MAX_QUEUES: Final = 8
"""Queues of one device at most: beyond eight, a disk or a network card of a pod is no faster, while each queue costs an interrupt, and
memory in QEMU."""


def counts(domain: Domain) -> dict[str, int]:
    """Return the numbers of sockets, of cores of each and of threads of each core that the guest starts with."""
    cpu = domain.get("cpu") or {}
    return {each: int(cpu.get(each) or 1) for each in COUNTS}


def vcpus(domain: Domain) -> int:
    """Return sockets times cores times threads."""
    return math.prod(counts(domain).values())


def max_sockets(domain: Domain) -> int:
    """Return how many sockets there is room for."""
    return max(int((domain.get("cpu") or {}).get("maxSockets") or 0), counts(domain)["sockets"])


def max_vcpus(domain: Domain) -> int:
    """Return how many processors there is room for."""
    return math.prod((counts(domain) | {"sockets": max_sockets(domain)}).values())


def highest_apic_id(domain: Domain) -> int:
    """Return the number of the last processor there is room for as its interrupt controller has it.

    It consists of one field of bits for socket, core and thread each, so that it leaves numbers out where cores or threads are no power
    of two (Intel SDM, volume 3, 10.9.1).
    """
    each = counts(domain)
    threads, cores = (max(each[name] - 1, 0).bit_length() for name in ("threads", "cores"))
    return ((max_sockets(domain) - 1 << cores) + each["cores"] - 1 << threads) + each["threads"] - 1


def queues(domain: Domain) -> int:
    """Return how many queues a device has that is to have several."""
    return min(vcpus(domain), MAX_QUEUES)


def model(domain: Domain) -> str:
    """Return the name of the CPU model that the guest has on every node; empty where that is the node's to say."""
    name = str((domain.get("cpu") or {}).get("model") or "")
    return "" if name in OF_THE_NODE else name


def is_dedicated(domain: Domain) -> bool:
    """Return whether each processor is to have one of the node's for itself."""
    return bool((domain.get("cpu") or {}).get("dedicatedCpuPlacement"))


def isolates_emulator(domain: Domain) -> bool:
    """Return whether QEMU's own threads have one more of the node's processors for themselves."""
    return is_dedicated(domain) and bool((domain.get("cpu") or {}).get("isolateEmulatorThread"))


def dedicated(domain: Domain) -> int:
    """Return how many of the node's processors the machine has for itself; 0: it shares them."""
    return vcpus(domain) + isolates_emulator(domain) if is_dedicated(domain) else 0
