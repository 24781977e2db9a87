"""The source of random numbers: ``<rng>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import rng as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import number, one_of

_MODELS: Final = ("virtio", "none")
_MOST: Final = 2**31 - 1


def append(tree: Tree, definition: Definition) -> None:
    """Append the source, where the machine has one."""
    rng = hardware.meant(definition.specification)
    model = one_of(_MODELS, rng["model"], "devices.rng.model")
    if model == "none":
        return
    element = SubElement(tree.devices, "rng", model=model)
    if rate := rng.get("rate"):
        amount = number(rate.get("bytes"), 1, _MOST, "devices.rng.rate.bytes")
        SubElement(element, "rate", bytes=amount, period=number(rate["period"], 1, _MOST, "devices.rng.rate.period"))
    SubElement(element, "backend", model="random").text = "/dev/urandom"
