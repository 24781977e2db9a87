from __future__ import annotations

from typing import Final

import pytest

from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.hardware.disks import MAX_SERIAL
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, INTERFACE, LOADER, NVRAM, OPERATING, SERIAL, document, uefi

QEMU: Final = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
DEVICES: Final = "/domain/devices"
MISLEADING: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"


def disk(
    source: str = "<source file='@disk:root@'/>", more: str = "", driver: str = "type='raw'", kind: str = "file", bus: str = "virtio"
) -> str:
    return f"<disk type='{kind}'><driver name='qemu' {driver}/>{source}<target dev='vda' bus='{bus}'/>{more}</disk>"


PAGES: Final = "/domain/memoryBacking/hugepages"
PAGE: Final = "<page size='2048' unit='KiB'/>"
SECURE: Final = LOADER.replace("type", "secure='yes' type")


def backing(inside: str) -> str:
    return f"<memoryBacking>{inside}</memoryBacking>"


def tpm(backend: str, kind: str = "emulator", model: str = "tpm-crb") -> str:
    return f"<tpm model='{model}'><backend type='{kind}' {backend}</backend></tpm>"


def card(**replaced: str) -> str:
    text = INTERFACE
    for old, new in replaced.items():
        text = text.replace({"mac": "<mac address='@mac:default@'/>", "model": "<model type='virtio'/>"}.get(old, old), new)
    return text


UNREADABLE: Final = {
    "nothing": ("", "must begin with an element"),
    "no XML": ("rm -rf /", "must begin with an element"),
    "no end": ("<domain>\n<os>\n", "is not well-formed XML: it ends at line 3 before </os>"),
    "two roots": ("<domain/><domain/>", "is not well-formed XML: junk after document element"),
    "a document type": ("<!DOCTYPE domain SYSTEM 'http://example.com/x.dtd'><domain/>", "a document type is not allowed"),
    "an entity of a file": ('<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><domain>&x;</domain>', "a document type is not allowed"),
    "a billion laughs": ('<!DOCTYPE d [<!ENTITY a "lol"><!ENTITY b "&a;&a;">]><domain>&b;</domain>', "a document type is not allowed"),
    "an undefined entity": ("<domain>&x;</domain>", "undefined entity"),
    "a processing instruction": ("<?xml-stylesheet href='x'?><domain/>", "a processing instruction is not allowed"),
    "another encoding": ("<?xml version='1.0' encoding='UTF-16'?><domain/>", "must be XML 1.0 in UTF-8"),
    "an encoding that hides": ("<?xml version='1.0' encoding='UTF-7'?><domain/>", "must be XML 1.0 in UTF-8"),
    "another version": ("<?xml version='1.1'?><domain/>", "must be XML 1.0 in UTF-8"),
    "CDATA": ("<domain><name><![CDATA[x]]></name></domain>", "CDATA is not allowed"),
    "a comment in a value": ("<domain><name>a<!-- b -->c</name></domain>", "mixes a comment and text"),
    "text beside elements": ("<domain>text<name>x</name></domain>", "mixes text and elements"),
    "too deep": ("<a>" * 17 + "</a>" * 17, "nested deeper than 16 elements"),
    "too many": ("<domain>" + "<a/>" * 4001 + "</domain>", "more than 4000 elements"),
    "too many attributes": ("<domain " + " ".join(f"a{each}=''" for each in range(33)) + "/>", "more than 32 attributes"),
    "an attribute twice": ("<domain type='qemu' type='kvm'/>", "duplicate attribute"),
    "too long": ("<domain>" + " " * parsing.MAX_BYTES + "</domain>", "may not be more than 65536 bytes"),
    "half a surrogate pair": ("<domain>\ud800</domain>", "must be Unicode text"),
    "a zero byte": ("<domain>\0</domain>", "must not have control characters"),
    "a sequence that a terminal obeys": ("<domain><!-- \x9b2J --></domain>", "must not have control characters"),
    "a comment in another order": ("<domain><!-- \u202e --></domain>", "a comment must not have characters such as U+202E"),
    "a comment that ends elsewhere": ("<domain>\n<!-- a\u2028--></domain>", "a comment must not have characters such as U+2028"),
    "a name in another order": ("<domain><a\u061c/></domain>", "not well-formed"),
    "a namespace in another order": ("<domain xmlns:x='http://\u2066'/>", "a namespace must not have characters such as U+2066"),
    "a long namespace": (
        f"<domain><x:a xmlns:x='{'u' * (parsing.MAX_NAMESPACE + 1)}'/></domain>",
        f"a namespace of more than {parsing.MAX_NAMESPACE} characters",
    ),
    "a blank of another alphabet": ("<domain>\u2003<name>x</name></domain>", "mixes text and elements"),
    "a byte order mark": ("\ufeff<domain/>", "must begin with an element"),
    "QEMU's namespace": (document(attributes=f"type='qemu' {QEMU}"), "is not allowed, because its elements are not checked"),
    "QEMU's namespace in metadata": (document(inside=f"<metadata {QEMU}/>"), "is not allowed, because its elements are not checked"),
    "the test driver's namespace": (
        document(attributes="type='qemu' xmlns:t='http://libvirt.org/schemas/domain/test/1.0'"),
        "is not allowed, because its elements are not checked",
    ),
}

