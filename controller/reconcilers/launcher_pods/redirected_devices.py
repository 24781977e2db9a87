"""USB devices of clients: ``devices.redirectedDevices``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import redirected_devices
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

SLOT_BYTES: Final = 16 * MIB
"""The longest packet that virt-handler passes, and as much for data that waits for guest and client."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the slots."""
    del claims
    return Needs(overhead_bytes=SLOT_BYTES * redirected_devices.slots(domain))
