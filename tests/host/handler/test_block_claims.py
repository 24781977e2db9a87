"""virt-handler gives a block device to a pod and takes it back, while the pod's user tries to keep it."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from handler.devices import block_claims, device_cgroup, ownership
from handler.devices.ownership import NotTheDevice
from handler.pods.process import Launcher
from tests.damage import never_again
from tests.host.handler import cuts

HIERARCHY = Path("/sys/fs/cgroup/devices")
UID = "5d1f0a52-0000-4000-8000-00000000b10c"
UNUSED = os.makedev(511, 1048575)
"""No driver has this device, so a rule about it harms no program of this machine."""
pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not HIERARCHY.exists(), reason="needs version 1 of the device cgroup"),
]


@dataclass
class Pod:
    """A process in a pod's device cgroup, which by default allows no block device, and the roots of two containers."""

    process: subprocess.Popen[bytes]
    source: Launcher
    target: Launcher
    root: Path
    cgroup: Path

    @property
    def device(self) -> Path:
        return self.root / layout.DEVICES_DIRECTORY.lstrip("/") / "data"

    def run(self, script: str, path: Path) -> subprocess.Popen[bytes]:
        enter = f"echo $$ > {self.cgroup}/cgroup.procs && exec setpriv --reuid 107 --regid 107 --clear-groups sh -c '{script}' {path}"
        return subprocess.Popen(["sh", "-c", enter], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def may_use_devices(self) -> bool:
        return any(line.startswith("b ") for line in (self.cgroup / "devices.list").read_text().splitlines())

    def reads(self, path: Path) -> str:
        with self.run('head -c 12 "$0"', path) as process:
            assert process.stdout is not None
            return process.stdout.read().decode().rstrip("\0")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:  # pytest's is closed to the pod's user
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Path]:
    image = tmp_path / "image"
    image.write_bytes(b"of-the-claim".ljust(1 << 20, b"\0"))
    found = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True).stdout.strip()
    yield Path(found)
    subprocess.run(["losetup", "--detach", found], check=True)


@pytest.fixture
def pod(place: Path, loop: Path) -> Iterator[Pod]:
    for name in ("source/dev/kubevirt-disks", "target/dev"):
        (place / name).mkdir(parents=True)
    os.mknod(place / f"source{layout.ATTACHMENT_DEVICE}", 0o60600, loop.stat().st_rdev)
    cgroup = HIERARCHY / f"pod{UID}"
    cgroup.mkdir()
    (cgroup / "devices.deny").write_text("a")
    (cgroup / "devices.allow").write_text("c *:* rwm")
    script = f"echo $$ > {cgroup}/cgroup.procs; echo ready; exec sleep 600"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        found = [opened(process.pid, place / each) for each in ("source", "target")]
        try:
            yield Pod(process, found[0], found[1], place / "target", cgroup)
        finally:
            process.kill()
            for each in found:
                each.close()
    cgroup.rmdir()


def opened(pid: int, root: Path) -> Launcher:
    return Launcher(pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), os.open(root, os.O_PATH | os.O_DIRECTORY))


@contextmanager
def holding(pod: Pod, script: str) -> Iterator[None]:
    with pod.run(script, pod.device) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.kill()


MAPS = (
    'exec python3 -c "import mmap,os,sys,time; f=os.open(sys.argv[1],2); m=mmap.mmap(f,4096); os.close(f);'
    ' print(\\"held\\",flush=True); time.sleep(60)" "$0"'
)


@pytest.mark.parametrize("holds", ['exec 3<>"$0"; echo held; exec sleep 60', MAPS], ids=["open", "mapped"])
def test_device_stays_while_a_process_of_the_pod_has_it(pod: Pod, loop: Path, place: Path, holds: str) -> None:
    for _ in range(2):
        assert block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
    assert (pod.device.stat().st_rdev, pod.device.stat().st_uid) == (loop.stat().st_rdev, layout.USER_ID)
    assert pod.reads(pod.device) == "of-the-claim"
    with holding(pod, holds):
        with pytest.raises(OSError, match="has the block device of disk 'data' open") as busy:
            block_claims.remove(pod.target, UID, "data")
        assert busy.value.errno == errno.EBUSY
        assert "Permission denied" in pod.reads(pod.device)
    block_claims.remove(pod.target, "6d1f0a52-0000-4000-8000-00000000b10c", "absent")
    for _ in range(2):
        block_claims.remove(pod.target, UID, "data")
    with never_again("two QEMU"):
        assert not pod.device.exists()
        alias = place / "alias"
        os.mknod(alias, 0o60666, loop.stat().st_rdev)
        alias.chmod(0o666)
        assert "Operation not permitted" in pod.reads(alias)


