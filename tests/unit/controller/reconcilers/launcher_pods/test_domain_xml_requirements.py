from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from controller.reconcilers.launcher_pods import domain_xml
from controller.reconcilers.launcher_pods.launcher_pod import requirements
from controller.reconcilers.launcher_pods.requirements import MIB
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, INTERFACE, LOADER, ROOT, document, uefi
from tests.unit.controller.reconcilers.builders import a_vm

CACHE = "<features><tcg><tb-cache unit='MiB'>96</tb-cache></tcg></features>"


def of(xml: str, **domain: Any) -> Object:
    vm = a_vm()
    vm["spec"]["domainXML"] = xml
    vm["spec"]["domain"] = domain
    return vm


def test_xml_requirements_equal_those_of_typed_fields() -> None:
    claims = {"claim": {"spec": {"volumeMode": "Filesystem"}}}
    vm = of(document(DISK + INTERFACE, memory="<memory unit='GiB'>3</memory>", vcpu="<vcpu>5</vcpu>"), devices={"disks": [ROOT]})
    typed = a_vm()
    typed["spec"]["domain"] = {
        "memory": {"guest": "3Gi"},
        "cpu": {"sockets": 5},
        "devices": {"disks": [ROOT], "interfaces": [{"name": "default"}], "graphics": [], "consoles": []},
    }
    assert requirements(vm, claims) == requirements(typed, claims)


NOTHING: dict[str, Any] = {"interfaces": [], "graphics": [], "consoles": []}
STATE = {"persistentState": {"claimName": "kept"}}


@pytest.mark.parametrize(
    ("xml", "beside", "typed"),
    [
        (uefi(), {}, {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}, "devices": NOTHING}),
        (
            uefi(
                LOADER.replace("type", "secure='yes' type"),
                features="<acpi/><smm state='on'/>",
                devices="<tpm model='tpm-tis'><backend type='emulator' version='2.0' persistent_state='yes'/></tpm>",
            ),
            {"firmware": STATE},
            {
                "firmware": {"bootloader": {"efi": {"persistent": True}}, **STATE},
                "devices": {**NOTHING, "tpm": {"persistent": True}},
            },
        ),
        (
            document(inside="<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>"),
            {},
            {"memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}, "devices": NOTHING},
        ),
        (
            document(inside="<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"),
            {},
            {"devices": NOTHING},
        ),
    ],
)
def test_firmware_tpm_and_pages_of_xml_need_the_same_as_typed(xml: str, beside: dict[str, Any], typed: dict[str, Any]) -> None:
    vm = a_vm()
    vm["spec"]["domain"] = {"cpu": {"sockets": 2}, "memory": {"guest": "128Mi"}, **typed}
    assert requirements(of(xml, **beside), {}) == requirements(vm, {})


def test_typed_memory_overrides_the_xmls() -> None:
    assert requirements(of(document(), memory={"guest": "1Gi"}), {}).guest_bytes == 1024 * MIB


@pytest.mark.parametrize(
    ("xml", "kvm", "mebibytes"),
    [
        (document(inside=CACHE), False, 96 - 64),
        (document(), False, 1024 - 64),
        (document(attributes="type='@type@'"), False, 1024 - 64),
        (document(attributes="type='@type@'"), True, 0),
        (document(), True, 1024 - 64),
        (document("<video><model type='vga' vram='65536'/></video>", attributes="type='kvm'"), True, 64),
        (document("<video><model type='vga' vram='33000'/></video>", attributes="type='kvm'"), True, 64),
        (document("<video><model type='virtio' vram='1024'/></video>", attributes="type='kvm'"), True, 264),
        (document("<video><model type='qxl'/></video>", attributes="type='kvm'"), True, 64 + 64 + 16),
        (document("<video><model type='qxl' vram='133000'/></video>", attributes="type='kvm'"), True, 64 + 256 + 16),
        (document("<video><model type='qxl' vgamem='262144'/></video>", attributes="type='kvm'"), True, 512 + 64 + 256),
        (document("<video><model type='none'/></video>", attributes="type='kvm'"), True, 0),
        (document(inside="<iothreads>4</iothreads>", attributes="type='kvm'"), True, 8),
        ("<domain", False, 0),
    ],
)
def test_xml_only_features_add_to_the_overhead(xml: str, mebibytes: int, *, kvm: bool) -> None:
    assert domain_xml.requirements(of(xml), kvm=kvm).overhead_bytes == mebibytes * MIB


def test_a_machine_without_xml_needs_nothing_of_it() -> None:
    assert domain_xml.requirements(a_vm(), kvm=False).overhead_bytes == 0
