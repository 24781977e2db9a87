from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from apiserver.apis.virt.domainxml import subresource
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec.described import domain_of
from launcher.protocol import messages
from tests.guest_kernel import KERNEL_ARGS
from tests.host.launcher.sandbox import KERNEL_BOOT, Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(500)]
Start = Callable[[], Launcher]

EXAMPLE: Final = Path(__file__).parents[3] / "examples/domain-xml.yaml"
DISK: Final = """<disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native'/>
      <source file='@disk:data@'/>
      <target dev='vda' bus='virtio'/>
      <serial>from-xml</serial>
    </disk>
    <serial"""


UEFI: Final = "<loader readonly='yes' type='pflash'>@loader@</loader><nvram>@nvram@</nvram>"
TPM: Final = "<tpm model='tpm-tis'><backend type='emulator' version='2.0'/></tpm>"
SHARED: Final = "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"
UUID: Final = "5D307CA9-B3EF-428C-8861-06E72D69F223"


def a_machine_of_xml() -> messages.Machine:
    xml: str = yaml.safe_load(EXAMPLE.read_text())["spec"]["domainXML"]
    xml = re.sub(r"<interface.*?</interface>", "", xml, flags=re.DOTALL).replace("<serial", DISK, 1)
    assert "<cmdline>console=ttyS0 quiet" in xml
    xml = re.sub("<cmdline>.*</cmdline>", f"<cmdline>{KERNEL_ARGS}</cmdline>", xml)
    xml = xml.replace("<kernel>", f"{UEFI}<kernel>", 1).replace("<memballoon", f"{TPM}<memballoon", 1).replace("@uuid@", UUID)
    xml = xml.replace("<memory unit='MiB'>128</memory>", f"<memory unit='MiB'>256</memory>{SHARED}", 1)  # UEFI needs more than half of that
    typed = {
        "firmware": {"kernelBoot": {"container": KERNEL_BOOT["container"]}},
        "devices": {"disks": [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c"}}]},
    }
    specification = dict(domain_of({"spec": {"domain": typed, "domainXML": xml}}))
    return dataclasses.replace(a_machine(), domain=specification, domain_xml=xml)


def with_placeholders(given: str) -> str:
    for value, placeholder in (
        ("<domain type='qemu'>", "<domain type='@type@'>"),
        ("default_testvm", "whatever-the-engine-calls-it"),
        ("/usr/share/OVMF/OVMF_CODE_4M.fd", "@loader@"),
        (f"{layout.EFI_VARIABLES_DIRECTORY}/OVMF_VARS_4M.fd", "@nvram@"),
        (f"{layout.KERNEL_BOOT_DIRECTORY}/vmlinux", "@kernel@"),
        (f"{layout.KERNEL_BOOT_DIRECTORY}/initrd", "@initrd@"),
        (f"{layout.DISKS_DIRECTORY}/data/disk.img", "@disk:data@"),
        *((f"{layout.RUN_DIRECTORY}/{each}.sock", f"@{each}@") for each in ("serial", "agent", "vnc")),
    ):
        assert value in given
        given = given.replace(value, placeholder)
    return given


def test_a_guest_starts_from_xml_and_libvirt_is_given_its_bytes(start: Start) -> None:
    pod = start()
    image = pod.disks / "data/disk.img"
    image.parent.mkdir()
    image.write_bytes(b"on-the-disk".ljust(1 << 20, b"\0"))
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    machine = a_machine_of_xml()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=300)
        assert viewer.sh("cat /sys/class/dmi/id/sys_vendor") == "Example Engine"
        assert viewer.sh("cat /sys/block/vda/serial; echo; head -c 11 /dev/vda") == "from-xml\non-the-disk"
        assert viewer.sh("cat /sys/devices/system/cpu/possible") == "0"
        assert viewer.sh("cat /sys/class/tpm/tpm0/tpm_version_major; cat /sys/class/dmi/id/product_uuid") == f"2\n{UUID.lower()}"
        assert "runtime" in viewer.sh("ls /sys/firmware/efi").split()
        (qemu,) = pod.qemu()
        assert "/memfd:" in Path(f"/proc/{qemu}/maps").read_text()
        given = client.read(subresource.NAME)
        assert with_placeholders(given) == machine.domain_xml
