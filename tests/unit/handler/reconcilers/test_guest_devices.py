from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.v1alpha1 import status_validation
from handler.reconcilers.guests import guest_devices
from handler.reconcilers.guests.guest_machine import machine_of
from launcher.protocol import messages

DISKS = [{"name": name, "type": "Image", "source": {"reference": "r"}} for name in ("root", "data")]


def a_vm(**status: Any) -> dict[str, Any]:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"domain": {"devices": {"disks": DISKS}}}, "status": {"phase": "Running", **status}}


def test_the_machines_own_devices_are_listed_in_its_order() -> None:
    told = [
        messages.DeviceStatus("interface", "default", "tap0", "pci 0000:01:00.0"),
        messages.DeviceStatus("disk", "data", "vdb", "pci 0000:05:00.0"),
        messages.DeviceStatus("disk", "root", "vda", empty=True),
        messages.DeviceStatus("disk", "strange", "vdz"),
        messages.DeviceStatus("interface", "root", "tap1"),
    ]
    assert guest_devices.listed(a_vm(), told) == [
        {"kind": "disk", "name": "root", "target": "vda", "empty": True},
        {"kind": "disk", "name": "data", "target": "vdb", "address": "pci 0000:05:00.0"},
        {"kind": "interface", "name": "default", "target": "tap0", "address": "pci 0000:01:00.0"},
    ]


@pytest.mark.parametrize("text", ["../../x", "vda\n", "x" * 70_000, "\x1b[2J", "vda/"])
def test_device_fields_virt_api_would_refuse_are_left_out(text: str) -> None:
    vm = a_vm()
    listed = guest_devices.listed(vm, [messages.DeviceStatus("disk", "root", text, text)])
    assert listed == [{"kind": "disk", "name": "root"}]
    assert status_validation.validate_virtual_machine_status(a_vm(devices=listed), vm) == []
    wrong = a_vm(devices=[{"kind": "disk", "name": "root", "target": text, "address": text}])
    assert [each.path for each in status_validation.validate_virtual_machine_status(wrong, vm)] == [
        "status.devices[0].target",
        "status.devices[0].address",
    ]


def test_a_flood_of_devices_is_as_long_as_the_machines_own() -> None:
    flood = [messages.DeviceStatus("disk", "root", f"vd{number}") for number in range(10_000)]
    assert len(guest_devices.listed(a_vm(), flood)) == 1


def test_migration_target_gets_the_known_disk_names() -> None:
    devices = [
        {"kind": "disk", "name": "root", "target": "vdb"},
        {"kind": "disk", "name": "data"},
        {"kind": "interface", "name": "default", "target": "tap0"},
    ]
    assert machine_of(a_vm(devices=devices), "qemu", (), None).targets == {"root": "vdb"}
    assert machine_of(a_vm(), "qemu", (), None).targets == {}


def test_a_launcher_is_told_of_the_hardware_that_runs() -> None:
    runs = {"cpu": {"cores": 1}, "devices": {"disks": DISKS[:1]}}
    vm = a_vm(running={"generation": 1, "domain": runs, "domainXML": "<domain/>"})
    before = {**a_vm(), "spec": {"domain": runs, "domainXML": "<domain/>"}}
    assert machine_of(vm, "qemu", (), None) == machine_of(before, "qemu", (), None)
    assert machine_of(vm, "qemu", (), None) != machine_of(a_vm(), "qemu", (), None)
