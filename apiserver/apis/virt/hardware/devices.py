"""All devices of a domain with their defaults, and the comparison of two domains."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import (
    consoles,
    disks,
    filesystems,
    given,
    gpus,
    graphics,
    host_devices,
    inputs,
    interfaces,
    memory,
    panic,
    redirected_devices,
    resources,
    rng,
    sound,
    tpm,
    video,
    vsock,
    watchdog,
)
from apiserver.apis.virt.hardware.given import Domain

_UNWRITTEN: Final = {
    "filesystems": filesystems.defaulted,
    "gpus": gpus.defaulted,
    "hostDevices": host_devices.defaulted,
    "inputs": inputs.defaulted,
    "panic": panic.defaulted,
    "redirectedDevices": redirected_devices.defaulted,
    "rng": rng.defaulted,
    "sound": sound.defaulted,
    "tpm": tpm.defaulted,
    "video": video.compared,
    "vsock": vsock.defaulted,
    "watchdog": watchdog.defaulted,
}
"""Devices that are not written into an object that leaves them unsaid: they follow from the lists, or few ask for them."""


def defaulted(domain: Domain) -> Object:
    """Return ``devices`` with all of its lists."""
    return {
        "disks": disks.defaulted(domain),
        "interfaces": interfaces.defaulted(domain),
        "graphics": graphics.defaulted(domain),
        "consoles": consoles.defaulted(domain),
    }


def same(one: Domain, other: Domain) -> bool:
    """Return whether both domains describe the same hardware, however much of it they leave unsaid: ``1024Mi`` is ``1Gi``."""
    return _compared(one) == _compared(other)


def _compared(domain: Domain) -> Object:
    found: Object = {
        **given.said(domain.get("devices") or {}),  # what has no default, and what nobody has thought of here, is compared as it stands
        **defaulted(domain),
        "disks": disks.compared(domain),
        "autoattachMemBalloon": memory.has_balloon(domain),
        "networkInterfaceMultiqueue": interfaces.has_several_queues(domain),
        **{field: of_domain(domain) for field, of_domain in _UNWRITTEN.items()},
    }
    return {**domain, "memory": memory.compared(domain), "resources": resources.compared(domain), "devices": found}
