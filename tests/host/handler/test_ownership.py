from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from handler.devices import ownership, passthrough
from handler.devices.ownership import NotTheDevice

pytestmark = pytest.mark.host


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    (tmp_path / "dev/net").mkdir(parents=True)
    (tmp_path / layout.DEVICES_DIRECTORY.lstrip("/")).mkdir(parents=True)
    root = os.open(tmp_path, os.O_PATH)
    yield tmp_path, root
    os.close(root)


def node(path: Path, kind: int, major: int, minor: int) -> Path:
    os.mknod(path, kind | 0o600, os.makedev(major, minor))
    return path


def test_the_expected_device_is_given_and_stays_so(pod: tuple[Path, int]) -> None:
    path = node(pod[0] / "dev/net/tun", stat.S_IFCHR, 10, 200)

    assert ownership.give(pod[1], ownership.TUN)
    assert ownership.give(pod[1], ownership.TUN)
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (107, 107, 0o660)


def test_block_claim_is_given_and_file_system_claim_left(pod: tuple[Path, int]) -> None:
    disks = pod[0] / layout.DEVICES_DIRECTORY.lstrip("/")
    block = node(disks / "data", stat.S_IFBLK, 7, 200)
    (disks / "files").mkdir()

    assert ownership.give(pod[1], ownership.disk("data"))
    assert not ownership.give(pod[1], ownership.disk("files"))
    assert not ownership.give(pod[1], ownership.disk("absent"))
    assert block.stat().st_uid == 107
    assert (disks / "files").stat().st_uid == 0


def test_a_block_claim_that_is_only_read_stays_roots(pod: tuple[Path, int]) -> None:
    disks = pod[0] / layout.DEVICES_DIRECTORY.lstrip("/")
    block = node(disks / "data", stat.S_IFBLK, 7, 200)

    for _ in range(2):
        assert ownership.give(pod[1], ownership.disk("data", read_only=True))
        found = block.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 107, 0o440)
    assert ownership.give(pod[1], ownership.disk("data"))
    assert (block.stat().st_uid, stat.S_IMODE(block.stat().st_mode)) == (107, 0o660)


@pytest.mark.parametrize("where", ["last", "middle"])
def test_a_link_planted_by_the_pod_is_not_followed(pod: tuple[Path, int], tmp_path: Path, where: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    victim = node(outside / "tun", stat.S_IFCHR, 10, 200)
    if where == "last":
        (pod[0] / "dev/net/tun").symlink_to(victim)
    else:
        (pod[0] / "dev/net").rmdir()
        (pod[0] / "dev/net").symlink_to(outside)

    with pytest.raises(NotTheDevice, match=r"contains a symbolic link|is not a"):
        ownership.give(pod[1], ownership.TUN)
    assert victim.stat().st_uid == 0


def test_another_device_in_its_place_is_refused(pod: tuple[Path, int]) -> None:
    other = node(pod[0] / "dev/kvm", stat.S_IFCHR, 1, 1)

    with pytest.raises(NotTheDevice, match="10:232"):
        ownership.give(pod[1], ownership.KVM)
    assert other.stat().st_uid == 0


def test_a_file_in_place_of_a_block_device_is_refused(pod: tuple[Path, int]) -> None:
    path = pod[0] / layout.DEVICES_DIRECTORY.lstrip("/") / "data"
    path.write_text("")

    with pytest.raises(NotTheDevice):
        ownership.give(pod[1], ownership.disk("data"))
    assert path.stat().st_uid == 0


def test_groups_of_devices_that_the_guest_gets_are_found(pod: tuple[Path, int]) -> None:
    assert passthrough.groups(pod[1]) == []
    (pod[0] / "dev/vfio").mkdir()
    path = node(pod[0] / "dev/vfio/12", stat.S_IFCHR, 243, 0)
    node(pod[0] / "dev/vfio/vfio", stat.S_IFCHR, 10, 196)
    (pod[0] / "dev/vfio/devices").mkdir()

    found = passthrough.groups(pod[1])

    assert [each.path for each in found] == ["/dev/vfio/12", "/dev/vfio/vfio"]
    assert all(ownership.give(pod[1], each) for each in found)
    assert path.stat().st_uid == 107


def test_a_launcher_and_its_children_may_lock_the_guests_memory(caplog: pytest.LogCaptureFixture) -> None:
    program = "ulimit -l 64; sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", program], user=107, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        try:
            passthrough.allow_locking(launcher.pid, 1 << 30)
            limits = [resource.prlimit(pid, resource.RLIMIT_MEMLOCK) for pid in (launcher.pid, child)] if not caplog.records else []
        finally:
            os.kill(child, signal.SIGKILL)
            launcher.kill()
    refused = [each.getMessage() for each in caplog.records]
    assert limits == [(3 << 30, 3 << 30)] * 2 or [str(pid) in told for pid, told in zip((launcher.pid, child), refused, strict=True)] == [
        True,
        True,
    ]
