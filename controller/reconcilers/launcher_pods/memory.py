"""The guest's memory: ``memory``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import memory, resources
from controller.reconcilers.launcher_pods.needs import Claims, Needs

PAGE_TABLE_SHARE: Final = 512
"""Eight bytes of page table map a page of 4096."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory, and the page tables that map it."""
    del claims
    return Needs(
        guest_bytes=resources.memory_limit(domain),
        overhead_bytes=memory.guest_bytes(domain) // PAGE_TABLE_SHARE,
        unrequested_bytes=resources.memory_limit(domain) - resources.memory_request(domain),
    )
