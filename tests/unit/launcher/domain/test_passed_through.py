from __future__ import annotations

from typing import Any

import pytest

from launcher.domain import migratability, passed_through
from launcher.domain.definition import Definition
from launcher.domain.document import to_xml
from launcher.domain.passed_through import variables
from launcher.domain.values import InvalidSpecification

DEVICE = {"name": "card", "deviceName": "vendor.example/card"}
CARD = {"name": "card", "type": "sriov", "network": "fast", "deviceName": "vendor.example/card"}
TWO: dict[str, Any] = {"devices": {"hostDevices": [DEVICE, {**DEVICE, "name": "other"}]}}


def xml(environment: dict[str, str], specification: dict[str, Any]) -> str:
    return to_xml(Definition("ns", "vm", "u", specification, "qemu", environment=environment))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": ""},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": " , "},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARDS": "0000:01:00.0,0000:01:00.1"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0,0000:01:20.0"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0,0000:01:00.8"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0,01:00.1"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0,'/><x"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0,5d307ca9-b3ef-428c-8861-06e72d69f223"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0", "MDEV_PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.1"},
        {"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0", "MDEV_PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "5d307ca9"},
    ],
    ids=str,
)
def test_missing_device_is_named_by_its_path(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidSpecification, match=r"^devices\.hostDevices\[[01]\]\.deviceName: "):
        xml(environment, TWO)


@pytest.mark.parametrize("said", ["", "0000:01:00.8", "5d307ca9-b3ef-428c-8861-06e72d69f223"])
def test_a_card_without_an_address_is_named_by_its_place(said: str) -> None:
    with pytest.raises(InvalidSpecification, match=r"^devices\.interfaces\[1\]\.deviceName: "):
        xml({"PCIDEVICE_VENDOR_EXAMPLE_CARD": said}, {"devices": {"interfaces": [{"name": "default"}, CARD]}})


def test_a_variable_of_absurd_length_is_cut() -> None:
    with pytest.raises(InvalidSpecification) as refused:
        xml({"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "x" * 10**6}, TWO)
    assert len(str(refused.value)) < 300


def test_both_kinds_of_a_resource_are_taken() -> None:
    found = xml(
        {
            "PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:01:00.0",
            "MDEV_PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "5d307ca9-b3ef-428c-8861-06e72d69f223",
        },
        TWO,
    )
    assert found.count("<hostdev ") == 2


def test_a_device_of_the_node_stays_on_it() -> None:
    assert migratability.not_migratable(TWO) == "the device 'card' belongs to its node"
    assert migratability.not_migratable({"devices": {"gpus": [DEVICE]}}) == "the device 'card' belongs to its node"
    assert migratability.not_migratable({"devices": {"interfaces": [CARD]}}) == "the device 'card' belongs to its node"
    assert migratability.not_migratable({"devices": {"interfaces": [{"name": "lan", "network": "lan"}]}}) == ""
    assert migratability.not_migratable({}) == ""


def test_only_device_plugin_variables_are_read() -> None:
    ours = {"PCI_RESOURCE_A": "1", "MDEV_PCI_RESOURCE_B": "2", "PCIDEVICE_C": "3"}
    assert variables({**ours, "PATH": "/bin", "XPCI_RESOURCE_C": "3"}) == ours


def test_of_a_long_list_of_a_device_plugin_the_beginning_is_read() -> None:
    assert len(passed_through._given("a.example/b", {"PCI_RESOURCE_A_EXAMPLE_B": "x," * 5000})) == passed_through._MAX_VALUE // 2
