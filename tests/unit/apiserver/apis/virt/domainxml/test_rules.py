from __future__ import annotations

from typing import Final

import pytest

from apiserver.apis.virt.domainxml import reading
from apiserver.apis.virt.hardware import memory
from tests.unit.apiserver.apis.virt.domainxml.documents import INTERFACE, OPERATING, SERIAL, document

DEVICES: Final = "/domain/devices"
KIB: Final = 1024
PC: Final = "<type arch='x86_64' machine='pc'>hvm</type>"
OLD_Q35: Final = "<type arch='x86_64' machine='pc-q35-7.2'>hvm</type>"
SYSINFO: Final = "<sysinfo type='smbios'><system><entry name='uuid'>{}</entry></system></sysinfo>"
VNC: Final = "<graphics type='vnc'><listen type='socket' socket='@vnc@'/></graphics>"
CONSOLE: Final = "<console type='unix'><source mode='bind' path='@serial@'/><target type='serial' port='0'/></console>"
SPICE: Final = "<graphics type='spice'><listen type='socket' socket='@spice@'/></graphics>"
CLIPBOARD: Final = "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>"
TCG: Final = "<features><tcg><tb-cache unit='MiB'>32</tb-cache></tcg></features>"


def a_disk(
    name: str = "root",
    dev: str = "sda",
    bus: str = "scsi",
    device: str = "disk",
    driver: str = "",
    more: str = "",
    target: str = "",
) -> str:
    source = f"<source file='@disk:{name}@'/>" if name else ""
    return (
        f"<disk type='file' device='{device}'><driver type='raw' {driver}/>{source}<target dev='{dev}' bus='{bus}' {target}/>{more}</disk>"
    )


def kibibytes(amount: int) -> str:
    return f"<memory unit='KiB'>{amount // KIB}</memory>"


def cells(*mebibytes: int) -> str:
    found = "".join(f"<cell id='{each}' cpus='{each}' memory='{memory}' unit='MiB'/>" for each, memory in enumerate(mebibytes))
    return f"<cpu><numa>{found}</numa></cpu>"


def room(mebibytes: int) -> str:
    return f"<maxMemory slots='4' unit='MiB'>{mebibytes}</maxMemory>"


def a_cpu(attributes: str = "", inside: str = "") -> str:
    return document(inside=f"<cpu {attributes}>{inside}</cpu>")


def threads(count: int) -> str:
    return f"<iothreads>{count}</iothreads>"


