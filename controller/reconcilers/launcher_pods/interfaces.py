"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import interfaces, memory
from apiserver.apis.virt.places import names
from controller.reconcilers.launcher_pods.memory import PAGE_TABLE_SHARE
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

QUEUES_BYTES: Final = MIB
"""A further pair of queues: two packet buffers of 68 KiB, and QEMU's data for rings and a tap."""

PASST_BYTES: Final = 32 * MIB + 3072 * interfaces.PASST_FILES
"""Connection tables, and the node's kernel memory for sockets and timers. The kernel limits the data in sockets."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the taps' devices, the memory of queues and of passt, which maps the guest's memory, and the guest's ports."""
    del claims
    cards, macvtaps, of_passt = interfaces.on_taps(domain), interfaces.on_macvtaps(domain), interfaces.of_passt(domain)
    queues = sum(interfaces.queues(domain, each["model"]) - 1 for each in cards)
    overhead = QUEUES_BYTES * queues + (PASST_BYTES + memory.guest_bytes(domain) // PAGE_TABLE_SHARE) * len(of_passt)
    devices = {names.TUN_RESOURCE: 1} if len(cards) > len(macvtaps) else {}
    devices |= {names.MACVTAP_RESOURCE: len(macvtaps)} if macvtaps else {}
    return Requirements(resources=devices, overhead_bytes=overhead, ports=_ports(interfaces.emulated(domain)))


def _ports(cards: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(
        {**({"name": each["name"]} if each.get("name") else {}), "containerPort": each["port"], "protocol": each["protocol"]}
        for card in cards
        for each in interfaces.ports(card) or ()
    )
