"""Shares of the node: ``resources``, without the overhead of QEMU and libvirt."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.quantity import Quantity
from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.hardware.given import Domain

CPU_REQUEST_MILLI: Final = 100
"""Per processor, because most guests idle."""


def cpu_request(domain: Domain) -> int:
    """Return the CPU request in thousandths of a processor: 1000 per dedicated one, else as specified, else 100 each, up to the limit."""
    if cpu.is_dedicated(domain):
        return cpu.dedicated(domain) * 1000
    asked, limit = said(domain, "requests", "cpu"), cpu_limit(domain)
    if asked is not None:
        return asked.milli
    unsaid = CPU_REQUEST_MILLI * cpu.vcpus(domain)
    return min(unsaid, limit) if limit else unsaid


def cpu_limit(domain: Domain) -> int:
    """Return the CPU limit in thousandths of a processor: 1000 per dedicated one, else as specified; 0: none."""
    if cpu.is_dedicated(domain):
        return cpu.dedicated(domain) * 1000
    limit = said(domain, "limits", "cpu")  # the processors alone are too few for QEMU's further threads
    return limit.milli if limit is not None else 0


def memory_request(domain: Domain) -> int:
    """Return the memory request in bytes, by default the guest's memory; the pod adds QEMU's overhead."""
    asked = said(domain, "requests", "memory")
    return memory.guest_bytes(domain) if asked is None else asked.bytes


def memory_limit(domain: Domain) -> int:
    """Return the memory limit in bytes; by default the request, but at least the guest's memory. The pod adds QEMU's overhead."""
    limit = said(domain, "limits", "memory")
    return max(memory.guest_bytes(domain), memory_request(domain)) if limit is None else limit.bytes


def can_resize_memory(domain: Domain, other: Domain) -> bool:
    """Return whether a running guest can get the memory of ``other``: whole blocks more or less, within maximum and limit of ``domain``."""
    wanted, limit = memory.guest_bytes(other), said(domain, "limits", "memory")
    return (
        memory.grows(domain)
        and (wanted - memory.guest_bytes(domain)) % memory.BLOCK_BYTES == 0
        and wanted <= memory.max_guest_bytes(domain)
        and (limit is None or wanted <= limit.bytes)
    )


def said(domain: Domain, which: str, name: str) -> Quantity | None:
    """Return the quantity in ``resources.<which>.<name>``, or None."""
    given = ((domain.get("resources") or {}).get(which) or {}).get(name)
    return None if given is None else quantity.parse(str(given))


def compared(domain: Domain) -> Object:
    """Return the specified resources as quantities by name (``requests.cpu``), for comparisons."""
    return {
        f"{which}.{name}": amount
        for which in ("requests", "limits")
        for name in ("cpu", "memory")
        if (amount := said(domain, which, name)) is not None
    }