MEMORY: Final = {
    "the least memory": (document(memory=kibibytes(memory.MIN.bytes)), []),
    "a KiB less": (document(memory=kibibytes(memory.MIN.bytes - KIB)), ["/domain/memory"]),
    "the most memory": (document(memory=kibibytes(memory.MAX.bytes)), []),
    "a KiB more": (document(memory=kibibytes(memory.MAX.bytes + KIB)), ["/domain/memory"]),
    "cells that are too small together": (document(inside=cells(8, 7)), ["/domain/cpu/numa"]),
    "cells that are large enough together": (document(inside=cells(8, 8)), []),
    "room for what there is": (document(inside=cells(64, 64) + room(128)), []),
    "room for less": (document(inside=cells(64, 64) + room(127)), ["/domain/maxMemory"]),
    "the most room": (document(inside=cells(64, 64) + room(16 << 20)), []),
    "more room": (document(inside=cells(64, 64) + room((16 << 20) + 1)), ["/domain/maxMemory"]),
    "room without cells": (document(inside=room(4096)), ["/domain/maxMemory"]),
}
PROCESSORS: Final = {
    "all of the processors from the beginning": (document(vcpu="<vcpu current='2'>2</vcpu>"), []),
    "more of them": (document(vcpu="<vcpu current='3'>2</vcpu>"), ["/domain/vcpu/@current"]),
    "a topology that fits": (a_cpu(inside="<topology sockets='1' dies='2' cores='1' threads='1'/>"), []),
    "fewer cores than processors": (a_cpu(inside="<topology sockets='1' cores='1' threads='1'/>"), ["/domain/cpu/topology"]),
    "more cores than processors": (a_cpu(inside="<topology sockets='1' cores='3' threads='1'/>"), ["/domain/cpu/topology"]),
    "more dies than fit": (a_cpu(inside="<topology sockets='1' dies='2' cores='2' threads='1'/>"), ["/domain/cpu/topology"]),
    "the most processors": (document(vcpu="<vcpu>512</vcpu>"), []),
}
MODELS: Final = {
    "a model": (a_cpu(inside="<model>Nehalem</model>"), []),
    "a custom model": (a_cpu("mode='custom'", "<model>Nehalem</model>"), []),
    "nothing of a model": (a_cpu(inside="<cache mode='emulate' level='3'/>"), []),
    "a mode without its model": (a_cpu("mode='custom'"), ["/domain/cpu/model"]),
    "a feature without a model": (a_cpu(inside="<feature policy='require' name='aes'/>"), ["/domain/cpu/model"]),
    "a vendor without a model": (a_cpu(inside="<vendor>AMD</vendor>"), ["/domain/cpu/model"]),
    "the node's with a feature": (a_cpu("mode='host-model'", "<feature policy='disable' name='aes'/>"), []),
    "a model beside the node's": (a_cpu("mode='host-passthrough'", "<model>Nehalem</model>"), ["/domain/cpu/model"]),
    "a model beside all that there is": (a_cpu("mode='maximum'", "<model>Nehalem</model>"), ["/domain/cpu/model"]),
    "a fallback of the node's model": (a_cpu("mode='host-model'", "<model fallback='allow'>Nehalem</model>"), []),
    "the node's that is to migrate": (a_cpu("mode='host-passthrough' migratable='on'"), []),
    "all that is to migrate": (a_cpu("mode='maximum' migratable='off'"), []),
    "a model that is to migrate": (a_cpu("mode='host-model' migratable='on'"), ["/domain/cpu/@migratable"]),
    "an emulated cache": (a_cpu("mode='host-model'", "<cache mode='emulate' level='3'/>"), []),
    "an emulated cache of another level": (a_cpu("mode='host-model'", "<cache mode='emulate' level='2'/>"), ["/domain/cpu/cache/@level"]),
    "an emulated cache of no level": (a_cpu("mode='host-model'", "<cache mode='emulate'/>"), ["/domain/cpu/cache/@level"]),
    "no cache": (a_cpu("mode='host-model'", "<cache mode='disable'/>"), []),
    "the node's cache": (a_cpu("mode='host-passthrough'", "<cache mode='passthrough'/>"), []),
    "a level of the node's cache": (a_cpu("mode='host-passthrough'", "<cache mode='passthrough' level='3'/>"), ["/domain/cpu/cache/@mode"]),
    "the node's cache of a model": (a_cpu("mode='host-model'", "<cache mode='passthrough'/>"), ["/domain/cpu/cache/@mode"]),
}
IDENTITY: Final = {
    "a name in one tag": (document().replace("<name>@name@</name>", "<name/>"), ["/domain/name", "/domain/name"]),
    "an empty name": (document().replace("@name@", ""), ["/domain/name"]),
    "no uuid": (document().replace("<uuid>@uuid@</uuid>", ""), []),
    "the uuid in the tables": (document(inside=SYSINFO.format("@uuid@")), []),
    "the uuid in capitals": (
        document(inside=SYSINFO.format("5D307CA9-B3EF-428C-8861-06E72D69F223")).replace(
            "<uuid>@uuid@", "<uuid>5d307ca9-b3ef-428c-8861-06e72d69f223"
        ),
        [],
    ),
    "another uuid in the tables": (document(inside=SYSINFO.format("x")), ["/domain/sysinfo/system/entry"]),
    "a uuid in the tables alone": (
        document(inside=SYSINFO.format("@uuid@")).replace("<uuid>@uuid@</uuid>", ""),
        ["/domain/sysinfo/system/entry"],
    ),
    "tables of the XML": (
        document(
            system=f"{OPERATING}<smbios mode='sysinfo'/>",
            inside="<sysinfo type='smbios'><bios><entry name='vendor'>x</entry></bios></sysinfo>",
        ),
        [],
    ),
    "tables of QEMU": (document(system=f"{OPERATING}<smbios mode='emulate'/>"), []),
    "tables of nothing": (document(system=f"{OPERATING}<smbios mode='sysinfo'/>"), ["/domain/os/smbios/@mode"]),
}
BOOT: Final = {
    "an order of kinds": (document(a_disk(), system=f"{OPERATING}<boot dev='hd'/>"), []),
    "an order of devices": (
        document(a_disk(more="<boot order='1'/>") + INTERFACE.replace("</interface>", "<boot order='2'/></interface>")),
        [],
    ),
    "both orders": (
        document(INTERFACE.replace("</interface>", "<boot order='2'/></interface>"), system=f"{OPERATING}<boot dev='hd'/>"),
        [f"{DEVICES}/interface/boot"],
    ),
    "one order of two devices": (
        document(a_disk(more="<boot order='1'/>") + INTERFACE.replace("</interface>", "<boot order='1'/></interface>")),
        [f"{DEVICES}/interface/boot/@order"],
    ),
    "a kernel with all of it": (
        document(system=f"{OPERATING}<kernel>@kernel@</kernel><initrd>@initrd@</initrd><cmdline>x</cmdline>"),
        [],
    ),
    "what needs a kernel": (
        document(system=f"{OPERATING}<initrd>@initrd@</initrd><cmdline>x</cmdline>"),
        ["/domain/os/initrd", "/domain/os/cmdline"],
    ),
}
DISKS: Final = {
    "an empty drive": (document(a_disk("", device="cdrom", bus="sata")), []),
    "an empty disk": (document(a_disk("")), [f"{DEVICES}/disk/source"]),
    "a cdrom of virtio": (document(a_disk(device="cdrom", bus="virtio")), [f"{DEVICES}/disk/target/@bus"]),
    "a disk of virtio": (document(a_disk(bus="virtio")), []),
    "one target of two disks": (document(a_disk("a") + a_disk("b")), [f"{DEVICES}/disk[2]/target/@dev"]),
    "one source of two disks": (document(a_disk("a") + a_disk("a", "sdb")), [f"{DEVICES}/disk[2]/source"]),
    "one serial number of two disks": (
        document(a_disk("a", more="<serial>x</serial>") + a_disk("b", "sdb", more="<serial>x</serial>")),
        [f"{DEVICES}/disk[2]/serial"],
    ),
    "no serial number of two disks": (
        document(a_disk("a", more="<serial></serial>") + a_disk("b", "sdb", more="<serial></serial>")),
        [],
    ),
    "a stick": (document(a_disk(bus="usb", target="removable='on'")), []),
    "a disk that is no stick": (document(a_disk(target="removable='on'")), [f"{DEVICES}/disk/target/@removable"]),
    "an open drive": (document(a_disk(device="cdrom", bus="sata", target="tray='open'")), []),
    "an open disk": (document(a_disk(target="tray='open'")), [f"{DEVICES}/disk/target/@tray"]),
    **{
        f"{part} on {bus}": (
            document(a_disk(bus=bus, more=f"<{part}>{'0' * 16 if part == 'wwn' else 'x'}</{part}>"), system=PC),
            [] if bus == "scsi" or (part == "wwn" and bus in ("sata", "ide")) else [f"{DEVICES}/disk/{part}"],
        )
        for part in ("wwn", "vendor", "product")
        for bus in ("scsi", "sata", "ide", "usb", "virtio")
    },
    **{
        f"native with cache {cache}": (
            document(a_disk(driver=f"io='native' cache='{cache}'")),
            [] if cache in ("none", "directsync") else [f"{DEVICES}/disk/driver/@io"],
        )
        for cache in ("none", "directsync", "writethrough", "writeback", "unsafe")
    },
    "native with any cache": (document(a_disk(driver="io='native'")), [f"{DEVICES}/disk/driver/@io"]),
    "threads with any cache": (document(a_disk(driver="io='threads'")), []),
    "no driver": (document(a_disk().replace("<driver type='raw' />", "")), []),
    "queues": (document(a_disk(bus="virtio", driver="queues='2'")), []),
    "queues of no virtio": (document(a_disk(driver="queues='2'")), [f"{DEVICES}/disk/driver/@queues"]),
    "the last thread": (document(a_disk(bus="virtio", driver="iothread='2'"), inside=threads(2)), []),
    "a thread beyond it": (document(a_disk(bus="virtio", driver="iothread='3'"), inside=threads(2)), [f"{DEVICES}/disk/driver/@iothread"]),
    "a thread of no virtio": (document(a_disk(driver="iothread='1'"), inside=threads(2)), [f"{DEVICES}/disk/driver/@iothread"]),
}
DEVICE: Final = {
    "a console that is the serial port": (document(SERIAL + CONSOLE), []),
    "a console twice": (document(SERIAL + CONSOLE * 2), [f"{DEVICES}/console[2]"]),
    "a console of nothing": (document(CONSOLE), [f"{DEVICES}/console"]),
    "a console of another port": (document("<serial type='pty'/>" + SERIAL + CONSOLE), [f"{DEVICES}/console"]),
    "a watchdog on ISA in a pc": (document("<watchdog model='ib700'/>", system=PC), []),
    "a watchdog on ISA in a q35": (document("<watchdog model='ib700'/>"), [f"{DEVICES}/watchdog/@model"]),
    "a watchdog on PCI in a q35": (document("<watchdog model='i6300esb'/>"), []),
    "the end of a raw disk's chain": (document(a_disk(more="<backingStore/>")), []),
    "the end of a qcow2's chain": (
        document(a_disk(more="<backingStore/>").replace("'raw'", "'qcow2'")),
        [f"{DEVICES}/disk/backingStore"],
    ),
    "a drive without a format": (document(a_disk("", device="cdrom").replace("type='raw'", "name='qemu'")), []),
    "each display once": (document(VNC + SPICE), []),
    "one display twice": (document(VNC + VNC), [f"{DEVICES}/graphics[2]"]),
    "one serial port twice": (document(SERIAL + SERIAL), [f"{DEVICES}/serial[2]"]),
    "a clipboard of SPICE": (document(SPICE + CLIPBOARD), []),
    "a clipboard of VNC": (document(VNC + CLIPBOARD), [f"{DEVICES}/channel"]),
    "two clipboards": (document(SPICE + CLIPBOARD * 2), [f"{DEVICES}/channel[2]"]),
    "serial ports of nobody": (document("<serial type='pty'/>" * 2), []),
    "queues of a controller": (document("<controller type='scsi' model='virtio-scsi'><driver queues='2'/></controller>"), []),
    "queues of another": (document("<controller type='scsi'><driver queues='2'/></controller>"), [f"{DEVICES}/controller/driver"]),
    "nothing of a driver": (document("<controller type='scsi' model='lsilogic'><driver/></controller>"), []),
    "IDE in a pc": (document("<controller type='ide'/>" + a_disk(bus="ide"), system=PC), []),
    "IDE in a q35": (
        document("<controller type='ide'/>" + a_disk(bus="ide")),
        [f"{DEVICES}/controller/@type", f"{DEVICES}/disk/target/@bus"],
    ),
    "IDE in an old q35": (
        document("<controller type='ide'/>" + a_disk(bus="ide"), system=OLD_Q35),
        [f"{DEVICES}/controller/@type", f"{DEVICES}/disk/target/@bus"],
    ),
    "a tablet of USB": (document("<input type='tablet' bus='usb'/>"), []),
    "a tablet of any bus": (document("<input type='tablet'/>"), []),
    "a mouse of PS/2": (document("<input type='mouse' bus='ps2'/>"), []),
    "a tablet of PS/2": (document("<input type='tablet' bus='ps2'/>"), [f"{DEVICES}/input/@bus"]),
    "words of a BIOS": (document(SERIAL, system=f"{OPERATING}<bios useserial='yes'/>"), []),
    "a silent BIOS": (document(system=f"{OPERATING}<bios useserial='no'/>"), []),
    "words of a BIOS to nobody": (document(system=f"{OPERATING}<bios useserial='yes'/>"), ["/domain/os/bios/@useserial"]),
    "a cache of the emulator": (document(inside=TCG), []),
    "a cache of KVM": (document(inside=TCG, attributes="type='kvm'"), ["/domain/features/tcg"]),
    "a cache of whatever there is": (document(inside=TCG, attributes="type='@type@'"), ["/domain/features/tcg"]),
}
ALL: Final = MEMORY | PROCESSORS | MODELS | IDENTITY | BOOT | DISKS | DEVICE


@pytest.mark.parametrize("name", ALL)
def test_values_at_a_limit_are_allowed_and_beyond_refused(name: str) -> None:
    text, places = ALL[name]
    assert [each.path for each in reading.problems_of(text)] == places


def test_the_other_place_is_told_of_what_is_there_twice() -> None:
    (problem,) = reading.problems_of(document(VNC + VNC))
    assert problem.text == f"is already used at {DEVICES}/graphics[1]"


def test_amounts_are_told() -> None:
    (small,) = reading.problems_of(document(memory=kibibytes(memory.MIN.bytes - KIB)))
    assert str(memory.MIN.bytes - KIB) in small.text
    (few,) = reading.problems_of(a_cpu(inside="<topology sockets='2' dies='2' cores='2' threads='2'/>"))
    assert few.text.endswith("2, but is 16")
