from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from handler.devices import host_disks
from handler.devices.ownership import NotTheDevice
from launcher.protocol import messages
from tests import system_calls
from tests.damage import never_again
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MIB = 1 << 20


def disk(path: Path, name: str = "data", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "HostDisk", "source": {"path": str(path), **more.pop("source", {})}, **more}


def owned(path: Path, content: bytes = b"") -> Path:
    path.write_bytes(content.ljust(MIB, b"\0"))
    os.chown(path, layout.USER_ID, layout.USER_ID)
    return path


@contextmanager
def of(pod: Launcher) -> Iterator[tuple[int, int]]:
    pod.socket(layout.LAUNCHER_SOCKET).close()
    process, root = os.pidfd_open(pod.process.pid), os.open(f"/proc/{pod.process.pid}/root", os.O_PATH | os.O_DIRECTORY)
    try:
        yield root, process
    finally:
        os.close(root)
        os.close(process)


def put(pod: Launcher, prefix: Path, *disks: dict[str, Any], created_bytes: int = 8 * MIB) -> None:
    for each in disks:
        (pod.disks / each["name"]).mkdir(exist_ok=True)
    with of(pod) as (root, process):
        allowed = host_disks.Allowed((str(prefix),), created_bytes)
        for file in host_disks.files({"devices": {"disks": list(disks)}}, allowed, "default"):
            host_disks.put(root, process, file, Path("/proc/self"))


def test_guest_has_its_host_files_and_the_pod_no_others(start: Callable[[], Launcher], tmp_path: Path) -> None:
    vms = tmp_path / "vms"
    vms.mkdir()
    there, kept, secret = (
        owned(vms / "there.img", b"of-the-node"),
        owned(vms / "kept.img", b"to-be-kept"),
        owned(vms / "other.img", b"secret"),
    )
    disks = [
        disk(there),
        disk(vms / "new.img", "new", source={"create": {"size": "3Mi"}}),
        disk(kept, "kept", readOnly=True, target={"bus": "scsi"}),
    ]
    pod, seen = start(), list[bool]()
    with system_calls.at(os.fsync, lambda: seen.append((vms / "new.img").exists())):
        put(pod, vms, *disks)
    assert seen == [False], "the file is durable before it has its name"
    put(pod, vms, *disks)
    made = (vms / "new.img").stat()
    assert (made.st_uid, made.st_size, made.st_blocks, made.st_mode & 0o777) == (107, 3 * MIB, 0, 0o600)
    inside = ["nsenter", "--target", str(pod.process.pid), "--mount", "--"]
    mounts = subprocess.run(
        [*inside, "grep", f"{layout.DISKS_DIRECTORY}/", "/proc/self/mounts"], check=True, capture_output=True, text=True
    )
    told = {line.split()[1].split("/")[-2]: line.split()[3].split(",") for line in mounts.stdout.splitlines()}
    assert {name: options[0] for name, options in told.items()} == {"data": "rw", "new": "rw", "kept": "ro"}
    assert all({"nosuid", "nodev", "noexec"} <= set(options) for options in told.values())
    assert secret.name not in subprocess.run([*inside, "find", layout.DISKS_DIRECTORY], check=True, capture_output=True, text=True).stdout

    with pod.client() as client, pod.console() as viewer:
        status = client.ask(messages.Sync(a_machine(devices={**NO_GRAPHICS, "disks": disks})))
        assert status.not_migratable == "the disk 'data' is a file of its node"
        viewer.expect("GUEST-READY", seconds=120)
        assert viewer.sh("head -c 11 /dev/vda; cat /sys/block/vdb/size; head -c 10 /dev/sda") == f"of-the-node{3 * MIB // 512}\nto-be-kept"
        viewer.sh("echo of-the-guest | dd of=/dev/vda conv=fsync; echo too | dd of=/dev/vdb conv=fsync; echo x > /dev/sda")
    with never_again("a lost write"):
        assert there.read_bytes().startswith(b"of-the-guest")
        assert (vms / "new.img").read_bytes().startswith(b"too")
        assert kept.read_bytes().startswith(b"to-be-kept")


def test_non_regular_or_outside_files_are_refused(start: Callable[[], Launcher], tmp_path: Path) -> None:
    vms, outside = tmp_path / "vms", tmp_path / "outside"
    for each in (vms, outside):
        each.mkdir()
    victim = owned(outside / "victim.img", b"secret")
    (vms / "link.img").symlink_to(victim)
    (vms / "by-link").symlink_to(outside)
    (vms / "hard.img").hardlink_to(victim)
    (vms / "directory").mkdir()
    (vms / "roots.img").write_bytes(b"x")
    os.mkfifo(vms / "fifo")
    pod = start()
    for path, why in {
        vms / "link.img": "is not a regular file",
        vms / "by-link/victim.img": "contains a symbolic link",
        vms / "hard.img": "is not a regular file with a single hard link",
        vms / "directory": "is not a regular file",
        vms / "fifo": "is not a regular file",
        vms / "absent.img": "cannot be used: No such file or directory",
        vms / "roots.img": r"belongs to 0:0, mode 0644: virt-launcher's user 107 may not read and write it",
        victim: "is not below a directory that virt-handler of this node allows",
        vms / "../outside/victim.img": "is not below a directory that virt-handler of this node allows",
    }.items():
        with pytest.raises(NotTheDevice, match=why):
            put(pod, vms, disk(path))
    for path in (vms / "by-link/new.img", vms / "absent/new.img"):
        with pytest.raises(NotTheDevice):
            put(pod, vms, disk(path, source={"create": {"size": "1Mi"}}))
    put(pod, vms, disk(vms / "roots.img", readOnly=True, target={"bus": "scsi"}))
    assert sorted(each.name for each in outside.iterdir()) == ["victim.img"]


def test_created_host_files_of_a_directory_are_bounded(start: Callable[[], Launcher], tmp_path: Path) -> None:
    vms = tmp_path / "vms"
    vms.mkdir()
    owned(vms / "of-the-administrator.img")
    (vms / "of-root.img").write_bytes(bytes(9 * MIB))
    pod = start()
    made = [disk(vms / f"{each}.img", f"d{each}", source={"create": {"size": "2Mi"}}) for each in range(4)]
    put(pod, vms, *made[:3], created_bytes=7 * MIB)
    with pytest.raises(
        NotTheDevice,
        match=(
            r"3\.img of this node cannot be created: the files of its directory have "
            r"7340032 bytes, and the limit is 7340032"
        ),
    ):
        put(pod, vms, made[3], created_bytes=7 * MIB)
    assert not (vms / "3.img").exists()
    put(pod, vms, *made[:3], created_bytes=0)


def test_a_link_that_the_pod_plants_leads_nowhere(start: Callable[[], Launcher], tmp_path: Path) -> None:
    vms = tmp_path / "vms"
    vms.mkdir()
    file, elsewhere = owned(vms / "a.img"), tmp_path / "elsewhere"
    pod = start()
    (pod.disks / "data").mkdir()
    (pod.disks / "data/disk.img").symlink_to(elsewhere)
    with pytest.raises(NotTheDevice, match="another file is at the path"):
        put(pod, vms, disk(file))
    assert not elsewhere.exists()
