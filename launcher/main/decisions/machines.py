"""Functions of the machine alone: why it cannot migrate, and its disks.

``filling`` is imported late, as in :mod:`apiserver.apis.virt.spec.described`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.places import layout
from launcher.dhcp import lease
from launcher.domain import copied_disks, disk_caches, disks, migratability
from launcher.hypervisor.port import Device, Disks
from launcher.protocol import messages

_BLOCKS_IN_XML: Final = re.compile(r"<numa[\s/>]|<memory\s[^>]*model")


def not_migratable(machine: messages.Machine, xml: str = "") -> str:
    """Return why a machine cannot migrate live, else empty; with ``xml``, the prepared domain's, it checks the disks' caches, too."""
    if reason := migratability.not_migratable(machine.domain) or lease.not_migratable(machine):
        return reason
    if machine.domain_xml:
        from launcher.domain import filling

        return filling.not_migratable(machine.domain_xml, copied_disks.names(machine.domain))
    return disk_caches.not_migratable(xml, disk_names(machine), disk_caches.shared(machine.domain)) if xml else ""


def disks_of(machine: messages.Machine) -> Disks:
    """Return which disks a migration copies (by target), because only this pod has them, how, and whether others are shared."""
    names = copied_disks.names(machine.domain)
    targets = tuple(target for target, name in disk_names(machine).items() if name in names)
    is_shared = bool(disk_caches.shared(machine.domain))
    uri = f"unix://{layout.RUN_DIRECTORY}/{layout.MIGRATION_DISKS_SOCKET}"
    return Disks(targets, copied_disks.is_shallow(machine.domain), is_shared, uri, copied_disks.moved(machine.domain))


def must_pause_to_move(machine: messages.Machine) -> bool:
    """Return whether a guest must stand still while it moves: an emulated one with several blocks of memory.

    QEMU's emulator loses writes to all blocks but the first while it moves, or ends with the assertion of ``tlb_reset_dirty_range_all``.
    """
    if machine.accelerator == "kvm":
        return False
    if machine.domain_xml:
        return _BLOCKS_IN_XML.search(machine.domain_xml) is not None
    return bool(memory.pluggable_bytes(machine.domain) or (machine.domain.get("cpu") or {}).get("numa"))


def cpu_model(machine: messages.Machine | None) -> str:
    """Return the domain's CPU model; empty without a machine, or if its author's XML has it."""
    return "" if machine is None or machine.domain_xml else cpu.model(machine.domain)


def disk_names(machine: messages.Machine) -> Mapping[str, str]:
    """Return the disks' names by libvirt's target names."""
    if machine.domain_xml:
        from launcher.domain import filling

        return filling.names_by_target(machine.domain_xml)
    return disks.names_by_target(machine.domain, machine.targets)


def devices(machine: messages.Machine | None, found: Iterable[Device]) -> tuple[messages.DeviceStatus, ...]:
    """Return the status of those of the domain's devices that the spec names."""
    pairs = named(machine, found) if machine is not None else ()
    return tuple(messages.DeviceStatus(each.kind, name, each.target, each.address, each.is_empty) for each, name in pairs)


def named(machine: messages.Machine, found: Iterable[Device]) -> list[tuple[Device, str]]:
    """Return pairs of device and name for those of the domain's devices that the spec names."""
    disks_by_target, cards = disk_names(machine), {each.mac.lower(): each.name for each in machine.interfaces}
    names = ((each, disks_by_target.get(each.target) if each.kind == "disk" else cards.get(each.mac.lower())) for each in found)
    return [(each, name) for each, name in names if name]
