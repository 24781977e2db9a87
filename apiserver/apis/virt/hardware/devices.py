"""All devices, and the whole domain as it is meant."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import (
    consoles,
    disks,
    gpus,
    graphics,
    host_devices,
    inputs,
    interfaces,
    memory,
    panic,
    resources,
    rng,
    sound,
    tpm,
    video,
    watchdog,
)
from apiserver.apis.virt.hardware.given import Domain

LISTS: Final = ("disks", "interfaces", "graphics", "consoles")
_UNWRITTEN: Final = {
    "gpus": gpus.meant,
    "hostDevices": host_devices.meant,
    "inputs": inputs.meant,
    "panic": panic.meant,
    "rng": rng.meant,
    "sound": sound.meant,
    "tpm": tpm.meant,
    "video": video.compared,
    "watchdog": watchdog.meant,
}
"""Devices that are not written into an object that leaves them unsaid: they follow from the lists, or few ask for them."""


def meant(domain: Domain) -> Object:
    """Return ``devices`` with all of its lists."""
    return {
        "disks": disks.meant(domain),
        "interfaces": interfaces.meant(domain),
        "graphics": graphics.meant(domain),
        "consoles": consoles.meant(domain),
    }


def same(one: Domain, other: Domain) -> bool:
    """Return whether both domains describe the same hardware, however much of it they leave unsaid: ``1024Mi`` is ``1Gi``."""
    return _compared(one) == _compared(other)


def _compared(domain: Domain) -> Object:
    written = meant(domain) | {"disks": disks.compared(domain)}
    unwritten = {field: of_domain(domain) for field, of_domain in _UNWRITTEN.items()}
    return {**domain, "memory": memory.compared(domain), "resources": resources.compared(domain), "devices": written | unwritten}
