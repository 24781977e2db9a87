from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.apis.virt.spec.described import domain_of
from launcher.domain import document as documents
from launcher.domain import filling
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.domain.values import InvalidSpecification
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, INTERFACE, LOADER, OPERATING, ROOT, SERIAL, document, uefi

EXAMPLE = Path(__file__).parents[4] / "examples/domain-xml.yaml"
TAPS = {"default": Tap("52:54:00:00:00:02", "tap0")}
OWN = documents.domain_uuid("u-1", {})
TOPOLOGY = "<cpu><topology sockets='2' dies='1' cores='1' threads='1'/></cpu>"
UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"


def filled(xml: str, *, accelerator: str = "qemu", found: dict[str, Found] | None = None, **domain: Any) -> str:
    specification = domain_of({"spec": {"domain": domain, "domainXML": xml}})
    return filling.fill(xml, Definition("default", "testvm", "u-1", specification, accelerator, (), found or {}), TAPS)


def changes(before: str, after: str) -> list[tuple[str, str]]:
    old, new = (text.replace("'", "\0'\0").replace("<", "\0<").replace(">", ">\0").split("\0") for text in (before, after))
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    return [("".join(old[a:b]), "".join(new[c:d])) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]


def test_every_byte_but_those_of_placeholders_is_untouched() -> None:
    vm = yaml.safe_load(EXAMPLE.read_text())
    xml, domain = vm["spec"]["domainXML"], vm["spec"]["domain"]
    assert changes(xml, filled(xml, **domain)) == [
        ("@type@", "qemu"),
        ("whatever-the-engine-calls-it", "default_testvm"),
        ("@uuid@", OWN),
        ("@uuid@", OWN),
        ("@kernel@", "/var/lib/kubevirt/kernel-boot/boot/vmlinuz"),
        ("@initrd@", "/var/lib/kubevirt/kernel-boot/boot/initrd.gz"),
        ("@mac:default@", "52:54:00:00:00:02"),
        ("@network:default@", "tap0"),
        ("@serial@", "/run/kubevirt/serial.sock"),
        ("@agent@", "/run/kubevirt/agent.sock"),
        ("@vnc@", "/run/kubevirt/vnc.sock"),
    ]


def test_bytes_of_other_alphabets_and_blanks_stay() -> None:
    xml = document(
        inside="<title>grün — 緑 &amp; &#x1F600;</title>\n\t<!-- ключ -->\r\n", before="<?xml version='1.0' encoding='utf-8'?>\n"
    )
    assert changes(xml, filled(xml)) == [("@name@", "default_testvm"), ("@uuid@", OWN)]


def test_an_identity_of_the_engine_stays() -> None:
    xml = document(INTERFACE.replace("@mac:default@", "52:54:00:00:00:02")).replace("@uuid@", UUID)
    assert changes(xml, filled(xml)) == [("@name@", "default_testvm"), ("@network:default@", "tap0")]


def test_an_identity_in_capitals_stays() -> None:
    xml = document().replace("@uuid@", UUID.upper())
    assert changes(xml, filled(xml)) == [("@name@", "default_testvm")]


@pytest.mark.parametrize(
    ("xml", "beside", "code", "variables"),
    [
        (uefi(), {}, "OVMF_CODE_4M.fd", "/run/kubevirt/efi/OVMF_VARS_4M.fd"),
        (
            uefi(LOADER.replace("type", "secure='yes' type"), features="<acpi/><smm state='on'/>"),
            {},
            "OVMF_CODE_4M.secboot.fd",
            "/run/kubevirt/efi/OVMF_VARS_4M.ms.fd",
        ),
        (
            uefi(),
            {"firmware": {"persistentState": {"claimName": "kept"}}},
            "OVMF_CODE_4M.fd",
            "/var/lib/kubevirt/firmware-state/u-1/OVMF_VARS_4M.fd",
        ),
        (
            uefi().replace("@uuid@", UUID),
            {"firmware": {"persistentState": {"claimName": "kept"}}},
            "OVMF_CODE_4M.fd",
            f"/var/lib/kubevirt/firmware-state/{UUID}/OVMF_VARS_4M.fd",
        ),
    ],
)
def test_uefi_is_that_of_the_pod(xml: str, beside: dict[str, Any], code: str, variables: str) -> None:
    found = changes(xml, filled(xml, **beside))
    assert [each for each in found if each[0] in ("@loader@", "@nvram@")] == [
        ("@loader@", f"/usr/share/OVMF/{code}"),
        ("@nvram@", variables),
    ]


@pytest.mark.parametrize("specification", [{}, {"firmware": {"bootloader": {"efi": {}}}}])
def test_uefi_for_which_nothing_was_prepared_is_refused(specification: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecification, match="/domain/os/loader: is not the UEFI firmware that the pod was created for"):
        filling.fill(uefi(), Definition("default", "testvm", "u-1", {"memory": {"guest": "128Mi"}, **specification}, "qemu"), TAPS)


@pytest.mark.parametrize(
    ("disk", "found", "driver", "path"),
    [
        (ROOT, Found(), "raw", "/var/lib/kubevirt/disks/root/disk.img"),
        (ROOT, Found(block=True), "raw", "/dev/kubevirt-disks/root"),
        ({"name": "root", "type": "Image", "source": {"reference": "x"}}, Found(), "qcow2", "/var/lib/kubevirt/overlays/root.qcow2"),
        (
            {"name": "root", "type": "Image", "source": {"reference": "x", "path": "a&b.img"}, "device": "cdrom"},
            Found(),
            "raw",
            "/var/lib/kubevirt/images/root/a&amp;b.img",
        ),
    ],
)
def test_a_disk_is_what_the_pod_has_of_it(disk: dict[str, Any], found: Found, driver: str, path: str) -> None:
    xml = document(DISK.replace("'raw'", f"'{driver}'").replace("</disk>", "<readonly/></disk>"))
    if found.block:
        xml = xml.replace("'file'", "'block'").replace("source file", "source dev")
    assert ("@disk:root@", path) in changes(xml, filled(xml, found={"root": found}, devices={"disks": [disk]}))


