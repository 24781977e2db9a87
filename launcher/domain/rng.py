"""The source of random numbers: ``<rng>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the source."""
    del definition
    SubElement(SubElement(tree.devices, "rng", model="virtio"), "backend", model="random").text = "/dev/urandom"
