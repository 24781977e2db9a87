"""The sound card: ``devices.sound``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import sound
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

SOUND_BYTES: Final = 4 * MIB
"""Of the card's streams and QEMU's mixer."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of a sound card."""
    del claims
    return Needs(overhead_bytes=SOUND_BYTES) if sound.defaulted(domain) else Needs()
