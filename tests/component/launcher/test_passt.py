from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.domain.passt import Settings
from launcher.main.programs import passt, unsandboxed
from launcher.main.programs.children import Children
from launcher.main.programs.passt import NetworkUnusable, Passt
from tests.host.launcher.sandbox import alive

PROGRAM = """#!{python}
import os, sys, time
options = dict(zip(sys.argv, sys.argv[1:]))
directory = os.path.dirname(options["--pid"])
with open(os.path.join(directory, "starts"), "a") as starts:
    starts.write(options["--tcp-ports"] + "\\n")
with open(os.path.join(directory, "pids"), "a") as pids:
    pids.write(f"{{os.getpid()}}\\n")
if os.path.exists(os.path.join(directory, "fail")):
    sys.exit("Failed to bind port 22")
print("x" * 200000, file=sys.stderr, flush=True)
if not os.path.exists(os.path.join(directory, "silent")):
    open(options["--pid"], "w").write(str(os.getpid()))
time.sleep(60)
"""


def a_domain(*ports: int) -> dict[str, Any]:
    return {"devices": {"interfaces": [{"name": "lan", "type": "passt", "ports": [{"port": each} for each in ports]}]}}


class World:
    keeping: asyncio.Task[None]

    def __init__(self, directory: Path, ready_seconds: float) -> None:
        self.directory = directory
        self.lost: list[str] = []
        self.found = 0
        self.passt = Passt(Children(), lost=self.lost.append, found=self.take, ready_seconds=ready_seconds)

    def take(self) -> None:
        self.found += 1

    async def was_found(self, times: int) -> None:
        await eventually(lambda: self.found == times)

    def pid(self) -> int:
        return int((self.directory / layout.PASST_PID).read_text())

    def running(self) -> list[int]:
        return [pid for pid in map(int, (self.directory / "pids").read_text().split()) if is_there(pid)]

    def starts(self) -> list[str]:
        return (self.directory / "starts").read_text().split()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def ready_seconds() -> float:
    return passt.READY_SECONDS


@pytest.fixture
async def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod_directories: Callable[..., None], ready_seconds: float
) -> AsyncIterator[World]:
    program = tmp_path / "bin/passt"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    pod_directories(RUN=tmp_path)
    made = World(tmp_path, ready_seconds)
    with made.passt._children.reaping():
        async with asyncio.TaskGroup() as group:
            made.keeping = group.create_task(made.passt.run())
            yield made
            made.keeping.cancel()
        last = made.passt._process
        await eventually(lambda: last is None or last.exited.done())


async def test_passt_is_started_on_request_and_replaced(world: World) -> None:
    await world.passt.start({"devices": {}})
    assert not (world.directory / "starts").exists()
    await world.passt.start(a_domain(80, 22))
    first = world.pid()
    await world.passt.start(a_domain())
    assert (is_there(first), is_there(world.pid())) == (False, True)
    assert world.starts() == ["22,80", "none"]
    assert (world.lost, world.found) == ([], 0)


async def test_ended_passt_is_restarted(world: World) -> None:
    await world.passt.start(a_domain(22))
    for times in (1, 2):
        before = world.pid()
        os.kill(before, signal.SIGKILL)
        await world.was_found(times)
        assert len(world.lost) == times
        assert world.lost[-1].startswith("passt ended with -9")
        assert world.pid() != before
        assert is_there(world.pid())


async def test_passt_is_retried_until_it_starts(world: World) -> None:
    await world.passt.start(a_domain(22))
    (world.directory / "fail").touch()
    os.kill(world.pid(), signal.SIGKILL)
    await eventually(lambda: len(world.starts()) >= 3)
    assert (len(world.lost), world.found) == (1, 0)
    (world.directory / "fail").unlink()
    await eventually(lambda: world.found)


async def test_failing_passt_is_reported_with_its_error(world: World) -> None:
    (world.directory / "fail").touch()
    with pytest.raises(NetworkUnusable, match="interface 'lan': passt ended with 1: Failed to bind port 22"):
        await world.passt.start(a_domain(22))


