"""Network interfaces: ``devices.interfaces``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import names
from apiserver.apis.virt.hardware import interfaces
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

QUEUES_BYTES: Final = MIB
"""A pair of queues beyond the first: two buffers of 68 KiB for packets, and what QEMU keeps of rings and of a tap."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the device by which QEMU opens the taps that virt-handler made, and the ports by which others reach the guest."""
    del claims
    cards = interfaces.emulated(domain)
    if not cards:
        return Needs()
    queues = sum(interfaces.queues(domain, each["model"]) - 1 for each in cards)
    return Needs(resources={names.TUN_RESOURCE: 1}, overhead_bytes=QUEUES_BYTES * queues, ports=_ports(cards))


def _ports(cards: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(
        {**({"name": each["name"]} if each.get("name") else {}), "containerPort": each["port"], "protocol": each["protocol"]}
        for card in cards
        for each in interfaces.ports(card) or ()
    )
