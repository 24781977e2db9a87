"""USB devices of clients: ``devices.redirectedDevices``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import redirected_devices
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

SLOT_BYTES: Final = 16 * MIB
"""Transfers of one device that are on their way, with a copy of each; drivers have not more than a few of a MiB at a time."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the slots."""
    del claims
    return Needs(overhead_bytes=SLOT_BYTES * redirected_devices.slots(domain))
