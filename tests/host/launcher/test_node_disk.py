"""A real guest's memory goes to a file of the node's disk, and comes back in another pod."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.hardware import memory
from apiserver.apis.virt.places import layout, saved_image
from handler.pods.process import Launcher as Process
from handler.storage import loop_devices
from handler.storage.node_disk import Image, NodeDisk, Refused
from launcher.protocol import messages
from tests import system_calls
from tests.host.launcher import sandbox
from tests.host.launcher.sandbox import READY, Launcher, a_tiny_machine
from tests.host.launcher.test_suspend import ID, boot_of

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MACHINE = a_tiny_machine()
SUSPEND = messages.Operate(ID, 1, "SuspendToNodeDisk")
IMAGE = Image("default", "testvm", MACHINE.uid, ID)
MEMORY = memory.max_guest_bytes(MACHINE.domain)
Start = Callable[[], Launcher]


@pytest.fixture
def disk(tmp_path: Path) -> NodeDisk:
    return NodeDisk("node1", tmp_path / "images", keep_free_percent=0)


@contextlib.contextmanager
def process_of(pod: Launcher) -> Iterator[Process]:
    pid = pod.process.pid
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    process = Process(pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), root)
    try:
        yield process
    finally:
        process.close()


def place_in(pod: Launcher) -> Path:
    return Path(f"/proc/{pod.process.pid}/root{layout.RUN_DIRECTORY}/{layout.NODE_DISK}")


def suspended(pod: Launcher, disk: NodeDisk) -> tuple[saved_image.Image, tuple[str, int]]:
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(MACHINE))
        viewer.expect(READY)
        before = boot_of(viewer)
        with process_of(pod) as process:
            disk.make(IMAGE, MEMORY)
            disk.mount(IMAGE, process)
            disk.mount(IMAGE, process)
        client.ask(SUSPEND)
        ending = client.until(lambda status: status.ending is not None).ending
    assert ending is not None
    assert ending.kind == "saved", ending
    image = saved_image.read(ending.message)
    assert image is not None
    assert pod.wait() == 0
    return image, before


def test_guest_resumes_from_the_nodes_disk_in_another_pod(start: Start, disk: NodeDisk) -> None:
    image, (boot, commands) = suspended(start(), disk)
    assert disk.images() == [IMAGE]
    pod = start()
    with pod.client() as client, pod.console() as viewer, process_of(pod) as process:
        disk.mount(IMAGE, process)
        client.ask(messages.Sync(MACHINE, image=messages.Image(image.id, image.digest, on_node_disk=True)))
        assert boot_of(viewer) == (boot, commands + 1)
        assert (place_in(pod) / MACHINE.uid / f"{ID}.used").stat().st_size == 0
        disk.unmount(IMAGE, process)
        assert list(place_in(pod).iterdir()) == []
    disk.delete(IMAGE)
    assert disk.images() == []


def test_operation_fails_without_the_mount_and_the_guest_goes_on(start: Start, disk: NodeDisk) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(MACHINE))
        viewer.expect(READY)
        boot, commands = boot_of(viewer)
        with process_of(pod) as process:
            disk.make(IMAGE, MEMORY)
            disk.mount(IMAGE, process)
            disk.unmount(IMAGE, process)
            disk.delete(IMAGE)
        status = client.ask(SUSPEND)
        assert (status.operations[0].state, status.ending) == ("failed", None)
        assert "has not mounted a file of the node's disk" in status.operations[0].message
        assert boot_of(viewer) == (boot, commands + 1)
    with process_of(pod) as process, pytest.raises(Refused, match="the disk of node node1 has no image"):
        disk.mount(IMAGE, process)


def test_mount_and_files_are_protected(start: Start, disk: NodeDisk) -> None:
    pod = start()
    with pod.client(), process_of(pod) as process:
        disk.make(IMAGE, 16 << 20)
        disk.mount(IMAGE, process)
        mounts = Path(f"/proc/{pod.process.pid}/mountinfo").read_text().splitlines()
        (mounted,) = (each.split() for each in mounts if each.split()[4] == f"{layout.RUN_DIRECTORY}/{layout.NODE_DISK}")
        assert {"nosuid", "nodev", "noexec"} <= set(mounted[5].split(","))
        directory = disk.directory or Path()
        file = directory / IMAGE.file
        assert (stat.S_IMODE(directory.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)
        disk.unmount(IMAGE, process)


def test_pod_cannot_write_more_than_its_file_has_room_for(start: Start, disk: NodeDisk) -> None:
    pod = start()
    with pod.client(), process_of(pod) as process:
        disk.make(IMAGE, 16 << 20)
        disk.mount(IMAGE, process)
        file = (disk.directory or Path()) / IMAGE.file
        before = file.stat()
        with pytest.raises(OSError, match="No space left") as full:
            (place_in(pod) / "much").write_bytes(bytes(512 << 20))
        assert full.value.errno == errno.ENOSPC
        after = file.stat()
        assert (after.st_size, after.st_blocks) == (before.st_size, before.st_blocks)
        (place_in(pod) / "much").unlink()
        disk.unmount(IMAGE, process)


def test_another_image_takes_the_place_of_one(start: Start, disk: NodeDisk) -> None:
    """One pod may save twice: the first save failed. A late unmount of the first leaves the second."""
    other = Image("default", "testvm", MACHINE.uid, "0b7c1a52-0000-4000-8000-000000000002")
    pod = start()
    with pod.client(), process_of(pod) as process:
        for each in (IMAGE, other):
            disk.make(each, 16 << 20)
            disk.mount(each, process)
            (place_in(pod) / each.id).touch()
        disk.unmount(IMAGE, process)
        assert {each.name for each in place_in(pod).iterdir()} == {"lost+found", other.id}
        disk.unmount(other, process)
        disk.mount(IMAGE, process)
        assert {each.name for each in place_in(pod).iterdir()} == {"lost+found", IMAGE.id}
        disk.unmount(IMAGE, process)


def test_an_image_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    full = NodeDisk("node1", tmp_path, keep_free_percent=99)
    with pytest.raises(Refused, match=r"the disk of node node1 has \d+ MiB free; .* \(99 %\) must remain .*keepFreePercent"):
        full.make(IMAGE, MEMORY)
    assert list(tmp_path.iterdir()) == []


def test_the_image_itself_leaves_what_must_remain_free(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    free = NodeDisk("node1", tmp_path, keep_free_percent=found.f_bavail * 100 // found.f_blocks)
    with pytest.raises(Refused, match="must remain"):
        free.make(IMAGE, found.f_blocks * found.f_frsize // 50)
    assert list(tmp_path.iterdir()) == []


def test_image_is_durable_under_its_name(tmp_path: Path) -> None:
    seen = list[list[str]]()
    with system_calls.at(os.fsync, lambda: seen.append([each.name for each in tmp_path.iterdir()])):
        NodeDisk("node1", tmp_path, keep_free_percent=0).make(IMAGE, 1 << 20)
    assert seen == [[".new"], [IMAGE.file]]


def test_image_without_a_file_system_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="mke2fs"):
        NodeDisk("node1", tmp_path, keep_free_percent=0).make(IMAGE, 1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_file_has_one_loop_device_while_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb+") as file:
        with loop_devices.attached(file.fileno()) as first, loop_devices.attached(file.fileno()) as second:
            assert first == second
            assert loop_devices.number_of(file.fileno()) == Path(first).stat().st_rdev
        sandbox.wait_for(lambda: loop_devices.number_of(file.fileno()) == 0, 10, "the free device")
