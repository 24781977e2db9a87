"""Steps from the devices that virt-launcher reports to those that the running guest should have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apiserver.apis.virt.spec import hot_plug, hot_plug_interfaces
from handler.reconcilers.guests import device_steps
from launcher.protocol import messages

DISK_ATTACHED: Final = "DiskAttached"
DISK_DETACHED: Final = "DiskDetached"
CARD_ATTACHED: Final = "InterfaceAttached"
CARD_DETACHED: Final = "InterfaceDetached"


class _OfDisk(device_steps.Step):
    path_of = staticmethod(hot_plug.path_of)
    reported = 2
    """A new pod's process does not listen at once."""


class AttachDisk(_OfDisk):
    """Mount a disk's claim in the pod, and have the launcher attach the disk."""


class DetachDisk(_OfDisk):
    """Have the guest release a disk, unmount its claim, and write that it is gone."""


class _OfCard(device_steps.Step):
    path_of = staticmethod(hot_plug_interfaces.path_of)
    reported = 0


class AttachCard(_OfCard):
    """Set up a card's network in the pod, have the launcher attach the card, and write that the guest has it."""


class DetachCard(_OfCard):
    """Have the guest release a card, remove its network from the pod, and write that it is gone."""


Step = AttachDisk | DetachDisk | AttachCard | DetachCard


def missing(vm: Mapping[str, Any], launcher: messages.Status) -> tuple[Step, ...]:
    """Return the steps that detach removed devices and attach missing ones, those of disks first; none without a domain."""
    return (*_of_disks(vm, launcher.domain), *_of_cards(vm, launcher.domain)) if launcher.domain is not None else ()


def _of_disks(vm: Mapping[str, Any], guest: messages.DomainStatus) -> Iterator[Step]:
    there = {each.name for each in guest.devices if each.kind == "disk" and not each.empty}
    for disk in hot_plug.removed(vm):
        if hot_plug.is_supported(disk, guest.changes):
            yield DetachDisk(disk)
    for disk in hot_plug.kept(vm):
        if disk["name"] not in there and hot_plug.is_supported(disk, guest.changes):
            yield AttachDisk(disk)


def _of_cards(vm: Mapping[str, Any], guest: messages.DomainStatus) -> Iterator[Step]:
    if hot_plug_interfaces.INTERFACE not in guest.changes:
        return
    there = {each.name for each in guest.devices if each.kind == "interface"}
    yield from map(DetachCard, hot_plug_interfaces.removed(vm))
    yield from (AttachCard(each) for each in hot_plug_interfaces.kept(vm) if each["name"] not in there)
    yield from map(AttachCard, hot_plug_interfaces.coming(vm))
