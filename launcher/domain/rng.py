"""The source of random numbers: ``<rng>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import rng as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import number, one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the source of random numbers, if the machine has one."""
    rng = hardware.defaulted(definition.specification)
    model = one_of(hardware.MODELS, rng["model"], "devices.rng.model")
    if model == "none":
        return
    element = SubElement(tree.devices, "rng", model=model)
    if rate := rng.get("rate"):
        amount = number(rate.get("bytes"), 1, hardware.MAX_BYTES, "devices.rng.rate.bytes")
        period = number(rate["period"], 1, hardware.MAX_PERIOD_MILLISECONDS, "devices.rng.rate.period")
        SubElement(element, "rate", bytes=amount, period=period)
    SubElement(element, "backend", model="random").text = "/dev/urandom"
