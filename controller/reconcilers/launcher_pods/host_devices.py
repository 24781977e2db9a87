"""Devices of the node: ``devices.hostDevices`` and ``devices.gpus``."""

from __future__ import annotations

from collections import Counter
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import host_devices
from controller.reconcilers.launcher_pods.requirements import MIB, Claims, Requirements

HOST_DEVICE_BYTES: Final = 64 * MIB
"""Of QEMU and the kernel, for a device that reaches all guest memory."""


def requirements(domain: Object, claims: Claims) -> Requirements:
    """Return the memory for the devices, and one unit of each one's resource."""
    del claims
    devices = host_devices.passed_through(domain).values()
    return Requirements(
        overhead_bytes=HOST_DEVICE_BYTES * len(devices), resources=dict(Counter(str(each["deviceName"]) for each in devices))
    )
