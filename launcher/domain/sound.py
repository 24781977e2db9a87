"""The sound card: ``<sound>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import sound as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the sound card, if any. libvirt plays it on a spice display, or nowhere."""
    if sound := hardware.defaulted(definition.specification):
        SubElement(tree.devices, "sound", model=one_of(hardware.MODELS, sound["model"], "devices.sound.model"))