@pytest.mark.parametrize(
    ("disk", "found", "told"),
    [
        (ROOT, Found(block=True), "disk/@type: must be block"),
        ({"name": "root", "type": "Image", "source": {"reference": "x"}}, Found(), "disk/driver/@type: must be qcow2"),
        ({**ROOT, "readOnly": True}, Found(), "disk/readonly: is required"),
        ({**ROOT, "name": "other"}, Found(), "disk/source: disk root"),
        ({"name": "root", "device": "cdrom"}, Found(), "disk/source: disk root"),
    ],
)
def test_a_disk_that_is_something_else_is_refused(disk: dict[str, Any], found: Found, told: str) -> None:
    with pytest.raises(InvalidSpecification, match=told):
        filled(document(DISK), found={"root": found}, devices={"disks": [disk]})


def test_typed_memory_overrides_the_xml() -> None:
    xml = document(memory="<memory unit='MiB' dumpCore='off'>128</memory><currentMemory>131072</currentMemory>")
    assert changes(xml, filled(xml, memory={"guest": "1Gi"})) == [
        ("@name@", "default_testvm"),
        ("@uuid@", OWN),
        ("MiB", "KiB"),
        ("128", "1048576"),
        ("131072", "1048576"),
    ]
    assert changes(xml, filled(xml, memory={"guest": "128Mi"})) == changes(xml, filled(xml))


def test_typed_processors_override_the_xml() -> None:
    xml = document(inside=TOPOLOGY, vcpu="<vcpu current='1'>2</vcpu>")
    after = filled(xml, cpu={"sockets": 1, "cores": 2, "threads": 2})
    assert "<vcpu current='4'>4</vcpu>" in after
    assert "<topology sockets='1' dies='1' cores='2' threads='2'/>" in after


def test_typed_macs_and_uuids_override_the_xml() -> None:
    xml = document(INTERFACE.replace("@mac:default@", "52:54:00:00:00:09")).replace("@uuid@", UUID.replace("5", "6"))
    after = filled(xml, firmware={"uuid": UUID}, devices={"interfaces": [{"name": "default", "mac": "52:54:00:00:00:02"}]})
    assert f"<uuid>{UUID}</uuid>" in after
    assert "<mac address='52:54:00:00:00:02'/>" in after


def test_the_type_is_what_the_pod_has() -> None:
    assert filled(document(attributes="type='@type@'"), accelerator="kvm").startswith("<domain type='kvm'>")
    assert filled(document(attributes="type='qemu'"), accelerator="kvm").startswith("<domain type='qemu'>")
    with pytest.raises(InvalidSpecification, match="/domain/@type: this node has no KVM"):
        filled(document(attributes="type='kvm'"))
    with pytest.raises(InvalidSpecification, match="must be qemu or kvm"):
        filled(document(), accelerator="test")


@pytest.mark.parametrize("xml", ["<domain", document("<hostdev/>"), document(DISK.replace("@disk:root@", "/etc/shadow"))])
def test_xml_that_virt_api_refuses_is_refused_here_too(xml: str) -> None:
    definition = Definition("default", "testvm", "u-1", {}, "qemu")
    with pytest.raises(InvalidSpecification, match="domainXML: "):
        filling.fill(xml, definition, TAPS)


def test_a_placeholder_in_character_references_is_one_too() -> None:
    xml = document(system=f"{OPERATING}<kernel>&#64;kernel@</kernel>")
    after = filled(xml, firmware={"kernelBoot": {"container": {"kernelPath": "/k"}}})
    assert "<kernel>/var/lib/kubevirt/kernel-boot/k</kernel>" in after


def test_a_cached_disk_cannot_be_migrated() -> None:
    assert "cache none" in filling.not_migratable(document(DISK))
    assert filling.not_migratable(document(DISK.replace("type='raw'", "type='raw' cache='none'"))) == ""
    assert filling.not_migratable(document(DISK.replace("</disk>", "<readonly/></disk>"))) == ""
    assert filling.not_migratable(document(DISK), ["root"]) == ""
    assert filling.not_migratable(document(DISK), ["other"])


def test_disk_names_come_from_the_xml() -> None:
    assert filling.names_by_target(document(DISK)) == {"vda": "root"}


def test_repeated_placeholders_are_all_filled() -> None:
    console = "<console type='unix'><source mode='bind' path='@serial@'/><target type='serial' port='0'/></console>"
    display = "<graphics type='vnc' socket='@vnc@'><listen type='socket' socket='@vnc@'/></graphics>"
    xml = filled(document(SERIAL + console + display))
    assert (xml.count("/run/kubevirt/serial.sock"), xml.count("/run/kubevirt/vnc.sock"), "@" in xml) == (2, 2, False)


@pytest.mark.parametrize(
    ("mode", "accelerator", "expected"),
    [
        ("host-passthrough", "qemu", "maximum"),
        ("host-passthrough", "kvm", "host-passthrough"),
        ("host-model", "qemu", "host-model"),
        ("maximum", "kvm", "maximum"),
    ],
)
def test_a_cpu_that_only_kvm_has_is_all_that_the_emulator_can_do(mode: str, accelerator: str, expected: str) -> None:
    xml = document(inside=f"<cpu mode='{mode}'/>", attributes="type='@type@'")
    assert f"<cpu mode='{expected}'/>" in filled(xml, accelerator=accelerator)
