"""USB devices of clients: ``devices.redirectedDevices``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import redirected_devices
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

SLOT_BYTES: Final = 16 * MIB
"""The longest packet that virt-handler passes, and as much for data that waits for guest and client."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of the USB redirection slots."""
    del claims
    return Requirements(overhead_bytes=SLOT_BYTES * redirected_devices.slots(domain))
