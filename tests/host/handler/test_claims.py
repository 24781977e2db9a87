"""virt-handler mounts and unmounts claims while the launcher's user tries to keep them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from handler.devices import claims
from handler.pods import mounts
from handler.pods.process import Launcher
from tests.damage import never_again
from tests.host.handler import cuts

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]
EXCHANGE = f"""
import ctypes, os, sys
os.chdir(sys.argv[1]); os.setgid({layout.USER_ID}); os.setuid({layout.USER_ID})
code = ctypes.CDLL(None, use_errno=True).syscall(316, -100, b"data", -100, b"kept", 2)  # renameat2, RENAME_EXCHANGE
print(os.strerror(ctypes.get_errno()) if code else "exchanged")
"""


class Pod:
    """A process in its own mount namespace, with a directory as its root: an attachment pod's claim, and a place for disks."""

    def __init__(self, pid: int, root: Path) -> None:
        self._pid = pid
        self.disks = root / layout.DISKS_DIRECTORY.lstrip("/")
        place = os.open(f"/proc/{pid}/root{root}", os.O_PATH | os.O_DIRECTORY)
        self.launcher = Launcher(pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), place)

    def run(self, *command: str | Path) -> str:
        entered = ["nsenter", "--target", str(self._pid), "--mount", "--", *command]
        return subprocess.run(entered, check=True, capture_output=True, text=True).stdout.strip()

    def mounted(self) -> list[str]:
        lines = Path(f"/proc/{self._pid}/mountinfo").read_text().splitlines()
        return [place.name for line in lines if (place := Path(line.split()[4])).parent == self.disks]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    claim, disks = (tmp_path / each.lstrip("/") for each in (layout.ATTACHMENT_DIRECTORY, layout.DISKS_DIRECTORY))
    tmp_path.chmod(0o755)
    script = (
        f"mount --make-rprivate / && mkdir -p {claim} {disks} && mount -t tmpfs -o size=1M none {claim} && echo content > {claim}/disk.img"
        f" && mount -t tmpfs -o size=1M,mode=2777,gid={layout.USER_ID} none {disks} && echo ready && exec sleep 60"
    )
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        found = Pod(process.pid, tmp_path)
        try:
            yield found
        finally:
            found.launcher.close()
            process.kill()


@pytest.mark.parametrize("owner", [0, layout.USER_ID])
def test_launcher_cannot_exchange_the_directory_before_the_mount(pod: Pod, owner: int) -> None:
    tried: list[str] = []

    def late(source: mounts.Place, target: mounts.Place, *, read_only: bool) -> None:
        tried.append(pod.run(sys.executable, "-c", EXCHANGE, pod.disks))
        mounts.move(source, target, read_only=read_only)

    pod.run("install", "-d", "-o", str(owner), pod.disks / "data", pod.disks / "kept")
    pod.run("chown", str(owner), pod.disks)
    claims.put(pod.launcher, pod.launcher, "data", read_only=False, move=late)
    assert tried == ["Permission denied"]
    assert pod.mounted() == ["data"]
    claims.remove(pod.launcher, "data")
    with never_again("two QEMU"):
        assert pod.mounted() == []


def test_volume_of_the_kubelet_is_unmounted_once_it_is_unused(pod: Pod) -> None:
    pod.run("mkdir", pod.disks / "data")
    pod.run("mount", "-t", "tmpfs", "-o", "size=1M", "none", pod.disks / "data")
    pod.run("touch", pod.disks / "data/disk.img")
    with user_of(pod, pod.disks / "data/disk.img"):
        with pytest.raises(OSError, match="busy") as busy:
            claims.remove(pod.launcher, "data")
        assert busy.value.errno == errno.EBUSY
        assert pod.mounted() == ["data"]
    claims.remove(pod.launcher, "data")
    claims.remove(pod.launcher, "data")
    assert pod.run("ls", pod.disks) == ""


def test_unused_mount_of_a_lost_attachment_pod_is_replaced(pod: Pod) -> None:
    pod.run("mkdir", pod.disks / "data")
    pod.run("mount", "-t", "tmpfs", "-o", "size=1M", "none", pod.disks / "data")
    pod.run("touch", pod.disks / "data/of-the-lost-pod")
    with user_of(pod, pod.disks / "data/of-the-lost-pod"), pytest.raises(OSError, match="busy"):
        claims.put(pod.launcher, pod.launcher, "data", read_only=False)
    claims.put(pod.launcher, pod.launcher, "data", read_only=False)
    assert pod.mounted() == ["data"]
    assert pod.run("ls", pod.disks / "data") == "disk.img"


@pytest.mark.parametrize("then", ["again", "the other way"])
@pytest.mark.parametrize("what", ["put", "remove"])
def test_claim_comes_and_goes_after_a_kill_at_each_line(pod: Pod, what: str, then: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: claims.put(pod.launcher, pod.launcher, "data", read_only=False),
        "remove": lambda: claims.remove(pod.launcher, "data"),
    }
    other = "remove" if what == "put" else "put"
    step, last = 0, what if then == "again" else other
    if what == "remove":
        calls["put"]()
    while cuts.killed_at(step, calls[what], claims.put, claims.remove):
        for _ in range(2):
            calls[last]()
        assert pod.mounted() == (["data"] if last == "put" else [])
        assert pod.run("ls", pod.disks) == ("data" if last == "put" else "")
        calls[other]()
        step += 1
    assert step > 5


@contextmanager
def user_of(pod: Pod, file: Path) -> Iterator[None]:
    script = 'exec 3< "$0"; echo open; exec sleep 60'
    command = ["nsenter", "--target", str(pod.launcher.pid), "--mount", "--", "sh", "-c", script, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        try:
            yield
        finally:
            process.kill()