REFUSED: Final = {
    "another root": ("<network/>", "/network"),
    "QEMU's command line": (document(inside="<commandline><arg value='-S'/></commandline>"), "/domain/commandline"),
    "elements of no namespace in metadata": (document(inside="<metadata><x/></metadata>"), "/domain/metadata/x"),
    "a namespace of its own": ("<domain xmlns='http://example.com/' type='qemu'/>", "/domain"),
    "a device of a namespace": (document("<x:hostdev xmlns:x='http://example.com/'/>"), f"{DEVICES}/hostdev"),
    "an attribute of a namespace": (document(attributes="type='qemu' xml:base='file:///'"), "/domain"),
    "no type": (document(attributes=""), "/domain/@type"),
    "another hypervisor": (document(attributes="type='xen'"), "/domain/@type"),
    "no memory": (document(memory=""), "/domain/memory"),
    "no processors": (document(vcpu=""), "/domain/vcpu"),
    "memory twice": (document(memory="<memory>131072</memory><memory>999999999</memory>"), "/domain/memory[2]"),
    "devices twice": (document(inside="<devices/>"), f"{DEVICES}[2]"),
    "a negative amount": (document(memory="<memory>-1</memory>"), "/domain/memory"),
    "an amount in hexadecimal": (document(memory="<memory>0x20000</memory>"), "/domain/memory"),
    "an amount in octal": (document(memory="<memory>0400000</memory>"), "/domain/memory"),
    "an amount with blanks": (document(memory="<memory> 131072 </memory>"), "/domain/memory"),
    "an amount with other digits": (document(memory="<memory>١٣١٠٧٢</memory>"), "/domain/memory"),
    "a huge amount": (document(memory="<memory>99999999999999999999</memory>"), "/domain/memory"),
    "an unknown unit": (document(memory="<memory unit='pages'>131072</memory>"), "/domain/memory/@unit"),
    "too much memory": (document(memory="<memory unit='EiB'>1</memory>"), "/domain/memory"),
    "too little memory": (document(memory="<memory unit='b'>131072</memory>"), "/domain/memory"),
    "memory in cells": (
        document(inside="<cpu><numa><cell id='0' cpus='0-1' memory='99' unit='TiB'/></numa></cpu>"),
        "/domain/cpu/numa",
    ),
    "memory to come without cells": (document(inside="<maxMemory slots='4' unit='GiB'>4</maxMemory>"), "/domain/maxMemory"),
    "memory devices": (document("<memory model='dimm'/>"), f"{DEVICES}/memory"),
    "shared memory": (document("<shmem name='x'/>"), f"{DEVICES}/shmem"),
    "huge pages of any size": (document(inside="<memoryBacking><hugepages/></memoryBacking>"), f"{PAGES}/page"),
    "huge pages of another size": (document(inside=backing("<hugepages><page size='64'/></hugepages>")), f"{PAGES}/page/@size"),
    "huge pages of a part": (
        document(inside=backing("<hugepages><page size='2' unit='M' nodeset='0'/></hugepages>")),
        f"{PAGES}/page/@nodeset",
    ),
    "huge pages of two sizes": (
        document(inside=backing("<hugepages><page size='2' unit='M'/><page size='1' unit='G'/></hugepages>")),
        f"{PAGES}/page[2]",
    ),
    "cells of parts of pages": (
        document(
            inside="<cpu><numa><cell memory='65536'/><cell memory='65537'/></numa></cpu>" + backing(f"<hugepages>{PAGE}</hugepages>"),
        ),
        "/domain/cpu/numa/cell[2]/@memory",
    ),
    "anonymous huge pages": (
        document(inside=backing(f"<hugepages>{PAGE}</hugepages><source type='anonymous'/>")),
        "/domain/memoryBacking/source/@type",
    ),
    "memory in a file": (document(inside=backing("<source type='file'/>")), "/domain/memoryBacking/source/@type"),
    "memory in a file unsaid": (document(inside=backing("<access mode='shared'/>")), "/domain/memoryBacking/access"),
    "memory that is allocated": (document(inside=backing("<allocation mode='immediate'/>")), "/domain/memoryBacking/allocation"),
    "locked memory": (document(inside=backing("<locked/>")), "/domain/memoryBacking/locked"),
    "no processor": (document(vcpu="<vcpu>0</vcpu>"), "/domain/vcpu"),
    "too many processors": (document(vcpu="<vcpu>513</vcpu>"), "/domain/vcpu"),
    "pinned processors": (document(vcpu="<vcpu cpuset='0'>1</vcpu>"), "/domain/vcpu/@cpuset"),
    "more processors now than ever": (document(vcpu="<vcpu current='3'>2</vcpu>"), "/domain/vcpu/@current"),
    "another number of cores": (
        document(inside="<cpu><topology sockets='1' cores='4' threads='1'/></cpu>"),
        "/domain/cpu/topology",
    ),
    "too many I/O threads": (document(inside="<iothreads>17</iothreads>"), "/domain/iothreads"),
    "a tune of processors": (document(inside="<cputune><shares>9</shares></cputune>"), "/domain/cputune"),
    "a tune of memory": (document(inside="<memtune><hard_limit>9</hard_limit></memtune>"), "/domain/memtune"),
    "a tune of NUMA": (document(inside="<numatune><memory nodeset='0'/></numatune>"), "/domain/numatune"),
    "a tune of blocks": (document(inside="<blkiotune><weight>9</weight></blkiotune>"), "/domain/blkiotune"),
    "a control group": (document(inside="<resource><partition>/x</partition></resource>"), "/domain/resource"),
    "a label": (document(inside="<seclabel type='none'/>"), "/domain/seclabel"),
    "an encrypted launch": (document(inside="<launchSecurity type='sev'/>"), "/domain/launchSecurity"),
    "an identity map": (document(inside="<idmap/>"), "/domain/idmap"),
    "a boot loader": (document(inside="<bootloader>/bin/sh</bootloader>"), "/domain/bootloader"),
    "a power off that stays": (document(inside="<on_poweroff>preserve</on_poweroff>"), "/domain/on_poweroff"),
    "a reboot that ends": (document(inside="<on_reboot>destroy</on_reboot>"), "/domain/on_reboot"),
    "a crash that dumps": (document(inside="<on_crash>coredump-destroy</on_crash>"), "/domain/on_crash"),
    "a crash that restarts": (document(inside="<on_crash>restart</on_crash>"), "/domain/on_crash"),
    "a lock that pauses": (document(inside="<on_lockfailure>ignore</on_lockfailure>"), "/domain/on_lockfailure"),
    "a path of a kernel": (document(system=f"{OPERATING}<kernel>/etc/shadow</kernel>"), "/domain/os/kernel"),
    "a path of a RAM disk": (document(system=f"{OPERATING}<kernel>@kernel@</kernel><initrd>/x</initrd>"), "/domain/os/initrd"),
    "a path of tables": (document(system=f"{OPERATING}<acpi><table type='slic'>/x</table></acpi>"), "/domain/os/acpi"),
    "a device tree": (document(system=f"{OPERATING}<dtb>/x</dtb>"), "/domain/os/dtb"),
    "a loader": (document(system=f"{OPERATING}<loader>/x</loader>"), "/domain/os/loader"),
    "variables": (document(system=f"{OPERATING}<nvram>/x</nvram>"), "/domain/os/nvram"),
    "firmware of libvirt's choice": (document(system=OPERATING).replace("<os>", "<os firmware='efi'>"), "/domain/os/@firmware"),
    "features of firmware": (document(system=f"{OPERATING}<firmware/>"), "/domain/os/firmware"),
    "a loader without variables": (uefi(system=f"{OPERATING}{LOADER}"), "/domain/os/nvram"),
    "variables without a loader": (uefi(system=f"{OPERATING}{NVRAM}"), "/domain/os/nvram"),
    "a loader of another type": (uefi(LOADER.replace("pflash", "rom")), "/domain/os/loader/@type"),
    "a loader that is written to": (uefi(LOADER.replace("readonly='yes'", "readonly='no'")), "/domain/os/loader/@readonly"),
    "a loader without state": (uefi(LOADER.replace("type", "stateless='yes' type")), "/domain/os/loader/@stateless"),
    "a template": (uefi(nvram=NVRAM.replace("<nvram", "<nvram template='/x'")), "/domain/os/nvram/@template"),
    "a loader of an old machine": (uefi().replace("q35", "pc"), "/domain/os/loader"),
    "a loader without ACPI": (uefi(features="<apic/>"), "/domain/features/acpi"),
    "a secure loader without SMM": (uefi(SECURE), "/domain/features/smm/@state"),
    "a secure loader with SMM turned off": (uefi(SECURE, features="<acpi/><smm state='off'/>"), "/domain/features/smm/@state"),
    "a secure loader of a kernel": (
        uefi(SECURE, nvram=f"{NVRAM}<kernel>@kernel@</kernel>", features="<acpi/><smm state='on'/>"),
        "/domain/os/loader/@secure",
    ),
    "a BIOS beside a loader": (uefi(nvram=f"{NVRAM}<bios useserial='yes'/>"), "/domain/os/bios/@useserial"),
    "a program of its own": (document(system="<type arch='x86_64' machine='q35'>exe</type><init>/bin/sh</init>"), "/domain/os/type"),
    "another architecture": (document(system="<type arch='aarch64' machine='virt'>hvm</type>"), "/domain/os/type/@arch"),
    "another machine": (document(system="<type arch='x86_64' machine='microvm'>hvm</type>"), "/domain/os/type/@machine"),
    "a command line without a kernel": (document(system=f"{OPERATING}<cmdline>x</cmdline>"), "/domain/os/cmdline"),
    "files as firmware configuration": (
        document(inside="<sysinfo type='fwcfg'><entry name='opt/x' file='/etc/shadow'/></sysinfo>"),
        "/domain/sysinfo/@type",
    ),
    "another uuid in the tables": (
        document(inside="<sysinfo type='smbios'><system><entry name='uuid'>x</entry></system></sysinfo>"),
        "/domain/sysinfo/system/entry",
    ),
    "tables of nothing": (document(system=f"{OPERATING}<smbios mode='sysinfo'/>"), "/domain/os/smbios/@mode"),
    "tables of the node": (document(system=f"{OPERATING}<smbios mode='host'/>"), "/domain/os/smbios/@mode"),
    "an emulator": (document("<emulator>/bin/sh</emulator>"), f"{DEVICES}/emulator"),
    "an unknown feature": (document(inside="<features><privnet/></features>"), "/domain/features/privnet"),
    "a cache beside KVM": (
        document(attributes="type='kvm'", inside="<features><tcg><tb-cache unit='MiB'>32</tb-cache></tcg></features>"),
        "/domain/features/tcg",
    ),
    "a huge cache": (
        document(inside="<features><tcg><tb-cache unit='MiB'>65536</tb-cache></tcg></features>"),
        "/domain/features/tcg/tb-cache",
    ),
    "a file of the pod": (document(disk("<source file='/etc/shadow'/>")), f"{DEVICES}/disk/source/@file"),
    "a path out of a placeholder": (document(disk("<source file='@disk:../../etc/shadow@'/>")), f"{DEVICES}/disk/source/@file"),
    "a path behind a placeholder": (document(disk("<source file='@disk:root@/../x'/>")), f"{DEVICES}/disk/source/@file"),
    "an empty placeholder": (document(disk("<source file='@disk:@'/>")), f"{DEVICES}/disk/source/@file"),
    "another placeholder": (document(disk("<source file='@network:root@'/>")), f"{DEVICES}/disk/source/@file"),
    "a device of the node": (document(disk("<source dev='/dev/sda'/>", kind="block")), f"{DEVICES}/disk/source/@dev"),
    "a file beside a placeholder": (
        document(disk("<source file='@disk:root@' dev='/dev/sda'/>")),
        f"{DEVICES}/disk/source/@dev",
    ),
    "a descriptor": (document(disk("<source file='@disk:root@' fdgroup='x'/>")), f"{DEVICES}/disk/source/@fdgroup"),
    "a source twice": (document(disk("<source file='@disk:root@'/><source file='/etc/shadow'/>")), f"{DEVICES}/disk/source[2]"),
    "no source": (document(disk("")), f"{DEVICES}/disk/source"),
    **{
        f"a disk of type {kind}": (document(disk(kind=kind)), f"{DEVICES}/disk/@type")
        for kind in ("network", "volume", "dir", "vhostuser", "nvme", "vhostvdpa", "")
    },
    **{
        f"a disk with {name}": (document(disk(more=f"<{name}/>")), f"{DEVICES}/disk/{name}")
        for name in ("mirror", "encryption", "auth", "shareable", "transient", "iotune", "throttlefilters")
    },
    "an image below a disk": (document(disk(more="<backingStore type='file'/>")), f"{DEVICES}/disk/backingStore/@type"),
    "a file below a disk": (
        document(disk(more="<backingStore><source file='/etc/shadow'/></backingStore>")),
        f"{DEVICES}/disk/backingStore/source",
    ),
    "sound in a file": (document("<audio id='1' type='file' path='/x'/>"), f"{DEVICES}/audio/@path"),
    "sound of the node": (document("<audio id='1' type='alsa'/>"), f"{DEVICES}/audio/@type"),
    "another socket of a console": (
        document(SERIAL + "<console type='unix'><source mode='bind' path='/x'/><target type='serial'/></console>"),
        f"{DEVICES}/console/source/@path",
    ),
    "another socket of a display": (
        document("<graphics type='vnc' socket='/x'><listen type='socket' socket='@vnc@'/></graphics>"),
        f"{DEVICES}/graphics/@socket",
    ),
    "a label of a disk": (document(disk("<source file='@disk:root@'><seclabel/></source>")), f"{DEVICES}/disk/source/seclabel"),
    "a backing file in a driver": (
        document(disk(driver="type='qcow2'><metadata_cache/></driver><x")),
        f"{DEVICES}/disk/driver/metadata_cache",
    ),
    "another format": (document(disk(driver="type='vmdk'")), f"{DEVICES}/disk/driver/@type"),
    "another driver": (document(disk().replace("'qemu'", "'tap'")), f"{DEVICES}/disk/driver/@name"),
    "commands of SCSI to the node": (document(disk().replace("<disk ", "<disk device='lun' ")), f"{DEVICES}/disk/@device"),
    "raw I/O": (document(disk().replace("<disk ", "<disk rawio='yes' ")), f"{DEVICES}/disk/@rawio"),
    "one disk twice": (document(disk() + disk().replace("vda", "vdb")), f"{DEVICES}/disk[2]/source"),
    "one target twice": (document(disk() + disk().replace(":root", ":other")), f"{DEVICES}/disk[2]/target/@dev"),
    "a target that is a path": (document(disk().replace("vda", "../x")), f"{DEVICES}/disk/target/@dev"),
    "direct I/O with a cache": (document(disk(driver="type='raw' io='native'")), f"{DEVICES}/disk/driver/@io"),
    "a thread that is not there": (document(disk(driver="type='raw' iothread='1'")), f"{DEVICES}/disk/driver/@iothread"),
    "two orders of boot": (
        document(disk(more="<boot order='1'/>"), system=f"{OPERATING}<boot dev='hd'/>"),
        f"{DEVICES}/disk/boot",
    ),
    "one place in the order twice": (
        document(disk(more="<boot order='1'/>") + disk(more="<boot order='1'/>").replace("vda", "vdb").replace(":root", ":b")),
        f"{DEVICES}/disk[2]/boot/@order",
    ),
    "one serial twice": (
        document(disk(more="<serial>a</serial>") + disk(more="<serial>a</serial>").replace("vda", "vdb").replace(":root", ":b")),
        f"{DEVICES}/disk[2]/serial",
    ),
    "one World Wide Name twice": (
        document(
            disk(more="<wwn>0123456789abcdef</wwn>", bus="scsi").replace("vda", "sda")
            + disk(more="<wwn>0123456789ABCDEF</wwn>", bus="scsi").replace("vda", "sdb").replace(":root", ":b")
        ),
        f"{DEVICES}/disk[2]/wwn",
    ),
    **{
        f"a serial that {bus} truncates": (
            document(disk(more=f"<serial>{'s' * (most + 1)}</serial>").replace("'virtio'", f"'{bus}'")),
            f"{DEVICES}/disk/serial",
        )
        for bus, most in MAX_SERIAL.items()
    },
    "too many disks": (document(DISK * 33), f"{DEVICES}/disk[33]"),
    **{
        f"an interface of type {kind}": (document(f"<interface type='{kind}'/>"), f"{DEVICES}/interface/@type")
        for kind in (
            "network",
            "bridge",
            "direct",
            "user",
            "vhostuser",
            "hostdev",
            "udp",
            "mcast",
            "server",
            "client",
            "vdpa",
            "internal",
            "",
        )
    },
    **{
        f"an interface with {name}": (document(INTERFACE.replace("<model", f"<{name}/><model")), f"{DEVICES}/interface/{name}")
        for name in (
            "script",
            "downscript",
            "backend",
            "bandwidth",
            "filterref",
            "virtualport",
            "vlan",
            "ip",
            "route",
            "source",
            "mtu",
            "tune",
        )
    },
    "a tap of another": (document(INTERFACE.replace("@network:default@", "eth0")), f"{DEVICES}/interface/target/@dev"),
    "a tap that libvirt makes": (document(INTERFACE.replace(" managed='no'", "")), f"{DEVICES}/interface/target/@managed"),
    "an address of its gateway": (
        document(INTERFACE.replace("@mac:default@", "02:00:00:00:00:01")),
        f"{DEVICES}/interface/mac/@address",
    ),
    "an address of a group": (document(INTERFACE.replace("@mac:default@", "01:00:5e:00:00:01")), f"{DEVICES}/interface/mac/@address"),
    "a file of ROM": (document(INTERFACE.replace("<model", "<rom file='/etc/shadow'/><model")), f"{DEVICES}/interface/rom/@file"),
    "vhost": (document(INTERFACE.replace("<model", "<driver name='vhost'/><model")), f"{DEVICES}/interface/driver/@name"),
    **{
        f"a serial port of type {kind}": (document(f"<serial type='{kind}'/>"), f"{DEVICES}/serial/@type")
        for kind in ("tcp", "udp", "file", "dev", "pipe", "stdio", "vc", "nmdm", "spiceport", "dbus", "qemu-vdagent", "")
    },
    "a socket elsewhere": (document(SERIAL.replace("@serial@", "/run/kubevirt/launcher.sock")), f"{DEVICES}/serial/source/@path"),
    "a socket of somebody else": (document(SERIAL.replace("'bind'", "'connect'")), f"{DEVICES}/serial/source/@mode"),
    "a log of a port": (document(SERIAL.replace("<source", "<log file='/x'/><source")), f"{DEVICES}/serial/log"),
    "one socket for two ports": (document(SERIAL * 2), f"{DEVICES}/serial[2]"),
    "a file of a console": (document("<console type='file'/>"), f"{DEVICES}/console/@type"),
    "a parallel port": (document("<parallel type='dev'/>"), f"{DEVICES}/parallel"),
    "a channel to the network": (document("<channel type='tcp'/>"), f"{DEVICES}/channel/@type"),
    "a channel of guestfwd": (
        document(
            "<channel type='unix'><source mode='bind' path='@agent@'/><target type='guestfwd' address='10.0.0.1' port='1'/></channel>"
        ),
        f"{DEVICES}/channel/target/@address",
    ),
    "clipboards without SPICE": (
        document("<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>"),
        f"{DEVICES}/channel",
    ),
    "a display on a port": (document("<graphics type='vnc' port='5900'/>"), f"{DEVICES}/graphics/@port"),
    "a display on any port": (document("<graphics type='vnc' autoport='yes'/>"), f"{DEVICES}/graphics/@autoport"),
    "a display on the network": (document("<graphics type='vnc' listen='0.0.0.0'/>"), f"{DEVICES}/graphics/@listen"),
    "a display that listens to a port": (
        document("<graphics type='vnc'><listen type='address' address='0.0.0.0'/></graphics>"),
        f"{DEVICES}/graphics/listen/@address",
    ),
    "a password of a display": (document("<graphics type='vnc' passwd='x'/>"), f"{DEVICES}/graphics/@passwd"),
    "a socket of a display": (
        document("<graphics type='vnc'><listen type='socket' socket='/x'/></graphics>"),
        f"{DEVICES}/graphics/listen/@socket",
    ),
    **{
        f"a display of type {kind}": (document(f"<graphics type='{kind}'/>"), f"{DEVICES}/graphics/@type")
        for kind in ("sdl", "rdp", "desktop", "egl-headless", "dbus", "")
    },
    "OpenGL of the node": (
        document("<graphics type='spice'><listen type='socket' socket='@spice@'/><gl enable='yes'/></graphics>"),
        f"{DEVICES}/graphics/gl",
    ),
    "much video memory": (document("<video><model type='vga' vram='99999999'/></video>"), f"{DEVICES}/video/model/@vram"),
    "video of another process": (document("<video><driver name='vhostuser'/><model type='virtio'/></video>"), f"{DEVICES}/video/driver"),
    "acceleration": (
        document("<video><model type='virtio'><acceleration accel3d='yes'/></model></video>"),
        f"{DEVICES}/video/model/acceleration",
    ),
    "random bytes of a socket": (
        document("<rng model='virtio'><backend model='egd' type='tcp'/></rng>"),
        f"{DEVICES}/rng/backend/@model",
    ),
    "random bytes of a file": (
        document("<rng model='virtio'><backend model='random'>/etc/shadow</backend></rng>"),
        f"{DEVICES}/rng/backend",
    ),
    "a TPM of the node": (document(tpm("><device path='/dev/tpm0'/>", "passthrough")), f"{DEVICES}/tpm/backend/@type"),
    "a TPM of an old version": (document(tpm("version='1.2'>")), f"{DEVICES}/tpm/backend/@version"),
    "a TPM of no version": (document(tpm(">")), f"{DEVICES}/tpm/backend/@version"),
    "a TPM with a secret": (document(tpm("version='2.0'><encryption secret='x'/>")), f"{DEVICES}/tpm/backend/encryption"),
    "a TPM with a file": (document(tpm("version='2.0'><source type='file' path='/x'/>")), f"{DEVICES}/tpm/backend/source"),
    "a TPM that writes a log": (document(tpm("version='2.0' debug='3'>")), f"{DEVICES}/tpm/backend/@debug"),
    "a TPM of another machine": (document(tpm("version='2.0'>", model="spapr-tpm-proxy")), f"{DEVICES}/tpm/@model"),
    "two TPMs": (document(tpm("version='2.0'>") * 2), f"{DEVICES}/tpm[2]"),
    "a TPM whose state nobody finds": (
        document(tpm("version='2.0'>")).replace("<uuid>@uuid@</uuid>", ""),
        "/domain/uuid",
    ),
    "an input of the node": (document("<input type='evdev'/>"), f"{DEVICES}/input/@type"),
    "a watchdog that dumps": (document("<watchdog model='i6300esb' action='dump'/>"), f"{DEVICES}/watchdog/@action"),
    **{
        f"the device {name}": (document(f"<{name}/>"), f"{DEVICES}/{name}")
        for name in (
            "hostdev",
            "filesystem",
            "redirdev",
            "redirfilter",
            "smartcard",
            "vsock",
            "lease",
            "hub",
            "iommu",
            "nvram",
            "crypto",
            "pstore",
        )
    },
    "a driver of a controller": (
        document("<controller type='scsi' model='virtio-scsi'><driver iommu='on'/></controller>"),
        f"{DEVICES}/controller/driver/@iommu",
    ),
    "a controller of another": (document("<controller type='xenbus'/>"), f"{DEVICES}/controller/@type"),
    "a feature of no model": (document(inside="<cpu><feature policy='require' name='aes'/></cpu>"), "/domain/cpu/model"),
    "no model": (document(inside="<cpu mode='custom'/>"), "/domain/cpu/model"),
    "a model beside the node's": (document(inside="<cpu mode='host-passthrough'><model>Nehalem</model></cpu>"), "/domain/cpu/model"),
    "a model that is to migrate": (document(inside="<cpu migratable='on'/>"), "/domain/cpu/@migratable"),
    "a cache of some level": (document(inside="<cpu><cache mode='emulate'/></cpu>"), "/domain/cpu/cache/@level"),
    "a cache of the node": (document(inside="<cpu><cache mode='passthrough'/></cpu>"), "/domain/cpu/cache/@mode"),
    "queues of no virtio": (
        document("<controller type='scsi' model='lsilogic'><driver queues='2'/></controller>"),
        f"{DEVICES}/controller/driver",
    ),
    "IDE in a q35": (document("<controller type='ide'/>"), f"{DEVICES}/controller/@type"),
    "a disk of IDE in a q35": (document(disk(bus="ide")), f"{DEVICES}/disk/target/@bus"),
    "a tablet of PS/2": (document("<input type='tablet' bus='ps2'/>"), f"{DEVICES}/input/@bus"),
    "words of a BIOS to nobody": (document(system=f"{OPERATING}<bios useserial='yes'/>"), "/domain/os/bios/@useserial"),
    "a time zone that is none": (document(inside="<clock offset='timezone' timezone='Europe/Berln'/>"), "/domain/clock/@timezone"),
    "a time zone without a name": (document(inside="<clock offset='timezone'/>"), "/domain/clock/@timezone"),
    "a name of many lines": (document(inside="<title>a\nb</title>"), "/domain/title"),
}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((each, f"U+{ord(each):04X}") for each in MISLEADING),
        *((f"&#{ord(each)};", f"U+{ord(each):04X}") for each in f"{MISLEADING}\x7f\x85\x9b"),
    ],
)
def test_misleading_characters_are_refused_with_their_path(text: str, named: str) -> None:
    inside = (
        f"<title>a{text}</title><description>{text}</description>"
        f"<metadata><x:v xmlns:x='http://example.com/' b='{text}'><x:w>{text}</x:w></x:v></metadata>"
    )
    found = {each.path: each.text for each in reading.problems_of(document(inside=inside))}
    assert list(found) == ["/domain/title", "/domain/description", "/domain/metadata/v/@b", "/domain/metadata/v/w"]
    assert all(named in each for each in found.values())


