"""The sound card: ``devices.sound``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import sound
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

SOUND_BYTES: Final = 4 * MIB
"""Of the card's streams and QEMU's mixer."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of the sound card, if any."""
    del claims
    return Requirements(overhead_bytes=SOUND_BYTES) if sound.defaulted(domain) else Requirements()
