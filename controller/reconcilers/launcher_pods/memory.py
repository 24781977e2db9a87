"""The guest's memory: ``memory``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import memory, resources
from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.requirements import Claims, Requirements, in_mebibytes

PAGE_TABLE_SHARE: Final = 512
"""Eight bytes of page table map a page of 4096."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the guest's memory (huge pages, or request and limit), and its page tables."""
    del claims
    guest = memory.guest_bytes(domain)
    tables = Requirements(overhead_bytes=guest // PAGE_TABLE_SHARE)
    if size := memory.page_size(domain):
        return tables + _hugepages(guest, size)
    limit = resources.memory_limit(domain)
    return tables + Requirements(guest_bytes=limit, unrequested_bytes=limit - resources.memory_request(domain))


def _hugepages(guest: int, size: str) -> Requirements:
    return Requirements(
        resources={f"hugepages-{size}": guest},
        volumes=({"name": layout.HUGEPAGES_VOLUME, "emptyDir": {"medium": f"HugePages-{size}", "sizeLimit": in_mebibytes(guest)}},),
        mounts=({"name": layout.HUGEPAGES_VOLUME, "mountPath": layout.HUGEPAGES_DIRECTORY},),
    )
