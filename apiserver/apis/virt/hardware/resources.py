"""Shares of the node: ``resources``. What QEMU and libvirt need beside the guest's memory is not in them."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.quantity import Quantity
from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.hardware.given import Domain

CPU_REQUEST_MILLI: Final = 100
"""Requested for each processor: guests are idle most of the time."""


def cpu_request(domain: Domain) -> int:
    """Return thousandths of a processor that are requested.

    Raises:
        ValueError: what is given is no quantity. So do all functions here.
    """
    if cpu.is_dedicated(domain):
        return cpu.dedicated(domain) * 1000
    asked, limit = said(domain, "requests", "cpu"), cpu_limit(domain)
    if asked is not None:
        return asked.milli
    unsaid = CPU_REQUEST_MILLI * cpu.vcpus(domain)
    return min(unsaid, limit) if limit else unsaid


def cpu_limit(domain: Domain) -> int:
    """Return thousandths of a processor that may be used at most; 0: there is no limit.

    QEMU's threads for disks, network and migrations run beside those of the processors, so that the number of these would be too little.
    """
    if cpu.is_dedicated(domain):
        return cpu.dedicated(domain) * 1000
    limit = said(domain, "limits", "cpu")
    return limit.milli if limit is not None else 0


def memory_request(domain: Domain) -> int:
    """Return the bytes that are requested for the guest's memory."""
    asked = said(domain, "requests", "memory")
    return memory.guest_bytes(domain) if asked is None else asked.bytes


def memory_limit(domain: Domain) -> int:
    """Return the bytes that the guest's memory may take: all of it, whatever was requested."""
    limit = said(domain, "limits", "memory")
    return max(memory.guest_bytes(domain), memory_request(domain)) if limit is None else limit.bytes


def said(domain: Domain, which: str, name: str) -> Quantity | None:
    """Return ``resources.<which>.<name>`` where it is given."""
    given = ((domain.get("resources") or {}).get(which) or {}).get(name)
    return None if given is None else quantity.parse(str(given))


def compared(domain: Domain) -> Object:
    """Return what is given in one way of writing: for comparisons."""
    return {
        f"{which}.{name}": amount
        for which in ("requests", "limits")
        for name in ("cpu", "memory")
        if (amount := said(domain, which, name)) is not None
    }
