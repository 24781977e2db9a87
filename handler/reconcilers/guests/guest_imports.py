"""The status of a machine's image imports, from virt-launcher's untrusted report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disk_imports, disks
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec.described import domain_of
from handler.reconcilers.guests import guest_status
from launcher.protocol import messages

MIB: Final = 1 << 20
REASONS: Final = (conditions.IMPORTING, conditions.IMPORT_FAILED)
STARTED: Final = "ImportStarted"
SUCCEEDED: Final = "ImportSucceeded"


def of(vm: Mapping[str, Any]) -> dict[str, str]:
    """Return the source of each imported image, as text for users, by disk."""
    defaulted = disks.defaulted(domain_of(vm))
    return {str(each["name"]): disk_imports.shown(given) for each in defaulted if (given := disk_imports.of(each)) is not None}


def is_importing(vm: Mapping[str, Any]) -> bool:
    """Return whether DisksReady is False because of a running or failed import."""
    found = objects.condition(dig_vm(vm, "status", "conditions"), conditions.DISKS_READY) or {}
    return found.get("status") == "False" and found.get("reason") in REASONS


def status_of(vm: Object, observed: messages.Status, now: datetime) -> Object:
    """Return the machine's status during imports; equal to the old one if nothing changed."""
    sources = of(vm)
    found = [each for each in observed.imports if each.disk in sources]
    failed = [each for each in found if each.phase == "Retrying"]
    left = [each for each in found if each.phase != "Succeeded"]
    if failed:
        why = "; ".join(f"disk {each.disk!r}: {each.message or 'the import failed'}" for each in failed)
        message = guest_status.printable(f"{why}; retrying until the machine is stopped")
        status = guest_status.waiting(vm, conditions.IMPORT_FAILED, message, now)
    else:
        how = "; ".join(progress(each, sources[each.disk]) for each in left) or "importing images of disks"
        status = guest_status.waiting(vm, conditions.IMPORTING, guest_status.printable(how), now)
    return {**status, "imports": [entry(each) for each in found]}


def events(vm: Object, status: Object) -> list[tuple[Literal["Normal", "Warning"], str, str]]:
    """Return (type, reason, message) of the Events for imports that begin, or newly fail."""
    told: list[tuple[Literal["Normal", "Warning"], str, str]] = []
    if not is_importing(vm):
        sources = "; ".join(f"disk {name!r}: importing the image from {source}" for name, source in of(vm).items())
        told.append(("Normal", STARTED, guest_status.printable(sources)))
    before = {each.get("disk"): each.get("failures", 0) for each in dig_vm(vm, "status", "imports") or ()}
    if any(each.get("failures", 0) > before.get(each["disk"], 0) for each in status["imports"]):
        condition = objects.condition(status["conditions"], conditions.DISKS_READY) or {}
        told.append(("Warning", conditions.IMPORT_FAILED, str(condition.get("message"))))
    return told


def without(status: Object) -> Object:
    """Return the status without ``imports``; for when all have succeeded."""
    return {key: value for key, value in status.items() if key != "imports"}


def progress(given: messages.ImportStatus, source: str) -> str:
    """Return how far an import from ``source`` is, for users."""
    name = f"disk {given.disk!r}"
    if given.phase == "Pending":
        return f"{name}: waiting for the import of another image"
    if given.phase == "Converting":
        return f"{name}: image downloaded, converting it"
    of_all = f" of {given.total_bytes // MIB}" if given.total_bytes else ""
    return f"{name}: {given.transferred_bytes // MIB}{of_all} MiB of its image downloaded from {source}"


def entry(given: messages.ImportStatus) -> Object:
    """Return an import's element of ``status.imports``."""
    told: Object = {"disk": given.disk, "phase": given.phase, "transferredBytes": max(given.transferred_bytes, 0)}
    if given.total_bytes > 0:
        told["totalBytes"] = given.total_bytes
    if given.failures > 0:
        told["failures"] = min(given.failures, (1 << 31) - 1)
    if given.message:
        told["message"] = guest_status.printable(given.message)
    return told
