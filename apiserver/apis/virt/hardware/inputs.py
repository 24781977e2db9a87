"""Keyboards and pointers: ``devices.inputs``."""

from __future__ import annotations

from typing import Final, Literal, get_args

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given, graphics
from apiserver.apis.virt.hardware.given import Domain

Type = Literal["tablet", "keyboard", "mouse"]
TYPES: Final = get_args(Type)
Bus = Literal["usb", "virtio"]
BUSES: Final = get_args(Bus)


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.inputs``, each with ``bus``; by default, with a display, a tablet."""
    unsaid = [{"type": "tablet"}] if graphics.defaulted(domain) else []
    return [{"bus": "usb", **each} for each in given.devices(domain, "inputs", unsaid)]
