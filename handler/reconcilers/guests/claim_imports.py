"""The imports into claims of a running guest, in its machine's status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec import hot_plug
from handler.reconcilers.guests import guest_devices, guest_imports, guest_status
from launcher.protocol import messages

CORRECT: Final = "to change its source, remove the disk and add it again"
Reports = Mapping[str, messages.ImportStatus]
"""The unfinished imports of a machine, by disk."""


def pods(vm: Object) -> tuple[str, ...]:
    """Return the uids of attachment pods that may import, and need a link: those of disks that the guest does not have."""
    return tuple(pod.uid for _, pod in hot_plug.unfinished_imports(vm))


def with_imports(vm: Object, status: Object, reports: Reports, now: datetime) -> Object:
    """Return a running machine's status with its imports, and with DisksReady False if one failed."""
    if not reports:
        return status
    status = {**status, "imports": [guest_imports.entry(each) for each in reports.values()]}
    failed = [each for each in reports.values() if each.phase == "Retrying"]
    if not failed:
        return status
    why = "; ".join(f"disk {each.disk!r}: {each.message or 'the import failed'}" for each in failed)
    return guest_status.with_disks_fault(vm, status, conditions.IMPORT_FAILED, f"{why}; {CORRECT}", now)


def barrier(vm: Object, devices: Iterable[messages.DeviceStatus]) -> str:
    """Return why a machine with these devices cannot migrate during an import, or ""."""
    return hot_plug.import_barrier({**vm, "status": {**vm["status"], "devices": guest_devices.listed(vm, devices)}})
