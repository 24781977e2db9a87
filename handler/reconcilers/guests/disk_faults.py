"""Converts disk errors that did not pause the guest to the condition ``DisksReady``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec.described import domain_of
from launcher.protocol import messages

FULL: Final = "its storage is full: expand the PersistentVolumeClaim or free space on its storage"
FAILS: Final = "reads or writes fail"
IGNORED: Final = "failed writes are lost without an error in the guest (driver.errorPolicy: ignore)"
TOLD: Final = "the guest keeps running and gets I/O errors"
MAX_MESSAGE: Final = 1024


def condition(vm: Object, faults: Sequence[messages.DiskFault]) -> Object | None:
    """Return condition DisksReady=False, which names each failed disk; None if the machine has none of them."""
    told = {each.disk: each for each in faults}
    found = [told[each["name"]] for each in disks.defaulted(domain_of(vm)) if each["name"] in told]
    if not found:
        return None
    message = "; ".join(f"disk {each.disk!r}: {FULL if each.full else FAILS}; {IGNORED if each.ignored else TOLD}" for each in found)
    reason = conditions.DISK_FULL if any(each.full for each in found) else conditions.DISK_FAILS
    return objects.new_condition(vm, conditions.DISKS_READY, "False", reason, one_line(message, MAX_MESSAGE))


def news(vm: Object, status: Object, of_plugin: str = "") -> tuple[str, str] | None:
    """Return an Event's reason and message if DisksReady newly reports failing disks, else None.

    ``of_plugin``: another reason of DisksReady that counts, that of failed plugins.
    """
    before, after = (objects.condition(each.get("conditions"), conditions.DISKS_READY) or {} for each in (vm.get("status") or {}, status))
    if after.get("reason") not in {conditions.DISK_FULL, conditions.DISK_FAILS, of_plugin} - {""}:
        return None
    if (after["reason"], after.get("message")) == (before.get("reason"), before.get("message")):
        return None
    return str(after["reason"]), str(after["message"])
