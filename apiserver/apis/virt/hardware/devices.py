"""All devices, and the whole domain as it is meant."""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import consoles, disks, graphics, interfaces, memory
from apiserver.apis.virt.hardware.given import Domain

LISTS: Final = ("disks", "interfaces", "graphics", "consoles")


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
    return {**domain, "memory": memory.guest_bytes(domain), "devices": meant(domain) | {"disks": disks.compared(domain)}}
