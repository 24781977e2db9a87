from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.meta import decoding
from apiserver.apis.virt.v1alpha1 import defaults, types, validation

KERNEL: dict[str, Any] = {"container": {"image": "a", "kernelPath": "/k"}}
CLAIM = {"claimName": "State"}


def errors(**domain: Any) -> list[str]:
    obj = {"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "acc"}, "spec": {"domain": copy.deepcopy(domain)}}
    unknown, wrong = decoding.read(types.VirtualMachine, obj)
    assert not list(unknown)
    assert not list(wrong)
    defaults.default_virtual_machine(obj)
    return [str(each).removeprefix("spec.domain.") for each in validation.validate_virtual_machine(obj)]


def with_efi(*, firmware: dict[str, Any] | None = None, **efi: Any) -> dict[str, Any]:
    return {"firmware": {"bootloader": {"efi": efi}, **(firmware or {})}}


@pytest.mark.parametrize(
    "domain",
    [
        with_efi(),
        {**with_efi(), "machine": {"type": "pc-q35-9.2"}, "memory": {"guest": "128Mi"}},
        with_efi(secureBoot=False, firmware={"kernelBoot": KERNEL}),
        with_efi(persistent=True, firmware={"persistentState": CLAIM}),
        {"firmware": {"persistentState": CLAIM}, "devices": {"tpm": {"persistent": True}}},
        {"devices": {"tpm": {}}, "machine": {"type": "pc"}},
        {"firmware": {"bootloader": {"bios": {"useSerial": True}}}},
        {"firmware": {"bootloader": {"bios": {}}}, "devices": {"consoles": []}},
        {"firmware": {"bootloader": {}, "serial": "s" * 64}, "chassis": {"manufacturer": "A, B & <C>"}},
    ],
    ids=str,
)
def test_valid_firmware_combinations_are_accepted(domain: dict[str, Any]) -> None:
    assert errors(**domain) == []


@pytest.mark.parametrize(
    ("domain", "start"),
    [
        ({**with_efi(), "machine": {"type": "pc"}}, "firmware.bootloader.efi: Forbidden: requires machine.type q35"),
        ({**with_efi(), "memory": {"guest": "127Mi"}}, "memory.guest: Invalid value"),
        ({"firmware": {"bootloader": {"efi": {}, "bios": {}}}}, "firmware.bootloader.efi: Forbidden: may not be set together with bios"),
        (with_efi(firmware={"kernelBoot": KERNEL}), "firmware.bootloader.efi.secureBoot: Invalid value: true: must be false"),
        (with_efi(persistent=True), "firmware.persistentState: Required value: firmware.bootloader.efi.persistent is true"),
        ({"devices": {"tpm": {"persistent": True}}}, "firmware.persistentState: Required value: devices.tpm.persistent is true"),
        (
            with_efi(persistent=True) | {"devices": {"tpm": {"persistent": True}}},
            (
                "firmware.persistentState: Required value: firmware.bootloader.efi.persistent and "
                "devices.tpm.persistent are true: a claim must"
            ),
        ),
        (
            {"firmware": {"persistentState": CLAIM}, "devices": {"tpm": {}}},
            "firmware.persistentState: Forbidden: requires persistent: true in",
        ),
        (with_efi(persistent=True, firmware={"persistentState": {"claimName": ""}}), "firmware.persistentState.claimName: Required"),
        (with_efi(persistent=True, firmware={"persistentState": {"claimName": "a/b"}}), "firmware.persistentState.claimName: Invalid"),
        (
            {"firmware": {"bootloader": {"bios": {"useSerial": True}}}, "devices": {"consoles": []}},
            "firmware.bootloader.bios.useSerial: Forbidden",
        ),
        ({"firmware": {"serial": "s" * 65}}, "firmware.serial: Too long"),
        ({"firmware": {"serial": ""}}, "firmware.serial: Invalid"),
        ({"firmware": {"system": {"product": "ä"}}}, "firmware.system.product: Invalid"),
        ({"firmware": {"system": {"manufacturer": "a\n"}}}, "firmware.system.manufacturer: Invalid"),
        ({"chassis": {"sku": " a"}}, "chassis.sku: Invalid"),
        ({"chassis": {"asset": "a "}}, "chassis.asset: Invalid"),
    ],
    ids=str,
)
def test_invalid_firmware_is_refused_with_its_path(domain: dict[str, Any], start: str) -> None:
    (found,) = errors(**domain)
    assert found.startswith(start)


def test_defaults_are_written_where_a_part_is_asked_for() -> None:
    obj: dict[str, Any] = {"spec": {"domain": {**with_efi(persistent=True), "devices": {"tpm": {}}}}}
    defaults.default_virtual_machine(obj)
    domain = obj["spec"]["domain"]
    assert domain["firmware"]["bootloader"]["efi"] == {"secureBoot": True, "persistent": True}
    unasked: dict[str, Any] = {"spec": {"domain": {}}}
    defaults.default_virtual_machine(unasked)
    assert "firmware" not in unasked["spec"]["domain"]
