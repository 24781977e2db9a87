from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import Times
from launcher.main.disks.import_plans import Directories
from launcher.main.lifecycle.imports import Imports
from launcher.main.lifecycle.record import Record
from launcher.main.programs.children import Children
from launcher.protocol import messages
from tests.unit.launcher.main.world import MACHINE, World

SAYS_DONE = 'print(\'{"phase": "Downloading", "bytes": 5, "total": 9}\'); print(\'{"result": "Succeeded"}\')'


def a_machine(*names: str, **given: Any) -> messages.Machine:
    disks = [{"name": each, "type": "PersistentVolumeClaim", "source": {"name": each, "import": {"http": {"url": "http://h/"}, **given}}}
             for each in names]  # fmt: skip
    return messages.Machine("default", "testvm", "u-1", {"memory": {"guest": "128Mi"}, "devices": {"disks": disks}}, "qemu")


class Pod:
    def __init__(self, directory: Path) -> None:
        self.directories = Directories(directory / "disks", directory / "devices", directory / "secrets", directory / "authorities")
        self.program = directory / "program.py"
        self.record = Record(qemu_log=lambda _: directory / "log", status_changed=lambda: None)
        self.children = Children()
        self.imports = Imports(
            self.children,
            self.record,
            directories=self.directories,
            command=(sys.executable, "-S", str(self.program)),
            times=Times(import_retry=(0.01, 0.01)),
        )

    def play(self, program: str) -> None:
        self.program.with_suffix(".new").write_text(program)
        self.program.with_suffix(".new").rename(self.program)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(each.disk, each.phase) for each in self.record.known.status.imports]

    async def until(self, *wanted: tuple[str, str]) -> None:
        async with asyncio.timeout(40):
            while self.told != list(wanted):
                await asyncio.sleep(0.01)


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod(tmp_path)
    with made.children.reaping():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(made.imports.run())
            yield made
            task.cancel()


async def refused(pod: Pod, machine: messages.Machine) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await pod.imports.ask(machine)
    return found.value


async def test_a_machine_without_imports_waits_for_nothing(pod: Pod) -> None:
    await pod.imports.ask(MACHINE)
    assert pod.told == []


async def test_a_claim_that_has_a_disk_is_left_alone(pod: Pod) -> None:
    pod.play("raise SystemExit(1)")
    (pod.directories.disks / "a").mkdir(parents=True)
    (pod.directories.disks / "a" / "disk.img").symlink_to("/nowhere")
    await pod.imports.ask(a_machine("a"))
    assert pod.told == []


async def test_start_is_refused_until_all_imports_are_done(pod: Pod) -> None:
    pod.play(f"import sys; sys.stdin.read(); {SAYS_DONE}")
    answer = await refused(pod, a_machine("a", "b"))
    assert (answer.reason, answer.disks) == ("NotReady", ("a", "b"))
    await pod.until(("a", "Succeeded"), ("b", "Succeeded"))
    assert [(each.transferred_bytes, each.total_bytes) for each in pod.record.known.status.imports] == [(5, 9)] * 2
    await pod.imports.ask(a_machine("a", "b"))


async def test_the_importer_is_given_its_plan(pod: Pod, tmp_path: Path) -> None:
    pod.play(f"import sys; open({str(tmp_path / 'plan')!r}, 'w').write(sys.stdin.read()); {SAYS_DONE}")
    given = {"url": "http://h/", "secretRef": {"name": "s"}, "caConfigMapRef": {"name": "c", "key": "k"}}
    await refused(pod, a_machine("a", http=given, size="1Gi"))
    await pod.until(("a", "Succeeded"))
    assert json.loads((tmp_path / "plan").read_text()) == {
        "directory": str(pod.directories.disks / "a"),
        "source": {"http": given, "size": "1Gi"},
        "size": 1 << 30,
        "secret": str(pod.directories.secrets / "a"),
        "authorities": str(pod.directories.authorities / "a" / "ca.crt"),
    }


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ('print(\'{"result": "Failed", "message": "no such file"}\'); raise SystemExit(1)', "no such file"),
        ('print(\'{"result": "Failed", "message": "a\\\\u001b[31m\\\\nb"}\'); raise SystemExit(1)', "a"),
        ("raise SystemExit(3)", "the importer exited with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "the importer exited with status -9"),
        (SAYS_DONE + "; raise SystemExit(1)", "the importer exited with status 1"),
        ("print('x' * 100000)", "the importer exited with status 0"),
        ("print('[' * 8000)", "the importer exited with status 0"),
        (
            ("print('[]'); print('{\"phase\": \"Downloading\"}'); print('{\"phase\": [], \"bytes\": 1}'); print('null')"),
            "the importer exited",
        ),
    ],
)
async def test_failed_import_is_reported_and_retried(pod: Pod, program: str, words: str) -> None:
    pod.play(program)
    await refused(pod, a_machine("a"))
    async with asyncio.timeout(40):
        while pod.record.known.status.imports[0].failures < 2:
            await asyncio.sleep(0.01)
    (status,) = pod.record.known.status.imports
    assert status.message.startswith(words)
    assert status.message.isprintable()
    pod.play(SAYS_DONE)
    await pod.until(("a", "Succeeded"))
    assert pod.record.known.status.imports[0].message == ""


async def test_imports_run_one_at_a_time(pod: Pod, tmp_path: Path) -> None:
    running = str(tmp_path / "running")
    pod.play(
        f"import os, time; os.close(os.open({running!r}, os.O_CREAT | os.O_EXCL)); time.sleep(0.3); os.unlink({running!r}); {SAYS_DONE}",
    )
    await refused(pod, a_machine("a", "b", "c"))
    await pod.until(("a", "Succeeded"), ("b", "Succeeded"), ("c", "Succeeded"))
    assert [each.failures for each in pod.record.known.status.imports] == [0, 0, 0]


async def test_the_end_of_the_pod_ends_an_import(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.play('import time; print(\'{"phase": "Converting", "bytes": 0, "total": null}\', flush=True); time.sleep(600)')
    with pod.children.reaping():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pod.imports.run())
            await refused(pod, a_machine("a"))
            await pod.until(("a", "Converting"))
            pid = next(iter(pod.children._waiting))
            task.cancel()
        async with asyncio.timeout(20):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.01)


async def test_pod_with_a_running_guest_imports_nothing(world: World) -> None:
    await world.domain.handle(messages.Sync(MACHINE))
    await world.domain.handle(messages.Import(a_machine("a")))
    assert world.status.imports == ()
