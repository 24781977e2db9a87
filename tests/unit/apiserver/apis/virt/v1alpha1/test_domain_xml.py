from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.apis.meta import decoding
from apiserver.apis.virt.domainxml import parsing
from apiserver.apis.virt.domainxml.domain import DOMAIN
from apiserver.apis.virt.domainxml.grammar import Allowed, Choice
from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.spec.described import domain_of
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, INTERFACE, OPERATING, ROOT, document, uefi

EXAMPLE = Path(__file__).parents[6] / "examples/domain-xml.yaml"
TOPOLOGY = "<cpu><topology sockets='2' cores='1' threads='1'/></cpu>"
IMAGE: dict[str, Any] = {"name": "root", "type": "Image", "source": {"reference": "example/disk"}}
BLOCK = DISK.replace("'file'", "'block'").replace("source file", "source dev").replace("</disk>", "<readonly/></disk>")
CONTAINER = {"image": "i", "kernelPath": "/k"}


HUGEPAGES = "<memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages></memoryBacking>"
KEPT_TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0' persistent_state='yes'/></tpm>"
CLAIM = {"firmware": {"persistentState": {"claimName": "kept"}}}


def a_vm(xml: str | None, **domain: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"domainXML": xml}
    if domain:
        spec["domain"] = domain
    return {"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "acc"}, "spec": spec}


def stored(vm: dict[str, Any]) -> dict[str, Any]:
    vm = copy.deepcopy(vm)
    unknown, found = decoding.read(types.VirtualMachine, vm)
    assert not unknown
    assert not found
    defaults.default_virtual_machine(vm)
    return vm


def errors(vm: dict[str, Any]) -> list[str]:
    return [str(each) for each in validation.validate_virtual_machine(stored(vm))]


def test_the_example_is_valid_and_stays_as_it_was_written() -> None:
    vm = yaml.safe_load(EXAMPLE.read_text())
    assert errors(vm) == []
    assert stored(vm)["spec"]["domain"] == vm["spec"]["domain"]
    assert stored(vm)["spec"]["domainXML"] == vm["spec"]["domainXML"]


def test_xml_alone_is_a_machine() -> None:
    assert errors(a_vm(document(INTERFACE))) == []
    assert "domain" not in stored(a_vm(document()))["spec"]


@pytest.mark.parametrize(
    ("xml", "error"),
    [
        ("", 'Invalid value: "": line 1: must begin with an element'),
        ("x", 'Invalid value: "x": line 1: must begin with an element'),
        ("<domain>", 'Invalid value: "<domain>": line 1: is not well-formed XML: it ends at line 1 before </domain>'),
        ("<domain>\n<a></b>", 'Invalid value: "<domain>": line 2: is not well-formed XML: mismatched tag'),
        ("<!DOCTYPE domain><domain/>", "Forbidden: line 1: a document type is not allowed"),
    ],
)
def test_malformed_xml_is_refused(xml: str, error: str) -> None:
    assert errors(a_vm(xml)) == [f"spec.domainXML: {error}"]


def test_everything_wrong_is_told_with_its_place() -> None:
    assert errors(a_vm(document("<hostdev/><hostdev/>", inside="<seclabel/>"))) == [
        "spec.domainXML: Forbidden: /domain/seclabel: is not allowed: it reaches outside the machine's pod",
        "spec.domainXML: Forbidden: /domain/devices/hostdev[1]: is not allowed: it reaches outside the machine's pod",
        "spec.domainXML: Forbidden: /domain/devices/hostdev[2]: is not allowed: it reaches outside the machine's pod",
    ]


def of_elements(count: int, mebibytes: int = 256) -> str:
    size = f"<memory unit='MiB'>{mebibytes}</memory>"
    others = parsing.element_count(document(inside="<metadata xmlns:x='u'></metadata>"))
    return document(inside=f"<metadata xmlns:x='u'>{'<x:a/>' * (count - others)}</metadata>", memory=size)


def test_element_limit_stops_further_validation() -> None:
    assert errors(a_vm(of_elements(1600))) == []
    told = "spec.domainXML: Forbidden: may not have more than 1600 elements, but has 1601, including those in comments"
    assert errors(a_vm(of_elements(1601))) == [told]
    assert errors(a_vm(of_elements(1601).replace("<devices>", "<devices><!-- <disk/> -->").replace("<x:a/>", "", 1))) == [told]
    assert errors(a_vm("<hostdev>" * 1601, cpu={"model": "EPYC"})) == [told]


def test_xml_admitted_by_an_older_release_is_kept_until_edited() -> None:
    old = stored(a_vm(of_elements(parsing.MAX_ELEMENTS), cpu={"sockets": 2}))
    assert memory.guest_bytes(domain_of(old)) == 256 << 20
    moved = {**old, "spec": {**old["spec"], "nodeSelector": {"a": "b"}}}
    assert validation.validate_virtual_machine_update(moved, old) == []
    for xml, count in ((of_elements(2000), 2000), (of_elements(1600), 0)):
        changed = {**old, "spec": {**old["spec"], "domainXML": xml}}
        assert [f"but has {count}," in str(each) for each in validation.validate_virtual_machine_update(changed, old)] == [True] * bool(
            count
        )


def test_all_allowed_elements_together_fit_the_limit() -> None:
    def count(allowed: Allowed) -> int:
        if isinstance(allowed, Choice):
            return max(map(count, allowed.elements.values()))
        return 1 + sum(each.most * count(each) for each in allowed.children.values())

    assert 1000 < count(DOMAIN) < parsing.MAX_ELEMENTS_ADMITTED - 100


def uefi_of(mebibytes: str, **domain: Any) -> dict[str, Any]:
    return a_vm(uefi().replace(">128<", f">{mebibytes}<"), **domain)


BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "a disk of a server": (
        a_vm(document(DISK), devices={"disks": [{"name": "root", "type": "NBD", "source": {"host": "nbd.example"}}]}),
        "/domain/devices/disk/source: disk root is of type NBD, which has no file in the pod",
    ),
    "a disk that is not there": (a_vm(document(DISK)), "/domain/devices/disk/source: spec.domain.devices.disks has no disk root"),
    "a disk of nobody": (a_vm(document(), devices={"disks": [ROOT]}), "/domain/devices: has no <disk> with the placeholder @disk:root@"),
    "a drive without a medium": (
        a_vm(document(DISK), devices={"disks": [{"name": "root", "device": "cdrom"}]}),
        "/domain/devices/disk/source: is not allowed: disk root of spec.domain.devices.disks has neither type nor source",
    ),
    "a lun": (
        a_vm(document(DISK), devices={"disks": [{**ROOT, "device": "lun"}]}),
        "/domain/devices/disk/@device: disks of device lun are not supported in XML, and disk root of spec.domain.devices.disks is one",
    ),
    "a disk that may be written to": (
        a_vm(document(DISK), devices={"disks": [{**ROOT, "readOnly": True}]}),
        "/domain/devices/disk/readonly: is required",
    ),
    "an overlay that is not raw": (a_vm(document(DISK), devices={"disks": [IMAGE]}), "/domain/devices/disk/driver/@type: must be qcow2"),
    "a claim whose guest says where it reads": (
        a_vm(document(DISK.replace("'raw'", "'qcow2'")), devices={"disks": [ROOT]}),
        "/domain/devices/disk/driver/@type: must be raw",
    ),
    "an image that is no device": (
        a_vm(document(BLOCK), devices={"disks": [{**IMAGE, "readOnly": True}]}),
        "/domain/devices/disk/@type: must be file",
    ),
    "an interface that is not there": (
        a_vm(document(INTERFACE.replace("default", "other"))),
        "/domain/devices/interface/target/@dev: spec.domain.devices.interfaces has no interface other",
    ),
    "an interface of nobody": (
        a_vm(document(), devices={"interfaces": [{"name": "default"}]}),
        "/domain/devices: has no <interface> with the placeholder @network:default@",
    ),
    "an interface that passt carries": (
        a_vm(document(INTERFACE), devices={"interfaces": [{"name": "default", "type": "passt", "ports": []}]}),
        (
            "/domain/devices/interface/@type: type passt is not supported in XML, and interface default "
            "of spec.domain.devices.interfaces has it"
        ),
    ),
    "an interface twice": (a_vm(document(INTERFACE * 2)), "/domain/devices/interface[2]/target/@dev: another interface has the same one"),
    "an address of another": (
        a_vm(document(INTERFACE.replace("@mac:default@", "@mac:other@"))),
        "/domain/devices/interface/mac/@address: must be @mac:default@",
    ),
    "a kernel of nowhere": (
        a_vm(document(system=f"{OPERATING}<kernel>@kernel@</kernel>")),
        "/domain/os/kernel: needs spec.domain.firmware.kernelBoot.container.kernelPath",
    ),
    "a kernel of nobody": (
        a_vm(document(), firmware={"kernelBoot": {"container": CONTAINER}}),
        "/domain/os/kernel: is required, with the placeholder @kernel@",
    ),
    "a RAM disk of nowhere": (
        a_vm(
            document(system=f"{OPERATING}<kernel>@kernel@</kernel><initrd>@initrd@</initrd>"),
            firmware={"kernelBoot": {"container": CONTAINER}},
        ),
        "/domain/os/initrd: needs spec.domain.firmware.kernelBoot.container.initrdPath",
    ),
    "a RAM disk of nobody": (
        a_vm(
            document(system=f"{OPERATING}<kernel>@kernel@</kernel>"),
            firmware={"kernelBoot": {"container": {**CONTAINER, "initrdPath": "/i"}}},
        ),
        "/domain/os/initrd: is required, with the placeholder @initrd@",
    ),
    "threads without a topology": (a_vm(document(), cpu={"threads": 2}), "/domain/cpu/topology: is required"),
    "processors of cells": (
        a_vm(document(inside="<cpu><numa><cell memory='131072'/></numa></cpu>"), cpu={"sockets": 2}),
        "/domain/cpu/numa: may not be set together with spec.domain.cpu",
    ),
    "cores without a topology": (a_vm(document(), cpu={"cores": 2}), "/domain/cpu/topology: is required"),
    "memory of cells": (
        a_vm(document(inside="<cpu><numa><cell memory='131072'/></numa></cpu>"), memory={"guest": "1Gi"}),
        "/domain/cpu/numa: may not be set together with spec.domain.memory",
    ),
    "too little memory for UEFI": (uefi_of("64"), "/domain/memory: must be greater than or equal to 128Mi"),
    "memory of parts of huge pages": (
        a_vm(document(inside=HUGEPAGES, memory="<memory unit='KiB'>131073</memory>")),
        "/domain/memory: must be a multiple of hugepages.pageSize, 2Mi",
    ),
    "a uuid without a place": (
        a_vm(document().replace("<uuid>@uuid@</uuid>", ""), firmware={"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}),
        "/domain/uuid: is required",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_xml_and_typed_fields_must_agree(name: str) -> None:
    vm, told = BESIDE[name]
    (error,) = errors(vm)
    assert error.startswith(f"spec.domainXML: Forbidden: {told}")


DRIVE = DISK.replace("<disk ", "<disk device='cdrom' ").replace("vda", "sda").replace("virtio", "sata")
READ_ONLY = DISK.replace("</disk>", "<readonly/></disk>")
CELLS = "<cpu><numa><cell id='0' cpus='0-1' memory='131072'/></numa></cpu>"
FITS: dict[str, dict[str, Any]] = {
    "a claim": a_vm(document(DISK), devices={"disks": [ROOT]}),
    "a claim that is a device": a_vm(document(BLOCK), devices={"disks": [ROOT]}),
    "a claim that the XML alone protects": a_vm(document(READ_ONLY), devices={"disks": [ROOT]}),
    "a claim that both protect": a_vm(document(READ_ONLY), devices={"disks": [{**ROOT, "readOnly": True}]}),
    "an overlay": a_vm(document(DISK.replace("'raw'", "'qcow2'")), devices={"disks": [IMAGE]}),
    "an image that is read": a_vm(document(READ_ONLY), devices={"disks": [{**IMAGE, "readOnly": True}]}),
    "an image that is read, of a format of its own": a_vm(
        document(READ_ONLY.replace("'raw'", "'qcow2'")), devices={"disks": [{**IMAGE, "readOnly": True}]}
    ),
    "an image in a drive": a_vm(document(DRIVE), devices={"disks": [{**IMAGE, "device": "cdrom"}]}),
    "an interface of both": a_vm(document(INTERFACE), devices={"interfaces": [{"name": "default"}]}),
    "an interface of another name": a_vm(document(INTERFACE.replace("default", "x")), devices={"interfaces": [{"name": "x"}]}),
    "an address of the XML": a_vm(document(INTERFACE.replace("@mac:default@", "52:54:00:00:00:02"))),
    "no interface at all": a_vm(document(), devices={"interfaces": []}),
    "a kernel": a_vm(
        document(system=f"{OPERATING}<kernel>@kernel@</kernel><initrd>@initrd@</initrd>"),
        firmware={"kernelBoot": {"container": {**CONTAINER, "initrdPath": "/i"}}},
    ),
    "sockets without a topology": a_vm(document(), cpu={"sockets": 4}),
    "one core without a topology": a_vm(document(), cpu={"sockets": 4, "cores": 1, "threads": 1}),
    "cells alone": a_vm(document(inside=CELLS)),
    "nothing beside cells": a_vm(document(inside=CELLS), cpu={"sockets": None}, memory={"guest": None}),
    "a uuid": a_vm(document(), firmware={"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}),
}


@pytest.mark.parametrize("name", FITS)
def test_xml_with_matching_typed_fields_is_accepted(name: str) -> None:
    assert errors(FITS[name]) == []


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        ({"cpu": {"model": "Nehalem"}}, "cpu.model"),
        ({"machine": {"type": "q35"}}, "machine"),
        ({"memory": {"hugepages": {"pageSize": "2Mi"}}}, "memory.hugepages"),
        ({"firmware": {"bootloader": {"efi": {}}}}, "firmware.bootloader"),
        ({"devices": {"tpm": {}}}, "devices.tpm"),
        ({"firmware": {"kernelBoot": {"container": CONTAINER, "kernelArgs": "x"}}}, "firmware.kernelBoot.kernelArgs"),
        ({"devices": {"graphics": []}}, "devices.graphics"),
        ({"devices": {"disks": [{**ROOT, "target": {"bus": "virtio"}}]}}, "devices.disks[0].target"),
        ({"devices": {"disks": [{**ROOT, "bootOrder": 1}]}}, "devices.disks[0].bootOrder"),
        ({"devices": {"interfaces": [{"name": "default", "model": "virtio"}]}}, "devices.interfaces[0].model"),
    ],
)
def test_fields_that_the_xml_sets_cannot_be_typed_too(domain: dict[str, Any], field: str) -> None:
    found = errors(a_vm(document(), **domain))
    assert f"spec.domain.{field}: Forbidden: may not be set together with domainXML, which contains it" in found


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        ({"memory": {"guest": "1Ki"}}, "memory.guest"),
        ({"resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "65Mi"}}}, "resources.requests.memory"),
        ({"cpu": {"sockets": 0}}, "cpu.sockets"),
        ({"devices": {"disks": [ROOT, ROOT]}}, "devices.disks[1].name"),
    ],
)
def test_typed_fields_next_to_xml_keep_their_rules(domain: dict[str, Any], field: str) -> None:
    found = errors(a_vm(document(DISK, inside=TOPOLOGY), **domain))
    assert any(each.startswith(f"spec.domain.{field}: ") for each in found)


@pytest.mark.parametrize(
    "vm",
    [
        uefi_of("128"),
        uefi_of("64", memory={"guest": "128Mi"}),
        uefi_of("128", **CLAIM),
        a_vm(document(KEPT_TPM), **CLAIM),
        a_vm(document(inside=HUGEPAGES)),
    ],
)
def test_firmware_tpm_and_pages_of_xml_allow_matching_fields(vm: dict[str, Any]) -> None:
    assert errors(vm) == []


@pytest.mark.parametrize(
    ("vm", "told"),
    [
        (a_vm(document(KEPT_TPM)), "firmware.persistentState: Required value: devices.tpm.persistent is true"),
        (
            a_vm(document(), **CLAIM),
            "firmware.persistentState: Forbidden: requires persistent: true in firmware.bootloader.efi or devices.tpm",
        ),
        (a_vm(uefi(), firmware={"persistentState": {"claimName": "_"}}), 'firmware.persistentState.claimName: Invalid value: "_"'),
        (uefi_of("128", memory={"guest": "64Mi"}), 'memory.guest: Invalid value: "64Mi": must be greater than or equal to 128Mi'),
        (
            a_vm(document(inside=HUGEPAGES), resources={"requests": {"memory": "128Mi"}}),
            "resources.requests.memory: Forbidden: may not be set with memory.hugepages",
        ),
    ],
)
def test_typed_fields_that_the_xml_requires_are_named(vm: dict[str, Any], told: str) -> None:
    (error,) = errors(vm)
    assert error.startswith(f"spec.domain.{told}")


def test_unreadable_xml_reports_no_missing_state() -> None:
    (error,) = errors(a_vm("<domain>", **CLAIM))
    assert error.startswith("spec.domainXML: ")


def test_xml_of_a_machine_that_is_on_may_be_edited() -> None:
    old = stored(a_vm(document()))
    old["status"] = {"phase": "Running"}
    changed = {**old, "spec": {**old["spec"], "domainXML": document(vcpu="<vcpu>1</vcpu>")}}
    bigger = {**old, "spec": {**changed["spec"], "domain": {"memory": {"guest": "1Gi"}}}}
    for new in (changed, bigger, old):
        assert validation.validate_virtual_machine_update(new, old) == []
    (error,) = validation.validate_virtual_machine_update({**old, "spec": {**old["spec"], "domainXML": "<domain>"}}, old)
    assert str(error).startswith("spec.domainXML: ")