def test_a_control_character_is_told_with_its_line() -> None:
    (problem,) = reading.problems_of("<domain>\n\n<!-- \x1b]0;x\x07 --></domain>")
    assert str(problem) == "line 3: must not have control characters such as U+001B"


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_xml_is_refused_with_its_line(name: str) -> None:
    text, told = UNREADABLE[name]
    (problem,) = reading.problems_of(text)
    assert problem.path.startswith("line ")
    assert told in problem.text


@pytest.mark.parametrize("name", REFUSED)
def test_disallowed_xml_is_refused_with_its_path(name: str) -> None:
    text, place = REFUSED[name]
    assert place in [each.path for each in reading.problems_of(text)]
    with pytest.raises(parsing.Malformed):
        reading.read(text)


def test_the_document_of_the_corpus_is_allowed() -> None:
    assert reading.problems_of(document(DISK + INTERFACE + SERIAL)) == ()


def test_few_of_many_problems_are_told() -> None:
    assert len(reading.problems_of(document("<hostdev/>" * 2000))) == 50
    assert len(reading.problems_of(document("x" * 200 + "<hostdev/>"))) == 1


def test_a_problem_is_short_whatever_the_names_are() -> None:
    for problem in reading.problems_of(document(f"<{'x' * 30_000}/>", attributes=f"type='qemu' {'y' * 20_000}=''")):
        assert len(str(problem)) < 1000
