"""Keyboards and pointers: ``devices.inputs``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import inputs
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

INPUT_BYTES: Final = MIB
"""A device with its queue. QEMU's measured memory with a display includes the USB controller and its first device."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory of the input devices after the first."""
    del claims
    return Requirements(overhead_bytes=INPUT_BYTES * max(len(inputs.defaulted(domain)) - 1, 0))