def test_closed_descriptor_or_ended_thread_hides_no_open_device(pod: Pod, tmp_path: Path) -> None:
    """A process may close descriptors, and end threads, during the look."""
    block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
    process = tmp_path / "proc/7"
    (process / "task/7/fd").mkdir(parents=True)
    for each in range(20):
        (process / f"task/7/fd/{each}").symlink_to("closed" if each != 10 else pod.device)
        (process / f"task/{each + 8}").mkdir()
    (process / "cgroup").write_text(f"4:devices:/pod{UID}\n")
    with pytest.raises(OSError, match="process 7 of the guest's pod has the block device of disk 'data' open"):
        block_claims.remove(pod.target, UID, "data", tmp_path / "proc")
    (process / "task/7/fd/10").unlink()
    block_claims.remove(pod.target, UID, "data", tmp_path / "proc")
    assert not pod.device.exists()


def test_read_only_device_is_not_written_to(pod: Pod) -> None:
    assert block_claims.put(pod.source, pod.target, UID, "data", read_only=True)
    assert pod.reads(pod.device) == "of-the-claim"
    with pod.run('echo lost 1<>"$0"', pod.device) as process:
        assert process.wait() != 0


def test_file_systems_and_other_devices_are_left_alone(pod: Pod) -> None:
    assert not block_claims.put(pod.target, pod.source, UID, "data", read_only=False)
    pod.device.parent.mkdir()
    pod.device.touch()
    with pytest.raises(NotTheDevice, match="another file is in the pod"):
        block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
    block_claims.remove(pod.target, UID, "data")
    assert pod.device.exists()


def test_another_device_replaces_that_of_an_earlier_pod(pod: Pod, loop: Path) -> None:
    earlier = f"b {os.major(UNUSED)}:{os.minor(UNUSED)} "
    claim = pod.root.parent / f"source{layout.ATTACHMENT_DEVICE}"
    for number, is_there in ((UNUSED, True), (loop.stat().st_rdev, False)):
        claim.unlink()
        os.mknod(claim, 0o60600, number)
        for _ in range(2):
            assert block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
        assert (pod.device.stat().st_rdev, pod.device.stat().st_uid) == (number, layout.USER_ID)
        assert (earlier in (pod.cgroup / "devices.list").read_text()) is is_there
    assert pod.reads(pod.device) == "of-the-claim"
    with holding(pod, 'exec 3<>"$0"; echo held; exec sleep 60'):
        claim.unlink()
        os.mknod(claim, 0o60600, UNUSED)
        with pytest.raises(OSError, match="has the block device of disk 'data' open"):
            block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
        assert pod.device.stat().st_rdev == loop.stat().st_rdev


@pytest.mark.parametrize("then", ["again", "the other way"])
@pytest.mark.parametrize("what", ["put", "remove"])
def test_device_comes_and_goes_after_a_kill_at_each_line(pod: Pod, what: str, then: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: block_claims.put(pod.source, pod.target, UID, "data", read_only=False),
        "remove": lambda: block_claims.remove(pod.target, UID, "data"),
    }
    other = "remove" if what == "put" else "put"
    step, last = 0, what if then == "again" else other
    functions = (block_claims.put, block_claims.remove, device_cgroup.allow, device_cgroup.deny, ownership._give)
    if what == "remove":
        calls["put"]()
    while cuts.killed_at(step, calls[what], *functions):
        for _ in range(2):
            calls[last]()
        if last == "put":
            assert pod.reads(pod.device) == "of-the-claim"
        else:
            assert not pod.device.exists()
            assert not pod.may_use_devices()
        calls[other]()
        step += 1
    assert step > 10


def test_rules_of_an_ended_pod_are_not_those_of_the_node(pod: Pod, place: Path) -> None:
    """``/proc/PID/cgroup`` of a zombie names the root of the hierarchy."""
    (place / f"source{layout.ATTACHMENT_DEVICE}").unlink()
    os.mknod(place / f"source{layout.ATTACHMENT_DEVICE}", 0o60600, UNUSED)
    block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
    pod.process.kill()
    os.waitid(os.P_PID, pod.process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError, match="of the pod has ended"):
        block_claims.put(pod.source, pod.target, UID, "data", read_only=False)
    with pytest.raises(ProcessLookupError, match="of the pod has ended"):
        block_claims.remove(pod.target, UID, "data")
