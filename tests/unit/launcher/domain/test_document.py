from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.virt.hardware import features
from launcher.domain import copied_disks, disk_origins, document, migratability, passt
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.domain.document import to_xml
from launcher.domain.values import InvalidSpecification

GOLDEN = Path(__file__).parents[3] / "golden" / "domain"
CLAIM: dict[str, Any] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
NBD: dict[str, Any] = {"name": "data", "type": "NBD", "source": {"host": "nbd.example", "port": 10810, "export": "vms/a=1"}}
IMAGE: dict[str, Any] = {"name": "image", "type": "Image", "source": {"reference": "example/disk"}}
CACHED: dict[str, Any] = {**CLAIM, "driver": {"cache": "writeback"}}
FILESYSTEMS: Any = [
    {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "Shared"}},
    {"name": "settings", "type": "ConfigMap", "source": {"name": "settings"}},
]
KERNEL: Any = {
    "container": {"image": "x", "kernelPath": "/boot/vmlinuz", "initrdPath": "boot/initrd"},
    "kernelArgs": "quiet <&>",
}
FEATURES: Any = [{"name": "avx2"}, *({"name": f"f-{each}", "policy": each} for each in ("force", "optional", "disable", "forbid"))]
DEDICATED: Any = {"threads": 2, "features": FEATURES, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
FOR_WINDOWS: Any = {
    "apic": {"endOfInterrupt": True},
    "hyperv": {
        **{name: {} for name in features.HYPERV},
        "spinlocks": {"spinlocks": 8191},
        "vendorid": {"vendorid": "a vendor"},
        "reset": {"enabled": False},
    },
    "kvm": {"hidden": True},
    "pvspinlock": {},
    "smm": {"enabled": True},
}
CLOCK: Any = {
    "utc": {"offsetSeconds": -3600},
    "timer": {
        "hpet": {"present": True},
        "hyperv": {},
        "kvm": {"present": False},
        "pit": {"tickPolicy": "discard"},
        "rtc": {"tickPolicy": "delay", "track": "guest"},
    },
}
OFF: Any = {
    "acpi": {"enabled": False},
    "apic": {"endOfInterrupt": False},
    "hyperv": {"spinlocks": {}, "relaxed": {"enabled": False}},
    "kvm": {"hidden": False},
    "pvspinlock": {"enabled": False},
    "smm": {"enabled": False},
}
LIMITS_OF_BOTH: Any = {"totalBytesSec": "10Mi", "totalBytesSecMax": "20Mi", "totalIopsSec": 100, "totalIopsSecMax": 1000}
LIMITS_OF_EACH: Any = {
    f"{direction}{name}": value
    for direction in ("read", "write")
    for name, value in {"BytesSec": "1M", "BytesSecMax": "2M", "IopsSec": 10, "IopsSecMax": 20}.items()
}
TAP = Tap("52:54:00:00:00:02", "tap0")


def defined(
    accelerator: str = "qemu",
    taps: tuple[Tap, ...] = (),
    found: dict[str, Found] | None = None,
    processors: tuple[int, ...] = (),
    environment: dict[str, str] | None = None,
    nodes: dict[int, int] | None = None,
    **specification: Any,
) -> Definition:
    whole = {"memory": {"guest": "512Mi"}, **specification}
    return Definition("default", "testvm", "u-1", whole, accelerator, taps, found or {}, processors, nodes or {}, environment or {})


def xml(**arguments: Any) -> ET.Element:
    return ET.fromstring(to_xml(defined(**arguments)))


def with_disks(*items: dict[str, Any], **found: Found) -> ET.Element:
    return xml(devices={"disks": list(items)}, found=found)


def a_plugin_disk(name: str, **served: Any) -> dict[str, Any]:
    return {"name": name, "type": "Plugin", "source": {"plugin": "p", "served": {"export": "", "liveMigration": False, **served}}}


CASES = {
    "smallest": defined(),
    "kernel-boot-without-devices": defined(firmware={"kernelBoot": KERNEL}, devices={"graphics": [], "interfaces": [], "consoles": []}),
    "slides": defined(
        accelerator="kvm",
        taps=(TAP,),
        devices={
            "disks": [{**CLAIM, "device": "disk", "target": {"bus": "virtio"}}],
            "graphics": [{"type": "spice"}],
            "consoles": [{"type": "pty"}],
        },
        found={"root": Found(block=True)},
    ),
    "processors": defined(accelerator="kvm", processors=(2, 10, 3), cpu=DEDICATED),
    "processors-emulated": defined(cpu={"sockets": 1, "maxSockets": 3, "cores": 2, "threads": 2, "model": "EPYC", "features": FEATURES}),
    "room-and-queues": defined(
        taps=(TAP,),
        cpu={"sockets": 2, "maxSockets": 3, "cores": 2},
        memory={"guest": "512Mi", "maxGuest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
        ioThreads={"count": 1},
        devices={
            "disks": [CLAIM, {**CLAIM, "name": "busy", "dedicatedIOThread": True}, {**CLAIM, "name": "s", "target": {"bus": "scsi"}}],
            "blockMultiQueue": True,
            "networkInterfaceMultiqueue": True,
            "autoattachMemBalloon": False,
        },
    ),
    "memory-to-come": defined(memory={"guest": "512Mi", "maxGuest": "1025Mi"}),
    "numa": defined(
        cpu={
            "sockets": 2,
            "maxSockets": 3,
            "cores": 2,
            "numa": {"cells": [{"cpus": "4,0-1", "memory": "384Mi"}, {"cpus": "2-3,5", "memory": "131072Ki"}]},
        },
        memory={"guest": "512Mi", "maxGuest": "1Gi"},
    ),
    "numa-of-the-node": defined(
        accelerator="kvm",
        cpu={
            "cores": 3,
            "threads": 2,
            "dedicatedCpuPlacement": True,
            "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}},
        },
        memory={"guest": "1Gi"},
        processors=(2, 10, 3, 11, 4, 12, 6),
        nodes={2: 0, 10: 0, 3: 0, 11: 0, 4: 3, 12: 3, 6: 1},
    ),
    "windows": defined(accelerator="kvm", features=FOR_WINDOWS, clock=CLOCK),
    "windows-emulated": defined(features=FOR_WINDOWS, clock=CLOCK),
    "features-off": defined(accelerator="kvm", features=OFF, clock={"timezone": "Europe/Berlin"}),
    "emulated-card": defined(
        taps=(Tap("02:00:00:00:0e:01", "tap0", "e1000e", "lan"),),
        devices={"interfaces": [{"name": "lan", "model": "e1000e", "state": "down"}]},
    ),
    "every-kind-of-disk": defined(
        devices={
            "disks": [
                {**CLAIM, "bootOrder": 1, "serial": "abc-1"},
                {**IMAGE, "target": {"bus": "scsi"}},
                {**IMAGE, "name": "iso", "device": "cdrom", "source": {"path": "disk/boot.iso"}, "bootOrder": 2},
                {**CLAIM, "name": "data", "target": {"bus": "sata"}, "readOnly": True},
                {**CLAIM, "name": "scratch", "source": {"name": "s", "ephemeral": True}},
                {"name": "blank", "type": "EmptyDisk", "source": {"size": "1Gi"}, "target": {"bus": "usb"}},
                {"name": "drive", "device": "cdrom", "serial": "d-1"},
            ]
        },
        found={
            "image": Found(format="qcow2", direct=False),
            "data": Found(block=True),
            "scratch": Found(block=True),
        },
        cpu={"sockets": 2, "cores": 2, "threads": 1, "model": "Nehalem"},
        machine={"type": "pc"},
    ),
    "lun": defined(devices={"disks": [{**CLAIM, "device": "lun", "bootOrder": 1}]}, found={"root": Found(block=True)}),
    "disk-drivers": defined(
        devices={
            "disks": [
                {**CLAIM, "driver": {"cache": "directsync", "io": "native", "discard": "ignore", "detectZeroes": "on"}},
                {**CLAIM, "name": "cached", "driver": {"cache": "writeback", "io": "threads", "errorPolicy": "enospace"}},
                {**CLAIM, "name": "device", "driver": {"cache": "unsafe"}, "target": {"bus": "scsi"}, "wwn": "5000C500A1B2C3D4"},
                {**IMAGE, "ioTune": LIMITS_OF_BOTH, "blockSize": {"logical": 4096}},
                {**CLAIM, "name": "apart", "ioTune": LIMITS_OF_EACH, "blockSize": {"physical": 4096}, "readOnly": True},
                {**CLAIM, "name": "shared", "target": {"bus": "scsi"}, "shareable": True},
            ]
        },
        found={"image": Found(format="qcow2", direct=False), "device": Found(block=True), "apart": Found(direct=False)},
    ),
    "network-disks": defined(
        devices={
            "disks": [
                {**NBD, "driver": {"errorPolicy": "report", "cache": "writeback"}, "bootOrder": 1},
                {"name": "sums", "type": "NBD", "source": {"host": "2001:db8::10"}, "readOnly": True, "target": {"bus": "scsi"}},
                {"name": "unit", "type": "ISCSI", "source": {"targetPortal": "192.0.2.2", "iqn": "iqn.2026-01.example"}},
                {
                    "name": "lun",
                    "type": "ISCSI",
                    "source": {
                        "targetPortal": "[2001:db8::2]:860",
                        "iqn": "iqn.2026-01.example:vms.a",
                        "lun": 255,
                        "initiatorName": "iqn.2026-01.example:vm-1",
                        "secretRef": {"name": "chap"},
                    },
                    "target": {"bus": "scsi"},
                },
                {
                    "name": "itself",
                    "type": "ISCSI",
                    "device": "lun",
                    "source": {"targetPortal": "192.0.2.2", "iqn": "iqn.2026-01.example", "lun": 1},
                    "shareable": True,
                },
                {"name": "cd", "type": "NBD", "source": {"host": "192.0.2.1", "port": 1}, "device": "cdrom"},
                {"name": "image", "type": "RBD", "source": {"monitors": ["192.0.2.4"], "image": "vm-1"}},
                {
                    "name": "image-of-a-user",
                    "type": "RBD",
                    "source": {
                        "monitors": ["ceph-1.example:3300", "[2001:db8::4]"],
                        "pool": "vms",
                        "image": "vm-2",
                        "user": "vms",
                        "secretRef": {"name": "key"},
                    },
                    "readOnly": True,
                    "target": {"bus": "scsi"},
                },
                {"name": "file", "type": "NFS", "source": {"host": "192.0.2.3", "path": "/vms/a b,c.img"}},
                {
                    "name": "file-of-somebody",
                    "type": "NFS",
                    "source": {"host": "2001:db8::3", "path": "/vms/d.img", "identity": {"user": 1000, "group": 0}},
                    "shareable": True,
                },
                {"name": "tls", "type": "NBD", "source": {"host": "192.0.2.1", "tlsSecretRef": {"name": "c"}}},
                {
                    "name": "tls-of-another",
                    "type": "NBD",
                    "source": {"host": "192.0.2.1", "export": "a", "tlsSecretRef": {"name": "c"}, "tlsHostname": "nbd.example"},
                },
            ]
        },
    ),
    "plugin-disks": defined(
        devices={
            "disks": [
                a_plugin_disk("data", protocol="nbd", size=1 << 30, export="vms/a"),
                {**a_plugin_disk("kept", protocol="nbd", size=512), "readOnly": True, "target": {"bus": "scsi"}},
                {**a_plugin_disk("image", protocol="file", size=1 << 20), "bootOrder": 1, "driver": {"cache": "writeback"}},
                {**a_plugin_disk("cd", protocol="file", size=2048), "device": "cdrom"},
            ]
        },
        found={"image": Found(direct=False)},
    ),
    "host-disks": defined(
        devices={
            "disks": [
                {"name": "data", "type": "HostDisk", "source": {"path": "/var/vms/a.img", "create": {"size": "1Gi"}}},
                {"name": "kept", "type": "HostDisk", "source": {"path": "/var/vms/b.img"}, "readOnly": True, "target": {"bus": "scsi"}},
            ]
        },
    ),
    "further-devices": defined(
        devices={
            "graphics": [],
            "video": {"type": "bochs", "vram": "32Mi"},
            "inputs": [{"type": "keyboard"}, {"type": "tablet", "bus": "virtio"}, {"type": "mouse", "bus": "virtio"}],
            "sound": {"model": "ac97"},
            "watchdog": {"action": "poweroff"},
            "rng": {"rate": {"bytes": 4096, "period": 500}},
        },
    ),
    "host-devices": defined(
        devices={
            "graphics": [],
            "gpus": [{"name": "gpu", "deviceName": "nvidia.com/A10"}, {"name": "part", "deviceName": "nvidia.com/GRID_A10-4Q"}],
            "hostDevices": [{"name": "one", "deviceName": "intel.com/qat"}, {"name": "two", "deviceName": "intel.com/qat"}],
        },
        environment={
            "PCI_RESOURCE_NVIDIA_COM_A10": "0000:41:00.0",
            "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_A10-4Q": "5D307CA9-b3ef-428c-8861-06e72d69f223",
            "PCI_RESOURCE_INTEL_COM_QAT": "0000:3d:01.0,0000:3d:1f.7",
        },
    ),
    "filesystems": defined(devices={"graphics": [], "filesystems": FILESYSTEMS}),
    "filesystems-with-hugepages": defined(
        memory={"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}, devices={"graphics": [], "filesystems": FILESYSTEMS[:1]}
    ),
    "further-networks": defined(
        devices={
            "graphics": [],
            "hostDevices": [{"name": "one", "deviceName": "intel.com/qat"}],
            "interfaces": [
                {"name": "default"},
                {"name": "lan", "network": "lan"},
                {"name": "card", "type": "sriov", "network": "default/fast", "deviceName": "intel.com/sriov"},
            ],
        },
        taps=(Tap("02:00:00:00:0e:01", "tap0", "virtio"), Tap("02:00:00:00:0e:02", "tap094a367b02", "virtio")),
        environment={"PCIDEVICE_INTEL_COM_SRIOV": "0000:18:02.2", "PCI_RESOURCE_INTEL_COM_QAT": "0000:3d:01.0"},
    ),
    "macvtap": defined(
        devices={
            "graphics": [],
            "interfaces": [{"name": "lan", "type": "macvtap", "network": "lan", "state": "down"}],
            "networkInterfaceMultiqueue": True,
        },
        cpu={"cores": 2},
        taps=(Tap("02:00:00:00:0e:02", "tap094a367b02", "virtio", "lan"),),
    ),
    "passt": defined(
        devices={
            "graphics": [],
            "interfaces": [
                {"name": "default", "type": "passt", "ports": [{"port": 22}, {"port": 53, "protocol": "UDP"}]},
                {"name": "lan", "network": "lan"},
            ],
            "networkInterfaceMultiqueue": True,
        },
        cpu={"cores": 2},
        taps=(Tap("02:00:00:00:0E:01", "", "virtio", "default"), Tap("02:00:00:00:0e:02", "tap094a367b02", "virtio", "lan")),
    ),
    "vsock": defined(devices={"graphics": [], "vsock": {}}),
    "redirected-devices": defined(
        devices={
            "inputs": [{"type": "keyboard"}, {"type": "mouse"}],
            "redirectedDevices": {
                "slots": 3,
                "filter": [{"class": "0x08", "allow": False}, {"vendor": "0x1050", "product": "0x0407"}, {"class": "0x0B"}],
            },
        },
    ),
    "virtio-video": defined(
        devices={
            "graphics": [{"type": "vnc"}, {"type": "spice"}],
            "video": {"type": "virtio", "heads": 2},
            "inputs": [],
            "sound": {},
            "rng": {"model": "none"},
            "panic": {"model": "none"},
            "consoles": [{"type": "pty"}, {"type": "pty"}],
        },
    ),
    "disks-made-in-the-pod": defined(
        devices={
            "disks": [
                {"name": "seed", "type": "CloudInitNoCloud", "device": "cdrom", "source": {"userData": "#cloud-config"}},
                {"name": "drive", "type": "CloudInitConfigDrive", "source": {}},
                {"name": "answers", "type": "Secret", "source": {"name": "s"}, "target": {"bus": "scsi"}, "bootOrder": 1},
                {"name": "config", "type": "ConfigMap", "device": "disk", "readOnly": False, "source": {"name": "c"}, "serial": "c1"},
                {"name": "fields", "type": "DownwardAPI", "source": {"items": []}, "target": {"bus": "usb"}},
                {"name": "account", "type": "ServiceAccount", "source": {"name": "robot"}, "device": "disk"},
            ]
        },
        found={"seed": Found(direct=False)},
    ),
    "persistent-uefi-and-tpm": defined(
        firmware={
            "serial": "s-1",
            "system": {"manufacturer": "A, B", "product": "p", "version": "v", "sku": "k", "family": "f"},
            "bootloader": {"efi": {"secureBoot": False, "persistent": True}},
            "persistentState": {"claimName": "c"},
            "kernelBoot": KERNEL,
        },
        chassis={"manufacturer": "m", "version": "v", "serial": "s", "asset": "a", "sku": "k"},
        devices={"tpm": {"persistent": True}},
    ),
    "secure-boot": defined(firmware={"bootloader": {"efi": {}}}, devices={"tpm": {}}),
    "bios-on-the-serial-port": defined(firmware={"bootloader": {"bios": {"useSerial": True}}}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_document_is_the_golden_one(name: str) -> None:
    path = GOLDEN / f"{name}.xml"
    text = to_xml(CASES[name]) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_name_and_uuid_depend_on_the_object_alone() -> None:
    first, second = to_xml(defined()), to_xml(defined(taps=(TAP,)))
    assert ET.fromstring(first).findtext("uuid") == ET.fromstring(second).findtext("uuid") == document.domain_uuid("u-1", {})
    assert document.domain_uuid("u-2", {}) != document.domain_uuid("u-1", {})
    assert ET.fromstring(first).findtext("name") == "default_testvm"


def test_a_uuid_asked_for_is_taken() -> None:
    wanted = str(uuid.uuid4())
    assert xml(firmware={"uuid": wanted}).findtext("uuid") == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512Mi", 512 << 20), ("1G", 10**9), ("1.5Gi", 3 << 29), ("1000000000", 10**9), ("1.0001k", 1001), ("64k", 64000)],
)
def test_memory_is_a_quantity_in_bytes(text: str, expected: int) -> None:
    assert xml(memory={"guest": text}).findtext("memory") == str(expected)


@pytest.mark.parametrize(
    "specification",
    [
        {"memory": {"guest": "much"}},
        {"memory": {"guest": "-1Gi"}},
        {"firmware": {"uuid": "no"}},
        {"firmware": {"kernelBoot": {"container": {"kernelPath": "../../etc/passwd"}}}},
        {"firmware": {"kernelBoot": {"container": {"kernelPath": ""}}}},
        {"firmware": {"kernelBoot": {"container": {"kernelPath": "vmlinuz"}, "kernelArgs": "a\nb"}}},
        {"machine": {"type": "q35' foo='"}},
        {"cpu": {"model": "<cpu>"}},
        {"firmware": {"serial": "a\n"}},
        {"firmware": {"system": {"product": ""}}},
        {"chassis": {"asset": "a" * 65}},
        {"firmware": {"uuid": "../x", "bootloader": {"efi": {"persistent": True}}}},
        {"cpu": {"cores": -1}},
        {"cpu": {"numa": {"guestMappingPassthrough": {}}}},
        {"cpu": {"numa": {"cells": [{"cpus": "0-", "memory": "512Mi"}]}}},
        {"cpu": {"numa": {"cells": [{"cpus": "1", "memory": "512Mi"}]}}},
        {"cpu": {"numa": {"cells": [{"cpus": "0", "memory": "511Mi"}]}}},
        {"cpu": {"numa": {"cells": [{"cpus": "0", "memory": "more"}]}}},
        {"cpu": {"cores": 2, "numa": {"cells": [{"cpus": "0", "memory": "512Mi"}, {"cpus": "1", "memory": "0"}]}}},
        {"cpu": {"numa": {"cells": [{"cpus": "0", "memory": "256Mi"}, {"cpus": "0", "memory": "256Mi"}]}}},
        {"memory": {"maxGuest": "more"}},
        {"memory": {"hugepages": {"pageSize": "4Ki"}}},
        {"ioThreads": {"count": -1}},
        {"clock": {"timezone": "../../etc/passwd"}},
        {"clock": {"timezone": "/etc/passwd"}},
        {"clock": {"timezone": 5}},
        {"clock": {"timer": {"rtc": {"track": "<x>"}}}},
        {"cpu": {"features": [{"name": "<f>"}]}},
        {"cpu": {"features": [{"name": "avx", "policy": "hope"}]}},
        {"devices": {"disks": [{**CLAIM, "name": "../x"}]}},
        {"devices": {"disks": [{**CLAIM, "name": ".."}]}},
        {"devices": {"disks": [{**CLAIM, "type": "HostPath"}]}},
        {"devices": {"disks": [{**CLAIM, "target": {"bus": "ide"}}]}},
        {"devices": {"disks": [{**CLAIM, "serial": "a,b=c"}]}},
        {"devices": {"disks": [CLAIM, CLAIM]}},
        {"devices": {"disks": [{"name": "x"}]}},
        {"devices": {"disks": [{**CLAIM, "device": "lun"}]}},
        {"devices": {"disks": [{"name": "x", "device": "cdrom", "source": {}}]}},
        {"devices": {"disks": [{**IMAGE, "source": {"path": "/etc/shadow"}}]}},
        {"devices": {"disks": [{**IMAGE, "source": {"path": "a/../../b"}}]}},
        {"devices": {"disks": [{**IMAGE, "device": "cdrom", "target": {"bus": "virtio"}}]}},
        {"devices": {"interfaces": [{"name": each, "type": "passt", "ports": []} for each in "ab"]}},
        {"devices": {"interfaces": [{"name": "a", "type": "passt", "network": "lan"}]}},
        {"devices": {"interfaces": [{"name": "a", "type": "passt", "ports": [{"port": 0}]}]}},
        {"devices": {"interfaces": [{"name": "a", "type": "passt", "ports": [{"port": "22,23"}]}]}},
        {"devices": {"interfaces": [{"name": "a", "type": "passt", "ports": [{"port": 22, "protocol": "SCTP"}]}]}},
        {"devices": {"filesystems": [{**FILESYSTEMS[0], "name": "../x"}]}},
        {"devices": {"filesystems": [FILESYSTEMS[0], FILESYSTEMS[0]]}},
        {"devices": {"filesystems": [{**FILESYSTEMS[0], "type": "HostPath"}]}},
        {"devices": {"graphics": [{"type": "vnc"}, {"type": "vnc"}]}},
        {"devices": {"graphics": [{"type": "sdl"}]}},
        {"devices": {"video": {"type": "qxl"}}},
        {"devices": {"video": {"type": "vga", "vram": "1Ti"}}},
        {"devices": {"video": {"type": "bochs", "vram": "much"}}},
        {"devices": {"video": {"type": "virtio", "heads": 17}}},
        {"devices": {"video": {"type": "virtio", "heads": "1"}}},
        {"devices": {"inputs": [{"type": "passthrough"}]}},
        {"devices": {"inputs": [{"type": "tablet", "bus": "xen"}]}},
        {"devices": {"sound": {"model": "es1370"}}},
        {"devices": {"vsock": {"model": "vmware"}}},
        {"devices": {"watchdog": {"model": "ib700"}}},
        {"devices": {"watchdog": {"action": "dump"}}},
        {"devices": {"rng": {"model": "'/>"}}},
        {"devices": {"rng": {"rate": {}}}},
        {"devices": {"rng": {"rate": {"bytes": 0}}}},
        {"devices": {"rng": {"rate": {"bytes": True}}}},
        {"devices": {"panic": {"model": ["isa"]}}},
        {"devices": {"consoles": [{"type": "dev"}]}},
        {"devices": {"redirectedDevices": {"slots": 5}}},
        {"devices": {"redirectedDevices": {"filter": [{"vendor": "0x1050' allow='yes"}]}}},
        {"devices": {"redirectedDevices": {"filter": [{"class": 8}]}}},
        {"devices": {"consoles": [{"type": "pty"}] * 5}},
    ],
    ids=str,
)
def test_invalid_specifications_are_refused(specification: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecification):
        to_xml(defined(**specification))


@pytest.mark.parametrize(
    "tap", [Tap("52:54:00", "tap0"), Tap("52:54:00:00:00:02", "../tap"), Tap("52:54:00:00:00:02", "tap0", "a'b")], ids=str
)
def test_interfaces_that_make_no_sense_are_refused(tap: Tap) -> None:
    with pytest.raises(InvalidSpecification):
        to_xml(defined(taps=(tap,)))


@given(st.text(max_size=30), st.text(max_size=30))
def test_user_strings_add_no_elements_and_stay_in_directory(kernel: str, arguments: str) -> None:
    boot = {"kernelBoot": {"container": {"kernelPath": kernel}, "kernelArgs": arguments}}
    try:
        root = xml(firmware=boot)
    except InvalidSpecification:
        return
    assert [child.tag for child in root.findall("os/*")] == ["type", "kernel", *(["cmdline"] if arguments else [])]
    path = root.findtext("os/kernel") or ""
    assert os.path.normpath(path).startswith("/var/lib/kubevirt/kernel-boot/")


def test_disks_are_named_in_order_per_bus() -> None:
    items = [{**CLAIM, "name": f"d{index}"} for index in range(28)]
    names = [target.get("dev") for target in with_disks(*items).iter("target") if target.get("bus") == "virtio"]
    assert names[:2] == ["vda", "vdb"]
    assert names[25:] == ["vdz", "vdaa", "vdab"]


def test_block_claim_is_a_device_and_file_system_claim_a_file() -> None:
    root = with_disks(CLAIM, {**CLAIM, "name": "files"}, root=Found(block=True))
    block, file = root.findall("devices/disk")
    assert (block.get("type"), block.find("source").attrib) == ("block", {"dev": "/dev/kubevirt-disks/root"})  # type: ignore[union-attr]  # it is there
    assert (file.get("type"), file.find("source").attrib) == ("file", {"file": "/var/lib/kubevirt/disks/files/disk.img"})  # type: ignore[union-attr]  # it is there


def test_writable_image_gets_an_overlay_copied_on_migration() -> None:
    specification = {"devices": {"disks": [IMAGE]}}
    assert str(disk_origins.origins(specification)[0].overlay) == "/var/lib/kubevirt/overlays/image.qcow2"
    assert copied_disks.names(specification) == ("image",)
    assert disk_origins.not_migratable(specification) == ""
    assert copied_disks.names({"devices": {"disks": [{**IMAGE, "readOnly": True}, CLAIM]}}) == ()


@pytest.mark.parametrize(
    ("specification", "words"),
    [
        ({"firmware": {"bootloader": {"efi": {}}}, "devices": {"tpm": {}}}, []),
        ({"firmware": {"bootloader": {"efi": {"persistent": True}}}}, ["UEFI"]),
        ({"devices": {"tpm": {"persistent": True}, "disks": [CACHED]}}, ["TPM", "the disk 'root'"]),
    ],
)
def test_all_that_keeps_a_domain_from_migrating_is_told(specification: dict[str, Any], words: list[str]) -> None:
    found = migratability.not_migratable(specification)
    assert all(word in found for word in words)
    assert bool(found) is bool(words)


def test_only_the_emulator_has_a_translation_cache() -> None:
    assert xml().findtext("features/tcg/tb-cache") == "64"
    assert xml(accelerator="kvm").find("features/tcg") is None


@pytest.mark.parametrize("own", [(), (1,), (1, 2, 3)])
def test_processors_of_its_own_that_the_pod_has_not_are_told(own: tuple[int, ...]) -> None:
    with pytest.raises(InvalidSpecification, match=rf"^cpu\.dedicatedCpuPlacement: .* needs 2 .* may use {len(own)}:"):
        to_xml(defined(cpu={"cores": 2, "dedicatedCpuPlacement": True}, processors=own))


def test_emulator_shares_the_processors_unless_isolated() -> None:
    root = xml(cpu={"cores": 2, "dedicatedCpuPlacement": True}, processors=(4, 5))
    assert [each.attrib for each in root.findall("cputune/*")] == [
        {"vcpu": "0", "cpuset": "4"},
        {"vcpu": "1", "cpuset": "5"},
        {"cpuset": "4,5"},
    ]
    assert xml(cpu={"cores": 2, "isolateEmulatorThread": True}, processors=(4, 5)).find("cputune") is None


def test_too_little_memory_for_the_pods_numa_nodes_is_reported() -> None:
    def cells(guest: str) -> list[str]:
        cpu = {"cores": 2, "dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}}
        root = xml(cpu=cpu, memory={"guest": guest}, processors=(1, 2), nodes={1: 0, 2: 1})
        return [each.get("memory", "") for each in root.findall("cpu/numa/cell")]

    assert cells("32Mi") == [str(16 << 20)] * 2
    with pytest.raises(InvalidSpecification, match=r"^cpu\.numa\.guestMappingPassthrough: the pod's processors are on 2 NUMA nodes"):
        cells("31Mi")


def test_only_a_token_disk_prevents_migration_of_made_disks() -> None:
    made = CASES["disks-made-in-the-pod"].specification["devices"]["disks"]
    assert "the token on the disk 'account'" in disk_origins.not_migratable({"devices": {"disks": made}})
    assert disk_origins.not_migratable({"devices": {"disks": [each for each in made if each["name"] != "account"]}}) == ""


def test_processors_of_its_own_are_not_those_of_another_node() -> None:
    assert "processors" in migratability.not_migratable({"cpu": {"dedicatedCpuPlacement": True}})


def test_words_that_only_kvm_writes_are_checked_too() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"features": {"hyperv": {"vendorid": {"vendorid": "a,b=c"}}}},
        {"clock": {"timer": {"pit": {"tickPolicy": "a'b"}}}},
        {"clock": {"timer": {"rtc": {"tickPolicy": "<"}}}},
    )
    for specification in wrong:
        with pytest.raises(InvalidSpecification):
            to_xml(defined(accelerator="kvm", **specification))


def test_fields_without_effect_under_emulation_are_reported() -> None:
    emulated = document.left_out(CASES["windows-emulated"])
    assert {"clock.timer.hyperv", "clock.timer.kvm", "clock.timer.rtc.tickPolicy", "features.kvm", "features.hyperv.evmcs"} <= set(emulated)
    assert not {"clock.timer.hpet.tickPolicy", "features.smm", "features.acpi", "features.hyperv.reset"} & set(emulated)
    assert document.left_out(CASES["windows"]) == document.left_out(CASES["smallest"]) == ()


def test_q35_has_spare_ports_for_later() -> None:
    ports = xml().findall("devices/controller[@model='pcie-root-port']")
    more = xml(taps=(TAP,)).findall("devices/controller[@model='pcie-root-port']")
    assert len(more) == len(ports) + 1
    assert xml(machine={"type": "pc"}).findall("devices/controller[@model='pcie-root-port']") == []


@pytest.mark.parametrize(
    ("devices", "ports"),
    [
        ({"inputs": [{"type": "tablet", "bus": "virtio"}, {"type": "mouse", "bus": "virtio"}]}, 2),
        ({"inputs": [{"type": "tablet"}, {"type": "mouse"}]}, 1),
        ({"watchdog": {}}, 0),  # libvirt adds a bridge with a port of its own
        ({"autoattachMemBalloon": False}, -1),
        ({"vsock": {}}, 1),
        ({"filesystems": FILESYSTEMS}, 2),
        ({"sound": {"model": "ac97"}}, 0),
        ({"sound": {}}, 0),
        ({"rng": {"model": "none"}}, -1),
    ],
    ids=str,
)
def test_each_further_device_has_the_port_that_it_needs(devices: dict[str, Any], ports: int) -> None:
    def count(**more: Any) -> int:
        return len(xml(devices={"graphics": [], **more}).findall("devices/controller[@model='pcie-root-port']"))

    assert count(**devices) == count() + ports


def test_pci_panic_device_of_a_pc_keeps_a_place_on_the_first_bus() -> None:
    """libvirt refuses the machine if 26 disks have taken all others."""
    address = xml(machine={"type": "pc"}).find("devices/panic[@model='pvpanic']/address")
    assert address is not None
    assert (address.get("bus"), address.get("slot")) == ("0x00", "0x1f")
    assert xml().find("devices/panic/address") is None


def test_a_guest_with_shared_file_systems_stays_on_its_node() -> None:
    assert "file system 'data'" in migratability.not_migratable({"devices": {"filesystems": FILESYSTEMS}})


def test_passt_guest_does_not_migrate() -> None:
    interface = {"name": "lan", "type": "passt", "ports": []}
    assert "interface 'lan' uses passt" in migratability.not_migratable({"devices": {"interfaces": [interface]}})
    assert migratability.not_migratable({"devices": {"interfaces": [{**interface, "type": "masquerade"}]}}) == ""


def test_the_ports_of_a_guest_are_told_by_their_protocol() -> None:
    ports = [{"port": 80}, {"port": 22, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]
    found = passt.settings({"devices": {"interfaces": [{"name": "a", "type": "passt", "ports": ports}]}})
    assert found == passt.Settings("a", {"TCP": (22, 80), "UDP": (80,)})
    assert passt.settings({}) is None


def test_a_shared_disk_never_comes_through_a_page_cache() -> None:
    devices = {"disks": [{**CLAIM, "name": "shared", "shareable": True}]}
    assert xml(devices=devices).find("devices/disk/driver[@cache='none']") is not None
    assert xml(devices=devices).find("devices/disk/shareable") is not None
    with pytest.raises(InvalidSpecification, match="does not support O_DIRECT"):
        to_xml(defined(devices=devices, found={"shared": Found(direct=False)}))


def on_buses(*buses: str) -> Any:
    disks = [
        {"name": f"d{place}", "type": "EmptyDisk", "source": {"size": "1Mi"}, "target": {"bus": bus}} for place, bus in enumerate(buses)
    ]
    return {"memory": {"guest": "256Mi"}, "devices": {"disks": disks, "interfaces": [], "graphics": []}}


@pytest.mark.parametrize(
    ("buses", "controllers"),
    [
        (["scsi"] * 7, 1),
        (["scsi"] * 8, 2),
        (["scsi"] * 26, 4),
        (["sata"] * 7 + ["scsi"], 2),
        (["usb"] * 3 + ["virtio"] * 20 + ["scsi"] * 4, 1),
        (["scsi"] + ["sata"] * 9, 1),
        (["sata"] * 9, 0),
    ],
    ids=str,
)
def test_every_scsi_disk_has_its_controller(buses: list[str], controllers: int) -> None:
    root = ET.fromstring(to_xml(Definition("ns", "n", "u", on_buses(*buses), "qemu")))
    found = [(each.get("index"), each.get("model")) for each in root.iterfind("devices/controller[@type='scsi']")]

    assert found == [(str(index), "virtio-scsi") for index in range(controllers)]
    names = [each.get("dev") for each in root.iterfind("devices/disk/target[@bus='scsi']")]
    assert {(ord(str(name)[2:]) - ord("a")) // 7 for name in names} <= set(range(controllers))
