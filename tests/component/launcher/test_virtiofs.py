from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.domain.filesystems import Share
from launcher.main.programs import virtiofs
from launcher.main.programs.children import Children
from launcher.main.programs.virtiofs import Filesystems, FilesystemUnusable

PROGRAM = """#!{python}
import os, socket, sys, time
options = dict(each.split("=", 1) for each in sys.argv[1:] if "=" in each)
directory, path = options["--shared-dir"], options["--socket-path"]
if directory.endswith("/fails"):
    sys.exit("no such directory")
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
if directory.endswith("/fails-late"):
    time.sleep(0.1)
    sys.exit("no room")
print("x" * 200000, file=sys.stderr)
if not directory.endswith("/silent"):
    print("Waiting for vhost-user socket connection...", file=sys.stderr, flush=True)
open(os.path.join(os.path.dirname(path), "pid-" + os.path.basename(directory)), "w").write(str(os.getpid()))
time.sleep(60)
"""


def a_domain(*names: str) -> dict[str, Any]:
    return {"devices": {"filesystems": [{"name": each, "type": "ConfigMap", "source": {"name": "c"}} for each in names]}}


class World:
    def __init__(self, directory: Path, **how: Any) -> None:
        self.directory = directory
        self.lost: list[str] = []
        self.looks = 0
        self.filesystems = Filesystems(Children(), look=self.look, lost=self.lost.append, settle_seconds=0.0, **how)

    async def look(self) -> None:
        self.looks += 1

    async def pid(self, name: str) -> int:
        path = self.directory / f"pid-{name}"
        async with asyncio.timeout(20):
            while not path.exists() or not path.read_text():
                await asyncio.sleep(0.01)
        return int(path.read_text())


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def how() -> dict[str, Any]:
    return {}


@pytest.fixture
async def world(tmp_path: Path, pod_directories: Callable[..., None], how: dict[str, Any]) -> AsyncIterator[World]:
    program = tmp_path / "virtiofsd"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    pod_directories(RUN=tmp_path)
    made = World(tmp_path, **{"program": str(program), **how})
    with made.filesystems._children.reaping():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(made.filesystems.run())
            yield made
            task.cancel()


async def test_each_file_system_has_a_process_that_ends_with_us(world: World) -> None:
    await world.filesystems.start(a_domain("one", "two", "silent"))
    pids = [await world.pid(each) for each in ("one", "two", "silent")]
    assert all(is_there(each) for each in pids)
    await world.filesystems.start(a_domain("one"))
    assert not any(is_there(each) for each in pids)
    assert world.lost == []


async def test_ended_virtiofsd_is_reported_after_a_domain_look(world: World) -> None:
    await world.filesystems.start(a_domain("one", "two"))
    os.kill(await world.pid("two"), signal.SIGKILL)
    async with asyncio.timeout(20):
        while not world.lost:
            await asyncio.sleep(0.01)
    assert (world.lost, world.looks) == (["two"], 1)
    assert is_there(await world.pid("one"))


@pytest.mark.parametrize(("name", "words"), [("fails", "ended with 1: no such directory"), ("fails-late", "ended with 1: no room")])
async def test_failing_virtiofsd_is_reported_with_its_error(world: World, name: str, words: str) -> None:
    with pytest.raises(FilesystemUnusable, match=f"file system '{name}': virtiofsd {words}"):
        await world.filesystems.start(a_domain("one", name))


@pytest.mark.parametrize("how", [{"ready_seconds": 0.0}])
async def test_unready_virtiofsd_is_reported(world: World) -> None:
    with pytest.raises(FilesystemUnusable, match="was not ready within 0 s"):
        await world.filesystems.start(a_domain("one"))


@pytest.mark.parametrize("how", [{"program": "/nowhere/virtiofsd"}])
async def test_a_program_that_is_not_there_is_an_error_of_a_start(world: World) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        await world.filesystems.start(a_domain("one"))
    assert open_files() == before


def test_read_only_share_is_served_read_only() -> None:
    share = Share("data", "/d", "/s", read_only=False)
    assert "--readonly" not in virtiofs.command(share, 5)
    assert virtiofs.command(Share("data", "/d", "/s", read_only=True), 5) == [*virtiofs.command(share, 5), "--readonly"]
    assert "--rlimit-nofile=5" in virtiofs.command(share, 5)
