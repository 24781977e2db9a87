"""The sound card: ``<sound>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import sound as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of

_MODELS: Final = ("ich9", "ac97")


def append(tree: Tree, definition: Definition) -> None:
    """Append the sound card, where the machine has one; libvirt leads what it plays to a spice display, or nowhere."""
    if sound := hardware.meant(definition.specification):
        SubElement(tree.devices, "sound", model=one_of(_MODELS, sound["model"], "devices.sound.model"))
