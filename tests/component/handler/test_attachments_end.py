from __future__ import annotations

import errno
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.pods import attachments

UID = "1b0a1c1e-0000-4000-8000-000000000001"
OTHER = "2b0a1c1e-0000-4000-8000-000000000001"
CHILD = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-S", "-c", CHILD], stdout=subprocess.PIPE, text=True) as found:
        yield found
        found.kill()


def a_proc(directory: Path, pids: dict[int, str]) -> Path:
    (directory / "self").mkdir()
    for pid, uid in pids.items():
        (directory / str(pid)).mkdir()
        (directory / str(pid) / "cgroup").write_text(f"0::/kubepods/besteffort/pod{uid}/container\n")
    return directory


def test_all_processes_of_the_pod_end_and_no_others(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    with subprocess.Popen(["sleep", "60"]) as neighbour:
        proc = a_proc(tmp_path, {**dict.fromkeys(pids, UID), neighbour.pid: OTHER})
        attachments.end(UID, proc)
        assert process.wait(timeout=5) == -9
        deadline = time.monotonic() + 5
        while (state := Path(f"/proc/{pids[1]}/stat")).exists() and state.read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
        assert neighbour.poll() is None
        attachments.end(UID, proc)
        neighbour.kill()


def test_process_that_does_not_end_is_an_error(process: subprocess.Popen[str], tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"process {process.pid} of pod {UID} does not end") as busy:
        attachments.end(UID, a_proc(tmp_path, {process.pid: UID}), kill=lambda _: None)
    assert busy.value.errno == errno.EBUSY
    assert process.poll() is None


@pytest.mark.parametrize("uid", ["", "..", "a/b"])
def test_only_a_uid_names_a_pod(uid: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a pod uid"):
        attachments.end(uid, tmp_path)


def test_pod_without_a_listening_process_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(attachments.NotListening, match="not ready yet"), attachments.opened(UID, tmp_path):
        raise AssertionError("it is open")
