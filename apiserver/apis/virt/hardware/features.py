"""Features of the hypervisor and the machine: ``features``."""

from __future__ import annotations

import re
from typing import Any, Final

from apiserver.apis.virt.hardware.given import Domain

HYPERV: Final = (
    "relaxed",
    "vapic",
    "spinlocks",
    "vpindex",
    "runtime",
    "synic",
    "synictimer",
    "reset",
    "vendorid",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
    "evmcs",
)
SPINLOCK_RETRIES: Final = 4096
MAX_VENDOR_ID: Final = 12
"""CPUID returns it in three registers of four bytes."""
VENDOR_ID: Final = re.compile(rf"[A-Za-z0-9 ._-]{{1,{MAX_VENDOR_ID}}}")
TRANSLATION_CACHE_MEBIBYTES: Final = 64
"""QEMU's cache of translated code for an emulated guest. Debian boots with 64 as fast as with 256, and takes twice the time with 32."""


def given(domain: Domain) -> dict[str, Any]:
    """Return the specified features by name."""
    return {name: each for name, each in (domain.get("features") or {}).items() if each is not None}


def has_acpi(domain: Domain) -> bool:
    """Return whether the machine has ACPI, the default."""
    return _is_enabled(given(domain).get("acpi") or {})


def smm(domain: Domain) -> bool | None:
    """Return whether System Management Mode is enabled; None: unspecified."""
    said = given(domain).get("smm")
    return None if said is None else _is_enabled(said)


def hyperv(domain: Domain) -> dict[str, Any]:
    """Return the guest's enabled Hyper-V enlightenments by name."""
    said = given(domain).get("hyperv") or {}
    return {name: said[name] for name in HYPERV if said.get(name) is not None and _is_enabled(said[name])}


def for_kvm_alone(domain: Domain) -> tuple[str, ...]:
    """Return the paths, below ``spec.domain``, of specified features without effect on an emulated machine."""
    found = [f"features.{name}" for name in ("kvm", "pvspinlock", "apic") if name in given(domain)]
    return (*found, *(f"features.hyperv.{name}" for name in hyperv(domain)))


def _is_enabled(said: dict[str, Any]) -> bool:
    return said.get("enabled") is not False
