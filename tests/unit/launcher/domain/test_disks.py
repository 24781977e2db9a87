from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.domain import disks
from launcher.domain.definition import Definition
from launcher.domain.document import to_xml


def a_domain(**buses: str) -> dict[str, Any]:
    found = [{"name": name, "type": "EmptyDisk", "source": {"size": "1Gi"}, "target": {"bus": bus}} for name, bus in buses.items()]
    return {"memory": {"guest": "256Mi"}, "devices": {"disks": found, "interfaces": [], "graphics": []}}


@pytest.mark.parametrize(
    ("given", "buses", "expected"),
    [
        ({}, {"a": "virtio", "b": "sata", "c": "virtio", "d": "scsi"}, {"a": "vda", "b": "sda", "c": "vdb", "d": "sdb"}),
        ({"a": "vda", "b": "vdb", "c": "vdc"}, {"a": "virtio", "c": "virtio"}, {"a": "vda", "c": "vdc"}),
        ({"a": "vda", "b": "vdb"}, {"new": "virtio", "b": "virtio"}, {"new": "vdc", "b": "vdb"}),  # vda is freed by this change
        ({"b": "vdb"}, {"new": "virtio", "b": "virtio"}, {"new": "vda", "b": "vdb"}),  # and may be used by the next one
        ({"a": "vda"}, {"a": "sata", "b": "virtio"}, {"a": "sda", "b": "vdb"}),  # the disk changed its bus
        ({"a": "vda", "b": "vda"}, {"a": "virtio", "b": "virtio"}, {"a": "vda", "b": "vdb"}),
        (
            {"a": "../x", "b": "vdA", "c": "vda1", "d": ""},
            dict.fromkeys("abcd", "virtio"),
            dict(zip("abcd", ("vda", "vdb", "vdc", "vdd"), strict=True)),
        ),
    ],
)
def test_disk_keeps_its_name_and_new_ones_get_the_first_free(
    given: dict[str, str], buses: dict[str, str], expected: dict[str, str]
) -> None:
    assert disks.assigned(given, a_domain(**buses)) == expected
    assert disks.names_by_target(a_domain(**buses), given) == {target: name for name, target in expected.items()}


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["virtio", "sata", "scsi", "usb"])), max_size=6))
def test_no_history_gives_one_name_twice_or_takes_one_away(history: list[dict[str, str]]) -> None:
    names: dict[str, str] = {}
    before: dict[str, str] = {}
    for buses in history:
        new = disks.assigned(names, a_domain(**buses))
        assert len(set(new.values())) == len(buses) == len(new)
        stayed = [name for name, bus in buses.items() if name in names and disks._BUS_PREFIX[bus] == disks._BUS_PREFIX[before[name]]]
        assert {name: new[name] for name in stayed} == {name: names[name] for name in stayed}
        gone = {names[name] for name in names if name not in buses}
        assert not gone & {new[name] for name in buses if name not in names}
        names, before = new, buses


def test_the_xml_has_the_names_that_are_given() -> None:
    definition = Definition("ns", "vm", "u", a_domain(a="virtio", b="scsi"), "qemu", targets={"a": "vdc", "b": "sdj"})
    root = ET.fromstring(to_xml(definition))
    assert [each.get("dev") for each in root.iterfind("devices/disk/target")] == ["vdc", "sdj"]
    assert len(root.findall("devices/controller[@type='scsi']")) == 2
