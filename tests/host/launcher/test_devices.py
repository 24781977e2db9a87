from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.sandbox import Launcher, a_machine

pytestmark = pytest.mark.host


QCOW2 = b"QFI\xfb\0\0\0\x03"


def a_disk_image(path: Path, content: str, before: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((before + content.encode()).ljust(1 << 20, b"\0"))
    path.chmod(0o644)


def test_disks_of_every_kind_are_seen_by_the_guest(start: Callable[[], Launcher]) -> None:
    pod = start()
    a_disk_image(pod.disks / "claim/disk.img", "from-the-claim", QCOW2)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    a_disk_image(pod.images / "image/disk/disk.img", "from-the-image")
    a_disk_image(pod.images / "extra/disk/disk.img", "from-the-extra")
    subprocess.run(["chmod", "-R", "a+rX", pod.images], check=True)
    disks = [
        {"name": "claim", "type": "PersistentVolumeClaim", "source": {"name": "c"}, "serial": "claim-1"},
        {"name": "image", "type": "Image", "source": {"reference": "x"}},
        {"name": "extra", "type": "Image", "source": {"reference": "x"}, "target": {"bus": "scsi"}, "readOnly": True},
        {"name": "scratch", "type": "PersistentVolumeClaim", "source": {"name": "s", "ephemeral": True, "sizeLimit": "1Mi"}},
        {"name": "blank", "type": "EmptyDisk", "source": {"size": "3Mi"}},
        {"name": "created", "type": "PersistentVolumeClaim", "source": {"name": "n", "create": {"size": "5Mi"}}},
        {"name": "cd", "type": "PersistentVolumeClaim", "source": {"name": "c"}, "device": "cdrom", "target": {"bus": "sata"}},
        {"name": "drive", "device": "cdrom", "target": {"bus": "scsi"}},
    ]
    a_disk_image(pod.disks / "cd/disk.img", "from-the-cd")
    a_disk_image(pod.disks / "scratch/disk.img", "from-the-scratch", QCOW2)
    (pod.disks / "created").mkdir()
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    machine = a_machine(devices={"disks": disks, "graphics": [{"type": "vnc"}, {"type": "spice"}], "interfaces": []})
    with pod.client() as client, pod.console() as viewer:
        status = client.ask(messages.Sync(machine))
        assert status.not_migratable == ""
        viewer.expect("GUEST-READY")
        with never_again("wrong bytes"):
            assert viewer.sh("head -c 22 /dev/vda | tail -c 14; cat /sys/block/vda/serial") == "from-the-claimclaim-1"
            assert viewer.sh("head -c 14 /dev/vdb") == "from-the-image"
            assert viewer.sh("head -c 14 /dev/sda") == "from-the-extra"
            assert viewer.sh("head -c 24 /dev/vdc | tail -c 16") == "from-the-scratch"
        assert viewer.sh("cat /sys/block/vda/size /sys/block/vdc/size").split() == [f"{1 << 11}"] * 2
        assert viewer.sh("head -c 1 /dev/sr0").endswith(": No medium found")
        with never_again("wrong bytes"):
            assert viewer.sh("cat /sys/block/vdd/size; head -c 6 /dev/vdd | od -An -tx1") == f"{3 << 11}\n 00 00 00 00 00 00"
            assert viewer.sh("cat /sys/block/vde/size; head -c 6 /dev/vde | od -An -tx1") == f"{5 << 11}\n 00 00 00 00 00 00"
        for disk in "abcde":
            viewer.sh(f"echo written-over-it | dd of=/dev/vd{disk} conv=fsync")
        viewer.sh("echo 3 > /proc/sys/vm/drop_caches")
        with never_again("a lost write"):
            for disk in "bcde":
                assert viewer.sh(f"head -c 15 /dev/vd{disk}") == "written-over-it"
            assert (pod.disks / "created/disk.img").read_bytes().startswith(b"written-over-it")
            assert (pod.disks / "claim/disk.img").read_bytes().startswith(b"written-over-it")
        with never_again("wrong bytes"):
            assert (pod.disks / "scratch/disk.img").read_bytes().startswith(QCOW2 + b"from-the-scratch")
            assert (pod.images / "image/disk/disk.img").read_bytes().startswith(b"from-the-image")
        assert [each.name for each in (pod.disks / "created").iterdir()] == ["disk.img"]
        with pod.socket(layout.VNC_SOCKET) as vnc:
            assert vnc.recv(12) == b"RFB 003.008\n"
        pod.socket(layout.SPICE_SOCKET).close()
        refused = client.call(messages.Migrate("m1"))
        assert isinstance(refused, messages.Refusal)
        assert refused.reason == "Invalid"


def test_claim_without_image_is_named_and_the_pod_starts_later(start: Callable[[], Launcher]) -> None:
    pod = start()
    (pod.disks / "claim").mkdir()
    machine = a_machine(devices={"disks": [{"name": "claim", "type": "PersistentVolumeClaim", "source": {"name": "c"}}]})
    with pod.client() as client, pod.console() as viewer:
        for _ in range(2):
            answer = client.call(messages.Sync(machine))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, answer.disks, answer.status.ending) == ("NotReady", ("claim",), None)
        a_disk_image(pod.disks / "claim/disk.img", "from-the-claim")
        subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY")
        with never_again("wrong bytes"):
            assert viewer.sh("head -c 14 /dev/vda") == "from-the-claim"


def test_a_lun_is_all_that_qemu_asks_for_but_a_scsi_device(start: Callable[[], Launcher], tmp_path: Path) -> None:
    pod = start()
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    loop = subprocess.run(["losetup", "--find", "--show", tmp_path / "disk"], check=True, capture_output=True, text=True).stdout.strip()
    try:
        node = pod.devices / "raw"
        os.mknod(node, 0o600 | stat.S_IFBLK, Path(loop).stat().st_rdev)
        os.chown(node, layout.USER_ID, layout.USER_ID)
        disk = {"name": "raw", "type": "PersistentVolumeClaim", "device": "lun", "source": {"name": "raw"}}
        with pod.client() as client:
            answer = client.call(messages.Sync(a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})))
        assert isinstance(answer, messages.Refusal)
        assert "scsi-block" in answer.message
        assert "SG_IO" in answer.message
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)
