from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from handler.pods import mounts, opening

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]


class Namespace:
    def __init__(self, process: subprocess.Popen[bytes], stack: ExitStack) -> None:
        self.pid = process.pid
        self._stack = stack
        self.pidfd = self.keep(os.pidfd_open(process.pid))

    def keep(self, descriptor: int) -> int:
        self._stack.callback(os.close, descriptor)
        return descriptor

    def place(self, path: Path) -> mounts.Place:
        with ExitStack() as opened:
            root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY)
            opened.callback(os.close, root)
            found = opening.openat2(root, str(path).lstrip("/"), os.O_PATH | os.O_NOFOLLOW, resolve=opening.NO_SYMLINKS)
        return mounts.Place(self.pidfd, self.keep(found))

    def run(self, *command: str) -> str:
        entered = ["nsenter", "--target", str(self.pid), "--mount", "--", *command]
        return subprocess.run(entered, check=True, capture_output=True, text=True).stdout


@contextmanager
def a_namespace(*setup: str) -> Iterator[Namespace]:
    script = " && ".join(("mount --make-rprivate /", *setup, "echo ready", "exec sleep 60"))
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE) as process, ExitStack() as stack:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield Namespace(process, stack)
        finally:
            process.kill()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("volume", "disks/data"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def is_seen_here(here: Path) -> bool:
    return any(str(here) in line for line in Path("/proc/self/mounts").read_text().splitlines())


def test_a_mount_moves_and_is_unmounted(here: Path) -> None:
    filled = f"mount -t tmpfs -o size=1M none {here}/volume", f"echo content > {here}/volume/disk.img"
    with a_namespace(*filled) as source, a_namespace() as target:
        mounts.move(source.place(here / "volume"), target.place(here / "disks/data"), read_only=False)
        assert target.run("cat", f"{here}/disks/data/disk.img") == "content\n"
        target.run("sh", "-c", f"echo written > {here}/disks/data/disk.img")
        assert source.run("cat", f"{here}/volume/disk.img") == "written\n"
        options = next(line.split()[3] for line in target.run("cat", "/proc/self/mounts").splitlines() if f"{here}/disks/data" in line)
        assert {"rw", "nosuid", "nodev", "noexec"} <= set(options.split(","))
        assert not is_seen_here(here)
        mounts.unmount(target.place(here / "disks"), "data")
        assert target.run("ls", f"{here}/disks/data") == ""
        with pytest.raises(OSError, match="Invalid argument") as absent:
            mounts.unmount(target.place(here / "disks"), "data")
        assert absent.value.errno == errno.EINVAL


def test_a_mount_in_use_stays(here: Path) -> None:
    with a_namespace(f"mount -t tmpfs none {here}/volume", f"touch {here}/volume/disk.img") as source, a_namespace() as target:
        mounts.move(source.place(here / "volume"), target.place(here / "disks/data"), read_only=True)
        entered = ["nsenter", "--target", str(target.pid), "--mount", "--"]
        with subprocess.Popen(
            [*entered, "sh", "-c", f"exec 3< {here}/disks/data/disk.img; echo open; read end"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as user:
            assert user.stdout is not None
            assert user.stdout.readline() == b"open\n"
            with pytest.raises(OSError, match="busy") as busy:
                mounts.unmount(target.place(here / "disks"), "data")
            assert busy.value.errno == errno.EBUSY
            user.kill()
        mounts.unmount(target.place(here / "disks"), "data")


def test_unmounting_follows_no_link(here: Path) -> None:
    (here / "disks/link").symlink_to(here / "volume")
    with a_namespace(f"mount -t tmpfs none {here}/volume") as target:
        with pytest.raises(OSError, match="Invalid argument"):
            mounts.unmount(target.place(here / "disks"), "link")
        for name in ("../volume", "..", ".", ""):
            with pytest.raises(ValueError, match="is not a name"):
                mounts.unmount(target.place(here / "disks"), name)
        assert f"{here}/volume" in target.run("cat", "/proc/self/mounts")
