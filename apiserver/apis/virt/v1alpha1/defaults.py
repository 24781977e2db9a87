"""Writes the default values into a spec, without changing what its author wrote.

In place, idempotent, and only on objects without errors from :mod:`apiserver.apis.meta.decoding`. It writes a missing list of devices, but
not into elements of a list. Values chosen at run time stay empty: the firmware's UUID, MAC addresses, the CPU model.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver.apis.virt.hardware import cpu, devices, firmware, machine, memory
from apiserver.apis.virt.lifecycle import power

START_TIMEOUT_SECONDS: Final = 180
GRACE_PERIOD_SECONDS: Final = 30


def default_virtual_machine(obj: dict[str, Any]) -> None:
    """Set the defaults of a VirtualMachine's absent fields, in place; in ``spec.domain``, none with ``domainXML``."""
    spec = _object(obj, "spec")
    spec.setdefault("runStrategy", power.RERUN_ON_FAILURE)
    rerun = _object(spec, "rerun")
    rerun.setdefault("limit", power.DEFAULT_RERUN_LIMIT)
    rerun.setdefault("startTimeoutSeconds", START_TIMEOUT_SECONDS)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_PERIOD_SECONDS)
    if spec.get("domainXML") is None and spec.get("domain") is not None:  # with XML, the typed fields keep only their author's values
        default_domain(spec["domain"])


def default_domain(domain: dict[str, Any]) -> None:
    """Set missing fields of ``domain`` (``spec.domain``) to their defaults, in place."""
    for field in cpu.COUNTS:
        _object(domain, "cpu").setdefault(field, 1)
    _object(domain, "memory").setdefault("guest", memory.GUEST)
    _object(domain, "machine").setdefault("type", machine.TYPE)
    if (efi := firmware.efi(domain)) is not None:
        domain["firmware"]["bootloader"]["efi"] = efi
    _object(domain, "devices")
    for field, devices_of_kind in devices.defaulted(domain).items():
        domain["devices"].setdefault(field, devices_of_kind)


def default_migration(obj: dict[str, Any]) -> None:
    """Do nothing: a Migration has no defaults."""
    del obj


def _object(parent: dict[str, Any], field: str) -> dict[str, Any]:
    value: dict[str, Any] = parent.setdefault(field, {})
    return value
