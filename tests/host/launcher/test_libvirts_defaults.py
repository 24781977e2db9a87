"""What libvirt adds to our domains, each with the reason why our XML leaves it out."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as ET

import libvirt
import pytest

from launcher.domain import pci
from launcher.domain.document import to_xml
from tests.contracts.test_hypervisor import private_libvirtd
from tests.host.launcher.sandbox import wait_for
from tests.unit.launcher.domain.test_document import CASES, CLAIM, defined

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

DEFAULTS: Final = {
    "/domain/cpu/topology/@dies=1": "one level of processors that no field sets",
    "/domain/cpu/topology/@clusters=1": "the same, since libvirt 10.1",
    "/domain/currentMemory*": "all of the memory: the balloon starts empty",
    "/domain/devices/audio*": "no sound without a card; with SPICE, the viewer plays it",
    "/domain/devices/console[[]unix]*": "libvirt's second name for the first serial port",
    "/domain/devices/controller[[]pci]/model*": "the device of each port",
    "/domain/devices/controller[[]pci]/target*": "the number of each port",
    "/domain/devices/controller[[]pci]": "pci-root of a pc, or a bridge for conventional PCI devices, with a port of its own",
    "/domain/devices/controller[[]pci]/@*": "the same",
    "/domain/devices/controller[[]sata]*": "six ports are part of a q35; another controller for each six disks more",
    "/domain/devices/graphics[[]*]/@socket=*": "a copy of the listening socket",
    "/domain/devices/hostdev/@display=off": "a passed-through device shows nothing in VNC",
    "/domain/devices/hostdev/@managed=no": "the node's administrator binds devices to vfio, libvirt in a pod cannot",
    "/domain/devices/input[[]keyboard]*": "the PS/2 keyboard is part of a PC",
    "/domain/devices/input[[]mouse]*": "the PS/2 mouse is part of a PC",
    "/domain/devices/serial[[]unix]/target*": "a serial port on ISA, as on a PC",
    "/domain/devices/video/model/@heads=1": "one screen",
    "/domain/devices/video/model/@primary=yes": "the only card is the first",
    "/domain/devices/watchdog[[]itco]*": "part of a q35, since libvirt 9.1: once a guest has started it, it resets a guest that hangs",
    "/domain/os/boot*": "the first disk, of a machine that boots a kernel or by UEFI's own order",
    "/domain/os/@firmware=efi": "libvirt recognises our files of UEFI, and describes them",
    "/domain/os/firmware*": "the same",
    "/domain/os/loader/@format=raw": "the same",
    "/domain/os/nvram/@*": "the same",
    "/domain/os/type/@machine=pc-*": "the newest version of the type that QEMU has; a migration keeps it",
}
"""Pattern of an addition, and why it is right."""
MANY_DISKS: Final = {
    f"eight disks on sata of a {kind}": defined(
        machine={"type": kind},
        devices={"disks": [{**CLAIM, "name": f"d{each}", "source": {"name": f"c{each}"}, "target": {"bus": "sata"}} for each in range(8)]},
    )
    for kind in ("q35", "pc")
} | {
    f"26 disks of a {kind}": defined(
        machine={"type": kind}, devices={"disks": [{**CLAIM, "name": f"d{each}", "source": {"name": f"c{each}"}} for each in range(26)]}
    )
    for kind in ("q35", "pc")
}
NOT_FOR_LIBVIRT: Final = {
    "every-kind-of-disk": "virt-api refuses its read-only disk on SATA",
    "network-disks": "virt-handler adds the name of a user",
}
MACHINES: Final = {name: each for name, each in (CASES | MANY_DISKS).items() if name not in NOT_FOR_LIBVIRT}


@pytest.fixture(scope="module")
def connection() -> Iterator[libvirt.virConnect]:
    libvirt.registerErrorHandler(lambda *_: None, None)
    with private_libvirtd() as daemon:
        yield wait_for(lambda: opened(daemon.uri), 60, "libvirtd answers")


def opened(uri: str) -> libvirt.virConnect | None:
    try:
        return libvirt.open(uri)
    except libvirt.libvirtError:
        return None


def pair(connection: libvirt.virConnect, name: str) -> tuple[ET.Element, ET.Element]:
    definition = dataclasses.replace(MACHINES[name], pci_panic=connection.getLibVersion() >= 9_001_000)
    ours = to_xml(definition).replace('<domain type="kvm">', '<domain type="qemu">')
    domain = connection.defineXML(ours)
    try:
        return ET.fromstring(ours), ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)


def facts(element: ET.Element, place: str = "") -> Counter[str]:
    kind = element.get("type") if element.tag in ("controller", "input", "audio", "graphics", "serial", "console", "channel") else None
    kind = element.get("model") if element.tag in ("watchdog", "panic") else kind
    place = f"{place}/{element.tag}" + (f"[{kind}]" if kind else "")
    if element.tag in ("memory", "maxMemory", "tb-cache", "page", "cell"):
        return Counter([place])
    found = Counter([place, *(f"{place}/@{name}={value}" for name, value in element.attrib.items() if name != "index")])
    for child in element:
        if child.tag not in ("address", "alias"):
            found.update(facts(child, place))
    return found


def free_ports(document: ET.Element) -> int:
    used = {each.get("bus") for each in document.iter("address") if each.get("type") == "pci"}
    ports = document.findall("devices/controller[@model='pcie-root-port']")
    return sum(f"0x{int(each.get('index', '0')):02x}" not in used for each in ports)


@pytest.mark.parametrize("name", MACHINES)
def test_libvirt_adds_only_what_is_known_to_be_right(connection: libvirt.virConnect, name: str) -> None:
    ours, libvirts = pair(connection, name)
    added = facts(libvirts) - facts(ours)
    assert [each for each in sorted(added) if not any(fnmatch.fnmatchcase(each, pattern) for pattern in DEFAULTS)] == []
    if ours.find("devices/controller[@model='pcie-root']") is not None:
        assert free_ports(libvirts) == pci.SPARE_PORTS
    for bus, kind in (("sata", "sata"), ("scsi", "scsi"), ("usb", "usb")):
        units = [each.find("address") for each in libvirts.findall("devices/disk") if each.find(f"target[@bus='{bus}']") is not None]
        controllers = {each.get("index") for each in libvirts.findall(f"devices/controller[@type='{kind}']")}
        assert {each.get("controller", each.get("bus")) for each in units if each is not None} <= controllers


def test_each_known_default_is_added_to_some_machine(connection: libvirt.virConnect) -> None:
    newer = {"/domain/cpu/topology/@clusters=1", "/domain/devices/watchdog[[]itco]*", *(each for each in DEFAULTS if "/os/" in each)}
    added: Counter[str] = Counter()
    for name in MACHINES:
        ours, libvirts = pair(connection, name)
        added += facts(libvirts) - facts(ours)
    assert [each for each in DEFAULTS if each not in newer and not fnmatch.filter(added, each)] == []
