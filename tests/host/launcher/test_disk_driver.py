from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from launcher.protocol import messages
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MIB: Final = 1 << 20
WWN: Final = "5000c500a1b2c3d4"
DISKS: Final[list[dict[str, Any]]] = [
    {"name": "slow", "ioTune": {"writeBytesSec": "1Mi", "readIopsSec": 10}},
    {"name": "slower", "ioTune": {"totalBytesSec": "1Mi"}},
    {"name": "slowest", "ioTune": {"readBytesSec": "1Mi", "writeIopsSec": 10}},
    {"name": "counted", "ioTune": {"totalIopsSec": 10}},
    {"name": "kept", "driver": {"discard": "ignore", "detectZeroes": "on"}},
    {"name": "freed", "driver": {"detectZeroes": "unmap", "io": "threads"}},
    {"name": "full", "driver": {"errorPolicy": "report"}},
    {
        "name": "named",
        "target": {"bus": "scsi"},
        "wwn": WWN,
        "blockSize": {"logical": 4096, "physical": 8192},
        "driver": {"cache": "writethrough"},
    },
]


@pytest.fixture
def pod(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Launcher]:
    launchers = [Launcher(program, tmp_path / "pod", test_guest, disks="48m")]
    with sandbox.killed_afterwards(launchers):
        yield launchers[0]


def fill(pod: Launcher) -> Callable[[str], int]:
    for disk in DISKS:
        claim = pod.disks / disk["name"]
        claim.mkdir()
        image = claim / "disk.img"
        image.write_bytes(b"\xff" * 4 * MIB)
    with (pod.disks / "full/disk.img").open("wb") as image:
        image.truncate(256 * MIB)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    return lambda name: (pod.disks / name / "disk.img").stat().st_blocks * 512 // MIB


def seconds(viewer: Viewer, command: str) -> float:
    before, after = viewer.sh(f"cut -d ' ' -f 1 /proc/uptime; {command} 2>&1 | grep -v records; cut -d ' ' -f 1 /proc/uptime").split()
    return float(after) - float(before)


def test_drivers_blocks_and_limits_are_as_they_were_asked_for(pod: Launcher) -> None:
    taken = fill(pod)
    disks = [{"type": "PersistentVolumeClaim", "source": {"name": "c"}, **disk} for disk in DISKS]
    with pod.client() as client, pod.console() as viewer:
        status = client.ask(messages.Sync(a_machine(devices={**NO_GRAPHICS, "disks": disks})))
        assert status.not_migratable == "data of the disk 'named' may be only in the page cache of its node (driver.cache)"
        viewer.expect("GUEST-READY", seconds=120)

        queue = "/sys/block/sda/queue"
        assert viewer.sh(f"cat {queue}/logical_block_size {queue}/physical_block_size").split() == ["4096", "8192"]
        assert viewer.sh("cat /sys/block/sda/device/wwid") == f"naa.{WWN}"
        assert viewer.sh("cat /sys/block/sda/device/scsi_disk/*/cache_type") == "write through"

        # the last request passes at once, and so does a tenth of a second's worth
        assert seconds(viewer, "dd if=/dev/zero of=/dev/vda bs=1M count=4 conv=fsync") > 2
        assert seconds(viewer, "dd if=/dev/vda of=/dev/null bs=4k count=40 iflag=direct") > 2
        assert seconds(viewer, "dd if=/dev/zero of=/dev/vdb bs=1M count=4 conv=fsync") > 2
        assert seconds(viewer, "dd if=/dev/vdc of=/dev/null bs=1M count=4 iflag=direct") > 2
        assert seconds(viewer, "dd if=/dev/zero of=/dev/vdc bs=4k count=40 oflag=direct") > 2
        assert seconds(viewer, "dd if=/dev/vdd of=/dev/null bs=4k count=40 iflag=direct") > 2

        viewer.sh("blkdiscard -l 2097152 /dev/vde; blkdiscard -l 2097152 /dev/vdf")
        assert (taken("kept"), taken("freed")) == (4, 2)
        viewer.sh("dd if=/dev/zero of=/dev/vdf bs=1M seek=3 count=1 conv=fsync")
        assert taken("freed") == 1

        viewer.type("dd if=/dev/zero of=/dev/vdg bs=1M count=128 conv=fsync; echo WRI''TTEN $?\n")
        viewer.expect("WRITTEN 1", seconds=120)
        full = messages.DiskFault("full", full=True)
        assert client.until(lambda status: status.disk_faults == (full,)).domain == client.status.domain
        assert client.status.domain is not None
        assert client.status.domain.state == "running"
        subprocess.run(["mount", "-o", "remount,size=320m", pod.disks], check=True)
        client.until(lambda status: status.disk_faults == (), seconds=180)
