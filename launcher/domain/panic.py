"""The panic device: ``<panic>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import panic as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the device, through which a guest's kernel tells its end, instead of standing there for ever."""
    model = one_of(hardware.MODELS, hardware.defaulted(definition.specification)["model"], "devices.panic.model")
    if model != "none":
        SubElement(tree.devices, "panic", model=model)
