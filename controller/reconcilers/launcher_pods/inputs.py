"""Keyboards and pointers: ``devices.inputs``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import inputs
from controller.reconcilers.launcher_pods.needs import MIB, Claims, Needs

INPUT_BYTES: Final = MIB
"""A device with its queue. QEMU's measured memory with a display includes the USB controller and its first device."""


def needs(domain: Object, claims: Claims) -> Needs:
    """Return the memory of the devices after the first."""
    del claims
    return Needs(overhead_bytes=INPUT_BYTES * max(len(inputs.defaulted(domain)) - 1, 0))
