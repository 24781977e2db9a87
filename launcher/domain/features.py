"""Features of the hypervisor: ``<features>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree

TRANSLATION_CACHE_MEBIBYTES: Final = 32
"""QEMU's default is a quarter of a GiB or more, resident as the guest runs code. 32 MiB costs no time at boot of a small Linux."""


def append(tree: Tree, definition: Definition) -> None:
    """Append the features of every machine."""
    SubElement(tree.features, "acpi")
    SubElement(tree.features, "apic")
    if definition.accelerator == "qemu":
        SubElement(SubElement(tree.features, "tcg"), "tb-cache", unit="MiB").text = str(TRANSLATION_CACHE_MEBIBYTES)