@pytest.mark.parametrize("ready_seconds", [0.0])
async def test_unready_passt_is_reported(world: World) -> None:
    (world.directory / "silent").touch()
    with pytest.raises(NetworkUnusable, match="was not ready within 0 s"):
        await world.passt.start(a_domain(22))


@pytest.mark.parametrize("ready_seconds", [3.0])
async def test_late_passt_leaves_its_ports_to_the_next(world: World) -> None:
    await world.passt.start(a_domain(22))
    (world.directory / "silent").touch()
    os.kill(world.pid(), signal.SIGKILL)
    await eventually(lambda: len(world.starts()) >= 3)
    (world.directory / "silent").unlink()
    await world.was_found(1)
    assert world.running() == [world.pid()]


async def test_new_start_replaces_a_pending_restart(world: World) -> None:
    await world.passt.start(a_domain(22))
    os.kill(world.pid(), signal.SIGKILL)
    await eventually(lambda: world.lost)
    await world.passt.start(a_domain(80))
    assert (len(world.lost), world.found) == (1, 1)
    os.kill(world.pid(), signal.SIGKILL)
    await world.was_found(2)
    assert world.starts() == ["22", "80", "80"]
    assert world.running() == [world.pid()]


async def test_new_start_replaces_a_running_restart(world: World) -> None:
    await world.passt.start(a_domain(22))
    (world.directory / "silent").touch()
    os.kill(world.pid(), signal.SIGKILL)
    await eventually(lambda: len(world.starts()) == 2)
    (world.directory / "silent").unlink()
    await world.passt.start(a_domain(80))
    assert (len(world.lost), world.found) == (1, 1)
    os.kill(world.pid(), signal.SIGKILL)
    await world.was_found(2)
    assert world.starts() == ["22", "22", "80", "80"]
    assert world.running() == [world.pid()]


async def test_passt_ends_with_its_keeper(world: World) -> None:
    await world.passt.start(a_domain(22))
    assert world.passt._process is not None
    world.keeping.cancel()
    assert await world.passt._process.exited == -signal.SIGKILL
    assert (world.lost, world.found) == ([], 0)


def test_an_image_without_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NetworkUnusable, match="interface 'lan': virt-launcher's image has no program passt"):
        passt.command(Settings("lan", {"TCP": (), "UDP": ()}))


CALLS = """
import ctypes, os, resource, sys
call = ctypes.CDLL(None, use_errno=True).syscall
spaces = ("mnt", "uts", "ipc", "user")
before = [os.readlink(f"/proc/self/ns/{each}") for each in spaces]
path = os.fsencode(sys.argv[1])
calls = (272, 0x10000000), (272, 0x0C020000), (165, b"none", path, b"tmpfs", 0, None), (155, b".", b"."), (166, path, 2)
print([call(number, *arguments) for number, *arguments in calls])
print([os.readlink(f"/proc/self/ns/{each}") for each in spaces] == before, os.path.ismount(path), os.path.isfile(path + b"/file"))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_calls_of_a_sandbox_succeed_and_do_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-I", "-S", unsandboxed.__file__, str(os.getpid()), "200", sys.executable, "-c", CALLS, str(tmp_path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert told == ["[0, 0, 0, 0, 0]", "True False True", "(200, 200)"]


PARENT = """
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), "200", "/bin/sh", "-c", "echo $$; exec sleep 600"])
sys.stdin.read()
"""


async def test_passt_ends_with_a_killed_launcher() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, unsandboxed.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        assert is_there(pid)
        launcher.kill()
    await eventually(lambda: not alive(pid))


def test_passt_is_not_started_for_an_ended_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", unsandboxed.__file__, "1", "200", "/bin/sh", "-c", f"touch {tmp_path}/begun"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "process 1, which started this one, has ended")
    assert not (tmp_path / "begun").exists()
