"""Converts the state of shared file systems to the condition ``FilesystemsReady``. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import filesystems
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec.described import domain_of
from launcher.protocol import messages

LOST: Final = "virtiofsd ended, so processes in the guest that use its files hang: restart the virtual machine"


def with_filesystems(vm: Object, status: Object, observed: messages.Status, now: datetime) -> Object:
    """Return the status with ``FilesystemsReady`` if the machine has shared file systems and does not stop.

    Reported names that the machine lacks are ignored.
    """
    names = [str(each.get("name")) for each in filesystems.defaulted(domain_of(vm))]
    if not names or observed.stopping:
        return status
    lost = [name for name in names if name in observed.lost_filesystems]
    state, reason, message = ("True", "Served", "")
    if lost:
        state, reason, message = ("False", conditions.FILESYSTEM_LOST, f"file system {', '.join(lost)}: {LOST}")
    told = objects.new_condition(vm, conditions.FILESYSTEMS_READY, state, reason, message)
    return objects.with_status_condition(status, told, now=times.to_rfc3339(now))


def loss(vm: Object, status: Object) -> str:
    """Return the message if ``FilesystemsReady`` newly reports a loss; else empty."""
    before, after = (
        objects.condition(each.get("conditions"), conditions.FILESYSTEMS_READY) or {} for each in (vm.get("status") or {}, status)
    )
    is_news = after.get("status") == "False" and after.get("message") != before.get("message")
    return str(after.get("message")) if is_news else ""
