"""Strings that the guest reads in its SMBIOS tables: ``<sysinfo>``."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Tree


def append(tree: Tree, table: str, strings: Mapping[str, str]) -> None:
    """Append the strings, if any, to the SMBIOS table with libvirt's name ``table``. Call it after ``<os>`` exists."""
    if not strings:
        return
    sysinfo = tree.domain.find("sysinfo")
    if sysinfo is None:
        sysinfo = SubElement(tree.domain, "sysinfo", type="smbios")
        for system in tree.domain.iterfind("os"):
            SubElement(system, "smbios", mode="sysinfo")
    element = SubElement(sysinfo, table)
    for name, text in strings.items():
        SubElement(element, "entry", name=name).text = text
