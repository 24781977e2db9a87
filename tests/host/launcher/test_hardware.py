from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from launcher.protocol import messages
from tests.guest_kernel import KERNEL_ARGS
from tests.host.launcher.sandbox import KERNEL_BOOT, NO_GRAPHICS, Launcher, Viewer, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(150)]
Start = Callable[[], Launcher]

UUID: Final = "5d307ca9-b3ef-428c-8861-06e72d69f223"
_PRINT: Final = bytes.fromhex("31c0 8ed8 fc baf803 be157c ac 84c0 7403 ee ebf8 f4 ebfd")
"""Intel 8086 code: write the following text to the first serial port, and halt. Every BIOS loads it at 0x7C00."""


ONE_CPU: Final = "maxcpus=1"
"""Eight emulated processors on two real ones boot for half a minute."""


NODES: Final = [{"cpus": "0-1,4-5", "memory": "128Mi"}, {"cpus": "6-7,2-3", "memory": "64Mi"}]


def processors_of_nodes(viewer: Viewer) -> list[str]:
    listed = viewer.sh("for node in /sys/devices/system/node/node?; do echo $(ls $node | grep '^cpu[0-9]' | tr -d cpu | sort -n); done")
    return [line.strip() for line in listed.splitlines()]


def memory_of_nodes(viewer: Viewer) -> list[float]:
    zones = viewer.sh("awk '/^Node/ {node = $2} $1 == \"present\" {print node, $2}' /proc/zoneinfo")
    found: dict[str, float] = {}
    for node, pages in (line.split() for line in zones.splitlines()):
        found[node] = found.get(node, 0) + int(pages) / 256
    return list(found.values())


def cores_of_sockets(viewer: Viewer) -> list[int]:
    table = bytes.fromhex(viewer.sh("od -An -v -tx1 /sys/firmware/dmi/tables/DMI").replace("\n", " "))
    found, at = [], 0
    while at < len(table):
        kind, length = table[at], table[at + 1]
        if kind == 4:
            found.append(table[at + 0x23])
        at = table.index(b"\0\0", at + length) + 2
    return found


def a_boot_sector(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(((_PRINT + text.encode()).ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))


def test_hardware_is_seen_by_the_guest(start: Start) -> None:
    pod = start()
    image = pod.images / "fixed/other/place.img"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"on-the-fixed-disk".ljust(1 << 20, b"\0"))
    drive = pod.disks / "cd/disk.img"
    drive.parent.mkdir()
    drive.write_bytes(bytes(1 << 20))
    subprocess.run(["chmod", "-R", "a+rX", pod.images], check=True)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    disks = [
        {"name": "fixed", "type": "Image", "source": {"reference": "x", "path": "other/place.img"}, "readOnly": True},
        {"name": "cd", "type": "PersistentVolumeClaim", "device": "cdrom", "source": {"name": "c"}, "target": {"bus": "scsi"}},
    ]
    machine = a_machine(
        cpu={"sockets": 2, "cores": 2, "threads": 2, "model": "Nehalem", "numa": {"cells": NODES}},
        memory={"guest": "192Mi"},
        machine={"type": "pc"},
        firmware={"uuid": UUID, "kernelBoot": {**KERNEL_BOOT, "kernelArgs": f"{KERNEL_ARGS} {ONE_CPU} said.to=the-kernel"}},
        devices={**NO_GRAPHICS, "disks": disks},
    )
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=120)
        assert viewer.sh("cat /sys/devices/system/cpu/possible") == "0-7"
        assert cores_of_sockets(viewer) == [2, 2]
        assert "Nehalem" in viewer.sh("grep -m 1 'model name' /proc/cpuinfo")
        assert 192 * 0.75 < int(viewer.sh("awk '/MemTotal/ {print $2}' /proc/meminfo")) / 1024 <= 192
        assert processors_of_nodes(viewer) == ["0 1 4 5", "2 3 6 7"]
        first, second = memory_of_nodes(viewer)
        assert 120 < first <= 128
        assert 60 < second <= 64
        assert "i440FX" in viewer.sh("cat /sys/class/dmi/id/product_name")
        assert viewer.sh("cat /sys/class/dmi/id/product_uuid").lower() == UUID
        assert "said.to=the-kernel" in viewer.sh("cat /proc/cmdline")
        assert viewer.sh("cat /sys/block/vda/ro; head -c 17 /dev/vda") == "1\non-the-fixed-disk"
        (kind,) = viewer.sh("cat /sys/bus/scsi/devices/*:*/type").split()
        assert kind == "5"  # a CD-ROM drive (SPC-4, table 139)


@pytest.mark.skipif(Path("/dev/vhost-vsock").exists(), reason="this machine has the device")
def test_missing_vsock_device_is_reported(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.Sync(a_machine(devices={**NO_GRAPHICS, "vsock": {}})))
        assert isinstance(answer, messages.Refusal)
        assert "vhost-vsock" in answer.message


def test_guest_boots_from_the_first_disk_of_the_order(start: Start) -> None:
    pod = start()
    a_boot_sector(pod.disks / "second/disk.img", "FROM-THE-SECOND")
    a_boot_sector(pod.disks / "first/disk.img", "FROM-THE-FIRST")
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    claim = {"type": "PersistentVolumeClaim", "source": {"name": "c"}}
    disks = [
        {"name": "second", **claim, "bootOrder": 2},
        {"name": "first", **claim, "bootOrder": 1, "target": {"bus": "sata"}},
    ]
    firmware = {"bootloader": {"bios": {"useSerial": True}}}
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(firmware=firmware, devices={**NO_GRAPHICS, "disks": disks})))
        assert "SeaBIOS" in viewer.expect("FROM-THE-")
        viewer.expect("FIRST")
