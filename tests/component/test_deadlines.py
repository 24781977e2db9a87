"""The guardian's deadline, from its file through virt-handler to virt-launcher."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import deadlines, layout
from handler.guardian.deadline_file import DeadlineFile
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

    def passes(self, handler: Deadlines) -> None:
        """Pass the file, once the socket is there."""
        while not (Path(f"/proc/self/fd/{self.directory}") / layout.DEADLINE_SOCKET).exists():
            time.sleep(0.01)
        handler.look()
        handler.look()


def test_a_launcher_ends_after_the_deadline_without_a_guardian(tmp_path: Path, pods: list[Deadline]) -> None:
    pod, path = Pod(tmp_path, os.getuid(), pods), tmp_path / "node1"
    handler = Deadlines(path / deadlines.FILE, pod.kubelet, lambda: [UID])
    handler.look()  # no guardian yet
    file = DeadlineFile(path, "boot")
    assert file.read() is None
    file.write(200.0)
    assert DeadlineFile(path, "boot").read() == 200.0
    assert DeadlineFile(path, "another boot").read() is None
    pod.passes(handler)
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


def test_only_virt_handler_passes_the_file(tmp_path: Path, pods: list[Deadline]) -> None:
    """QEMU in the same pod, which a guest may control, has virt-launcher's user."""
    pod, path = Pod(tmp_path, os.getuid() + 1, pods), tmp_path / "node1"
    DeadlineFile(path, "boot").write(1.0)
    pod.passes(Deadlines(path / deadlines.FILE, pod.kubelet, lambda: [UID]))
    assert not pod.ended.wait(2)


def test_a_launcher_without_the_socket_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DeadlineFile(tmp_path, "boot").write(1.0)
    with caplog.at_level("DEBUG"):
        Deadlines(tmp_path / deadlines.FILE, tmp_path, lambda: [UID, "../x"]).look()
    assert "cannot pass" in caplog.text
