"""Attributes that no golden document shows."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from launcher.domain.definition import Definition, Tap
from launcher.domain.document import to_xml


@pytest.mark.parametrize(
    ("panic", "pci", "models"),
    [({}, True, ["isa", "pvpanic"]), ({}, False, ["isa"]), ({"model": "none"}, True, [])],
    ids=["both", "a libvirt that does not know the PCI one", "none"],
)
def test_a_kernel_with_either_driver_can_tell_that_it_panicked(panic: dict[str, str], models: list[str], *, pci: bool) -> None:
    domain = {"devices": {"panic": panic}}
    devices = ET.fromstring(to_xml(Definition("ns", "vm", "u", domain, "qemu", pci_panic=pci))).findall("devices/panic")
    assert [each.get("model") for each in devices] == models


def test_the_hosts_model_is_checked_as_far_as_libvirt_knows_it() -> None:
    cpu = ET.fromstring(to_xml(Definition("ns", "vm", "u", {"cpu": {"model": "host-model"}}, "kvm"))).find("cpu")
    assert cpu is not None
    assert cpu.attrib == {"mode": "host-model", "check": "partial"}


def test_a_card_has_its_address_in_small_letters() -> None:
    """The guest agent reports lower-case addresses, which identify interfaces."""
    mac = ET.fromstring(to_xml(Definition("ns", "vm", "u", {}, "qemu", (Tap("52:54:00:C0:FF:EE", "tap0"),)))).find("devices/interface/mac")
    assert mac is not None
    assert mac.get("address") == "52:54:00:c0:ff:ee"
