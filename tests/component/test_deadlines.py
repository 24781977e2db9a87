"""The guardian's deadline, from its file through virt-handler to virt-launcher."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import deadlines, layout
from handler.guardian.deadline_file import DeadlineFile
from handler.pods import places
from handler.pods.deadlines import Deadlines
from launcher.main.serving.deadline import Deadline

UID = "8f1d2c3b-0000-4000-8000-0123456789ab"


@pytest.fixture
def pods() -> Iterator[list[Deadline]]:
    started: list[Deadline] = []
    yield started
    for each in started:
        each.stop()
    for thread in threading.enumerate():
        if thread.name == "deadline":
            thread.join()


class Pod:
    def __init__(self, root: Path, giver: int, started: list[Deadline]) -> None:
        self.kubelet = root / "kubelet"
        directory = self.kubelet / "pods" / UID / "volumes" / "kubernetes.io~empty-dir" / layout.RUN_VOLUME
        directory.mkdir(parents=True)
        self.now = 100.0
        self.ended = threading.Event()
        self.directory = os.open(directory, os.O_PATH)  # the path of a socket has at most 108 bytes
        self.launcher = Deadline(Path(f"/proc/self/fd/{self.directory}", layout.DEADLINE_SOCKET), self.ended.set, lambda: self.now, giver)
        threading.Thread(target=self.launcher.run, name="deadline").start()
        started.append(self.launcher)

    def until_it_listens(self) -> None:
        """Wait until the socket takes connections; its file exists a moment before."""
        while True:
            with socket.socket(socket.AF_UNIX) as link:
                if link.connect_ex(f"/proc/self/fd/{self.directory}/{layout.DEADLINE_SOCKET}") == 0:
                    return
            time.sleep(0.01)

    def passes(self, handler: Deadlines) -> None:
        self.until_it_listens()
        asyncio.run(handler.look())
        asyncio.run(handler.look())


def test_a_launcher_ends_after_the_deadline_without_a_guardian(tmp_path: Path, pods: list[Deadline]) -> None:
    pod, path = Pod(tmp_path, os.getuid(), pods), tmp_path / "node1"
    handler = Deadlines(path / deadlines.FILE, pod.kubelet, lambda: [UID], lambda: pod.now)
    asyncio.run(handler.look())
    file = DeadlineFile(path, "boot")
    assert file.read() is None
    file.write(200.0)
    assert DeadlineFile(path, "boot").read() == 200.0
    assert DeadlineFile(path, "another boot").read() is None
    assert file.holders() == frozenset()
    pod.passes(handler)
    assert file.holders() == {UID}
    pod.now = 199.9
    assert not pod.ended.wait(1)
    file.write(240.0)
    pod.now = 230.0
    assert not pod.ended.wait(1)
    file.write(None)
    pod.now = 500.0
    assert not pod.ended.wait(1)
    file.write(400.0)
    file.close()
    assert pod.ended.wait(30)


def test_a_read_that_fails_does_not_stop_the_second_killer(tmp_path: Path, pods: list[Deadline]) -> None:
    pod, path = Pod(tmp_path, os.getuid(), pods), tmp_path / "node1"
    unreadable = path / deadlines.FILE
    unreadable.mkdir(parents=True)
    handler = Deadlines(unreadable, pod.kubelet, lambda: [UID], lambda: 0.0)
    directory_itself = os.open(unreadable, os.O_RDONLY)
    with places.run_directory(UID, pod.kubelet) as directory:
        pod.until_it_listens()
        with places.connect(directory, layout.DEADLINE_SOCKET) as link:
            socket.send_fds(link, [b"d"], [directory_itself])
            link.settimeout(30)
            assert link.recv(1) == deadlines.CONFIRMED
    assert not pod.ended.wait(1)
    unreadable.rmdir()
    DeadlineFile(path, "boot").write(pod.now - 50)
    pod.passes(handler)
    assert pod.ended.wait(30)


def test_only_virt_handler_passes_the_file(tmp_path: Path, pods: list[Deadline]) -> None:
    """QEMU in the same pod, which a guest may control, has virt-launcher's user."""
    pod, path = Pod(tmp_path, os.getuid() + 1, pods), tmp_path / "node1"
    DeadlineFile(path, "boot").write(1.0)
    pod.passes(Deadlines(path / deadlines.FILE, pod.kubelet, lambda: [UID], lambda: 0.0))
    assert not pod.ended.wait(2)
    assert DeadlineFile(path, "boot").holders() == frozenset()


def test_a_launcher_that_confirms_nothing_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kubelet = tmp_path / "node1", tmp_path / "kubelet"
    directory = kubelet / "pods" / UID / "volumes" / "kubernetes.io~empty-dir" / layout.RUN_VOLUME
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)  # the path of a socket has at most 108 bytes
    file = DeadlineFile(path, "boot")
    file.write(100.0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(layout.DEADLINE_SOCKET)
        listener.listen(4)
        asyncio.run(Deadlines(path / deadlines.FILE, kubelet, lambda: [UID], lambda: 0.0).look())
        listener.accept()[0].close()
    assert file.holders() == frozenset()


def test_the_file_of_a_guardian_that_is_gone_is_not_passed(tmp_path: Path, pods: list[Deadline]) -> None:
    """Its deadline is over, so each new guest of the node would end."""
    pod, path = Pod(tmp_path, os.getuid(), pods), tmp_path / "node1"
    file = DeadlineFile(path, "boot")
    file.write(pod.now - 1)
    handler = Deadlines(path / deadlines.FILE, pod.kubelet, lambda: [UID], lambda: pod.now)
    pod.passes(handler)
    assert not pod.ended.wait(2)
    file.write(pod.now + 40)
    pod.passes(handler)
    assert file.holders() == {UID}
    assert not pod.ended.is_set()


def test_a_launcher_without_the_socket_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DeadlineFile(tmp_path, "boot").write(1.0)
    with caplog.at_level("DEBUG"):
        asyncio.run(Deadlines(tmp_path / deadlines.FILE, tmp_path, lambda: [UID, "../x"], lambda: 0.0).look())
    assert "cannot pass" in caplog.text
