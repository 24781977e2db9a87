"""The panic device: ``<panic>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the device, through which a guest's kernel tells its end, instead of standing there for ever."""
    del definition
    SubElement(tree.devices, "panic", model="isa")
