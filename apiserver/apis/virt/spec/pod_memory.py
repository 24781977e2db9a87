"""The memory that the pod has room for, and that the guest may take.

virt-controller resizes the pod, and records that in ``status.podResize`` before virt-handler requests more memory. For less, the guest
first gives it back (``docs/decisions/hardware.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, generation_of
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.spec import live_changes, running

FIELD: Final = running.POD_RESIZE


def of_guest(vm: Mapping[str, Any]) -> int:
    """Return the memory in bytes that the guest runs with, or would start with."""
    return memory.guest_bytes(running.spec_of(vm).get("domain") or {})


def recorded(vm: Mapping[str, Any]) -> int:
    """Return the guest memory in bytes that the resized pod has room for; 0 before the first resize."""
    return int(dig_vm(vm, "status", FIELD, "guestMemoryBytes") or 0)


def granted(vm: Mapping[str, Any]) -> int:
    """Return the most memory that the guest may have now, in bytes."""
    return max(of_guest(vm), recorded(vm))


def wanted(vm: Mapping[str, Any]) -> int | None:
    """Return the guest's desired memory in bytes; None if the running guest cannot get it."""
    if live_changes.MEMORY.what not in (dig_vm(vm, "status", "domain", "liveChanges") or ()):
        return None
    value = live_changes.wanted(vm).get(live_changes.MEMORY)
    return None if value is None else int(value)


def waits_for_pod(vm: Mapping[str, Any]) -> str:
    """Return why the pod has no room yet for the desired memory, or ""."""
    amount = wanted(vm)
    if amount is None or amount <= granted(vm):
        return ""
    return str(dig_vm(vm, "status", FIELD, "message") or "its pod must be resized first")


def is_released(vm: Mapping[str, Any]) -> bool:
    """Return whether the guest has exactly the desired memory, by virt-handler's report for the present spec."""
    pending = any(entry.get("path") == str(live_changes.MEMORY) for entry in live_changes.entries(vm))
    return not pending and dig_vm(vm, "status", "observedGeneration") == generation_of(vm) and wanted(vm) == of_guest(vm)


def with_guest(domain: Domain, amount: int) -> Object:
    """Return a domain with at least this many bytes of guest memory."""
    if amount <= memory.guest_bytes(domain):
        return dict(domain)
    return {**domain, "memory": {**(domain.get("memory") or {}), "guest": str(amount)}}
