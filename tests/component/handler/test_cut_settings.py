"""virt-handler is killed at each step of a setting's change; the next one finishes the change.

A step is a request to virt-launcher or a write of the status. It is lost, or carried out without an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.spec import live_changes
from launcher.protocol import messages
from tests.component.handler.test_cut_verbs import Cutter
from tests.component.handler.world import VMS, World, a_world, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

MEMORY: Final = live_changes.MEMORY.what
SMALL, LARGE = str(256 << 20), str(512 << 20)
ROOM: Final[dict[str, Any]] = {"memory": {"guest": "256Mi", "maxGuest": "1Gi"}, "cpu": {"sockets": 1, "maxSockets": 4}}
CHANGES: Final[Mapping[live_changes.What, tuple[dict[str, Any], str, str]]] = {
    "cpu.sockets": ({"cpu": {**ROOM["cpu"], "sockets": 3}}, "1", "3"),
    MEMORY: ({"memory": {**ROOM["memory"], "guest": "512Mi"}}, SMALL, LARGE),
    "interface.state": ({"devices": {"interfaces": [{"name": "default", "state": "down"}]}}, "up", "down"),
}


def name_of(what: str) -> str:
    return "default" if what == "interface.state" else ""


def settings(launcher: FakeLauncher) -> dict[str, messages.SettingStatus]:
    assert launcher.status.domain is not None
    return {each.what: each for each in launcher.status.domain.settings}


def report(launcher: FakeLauncher, *told: messages.SettingStatus) -> None:
    assert launcher.status.domain is not None
    launcher.change(domain=replace(launcher.status.domain, settings=told, changes=live_changes.KNOWN))


def gives_memory(launcher: FakeLauncher) -> bool:
    told = settings(launcher).get(MEMORY)
    if told is not None and told.requested:
        report(launcher, replace(told, value=told.requested, requested=""))
    return True


async def edit(world: World, members: Mapping[str, Any]) -> None:
    def change(vm: dict[str, Any]) -> None:
        runs = {**vm["spec"]["domain"], **ROOM, "devices": {"disks": [], "interfaces": [{"name": "default"}]}}
        vm["spec"]["domain"] = {**runs, **members}
        vm["status"] |= {"running": {"generation": 1, "domain": runs}, "podResize": {"guestMemoryBytes": int(LARGE)}}

    await world.api.edit(VMS, "default", "testvm", change)


async def played(kubelet: Path, what: live_changes.What, step: int, *, is_lost: bool) -> bool:
    """Change a setting, cut at ``step``, before its effect (``is_lost``) or after it; return False without that step."""
    members, before, after = CHANGES[what]
    async with a_world(kubelet) as world:
        await world.vm()
        launcher = await world.launcher("pod-1")
        cutter = Cutter(world, launcher, is_lost)
        cutter.install()

        def is_done() -> bool:
            return gives_memory(launcher) and "running" not in world.status() and not world.status().get("changes")

        async with world.handler():
            await eventually(lambda: phase_is(world, "Running"))
            report(launcher, messages.SettingStatus(what, name_of(what), before))
            await eventually(lambda: "liveChanges" in world.status()["domain"])
            cutter.at = step
            await edit(world, members)
            await eventually(lambda: cutter.cut.is_set() or is_done())
        if not cutter.cut.is_set():
            return False
        async with world.handler():
            await eventually(is_done)
        assert settings(launcher)[what].value == after
        assert launcher.starts == 1
    return True


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize("what", CHANGES)
async def test_next_virt_handler_finishes_a_change(tmp_path: Path, what: live_changes.What, is_lost: bool) -> None:
    step = 0
    while await played(tmp_path / str(step), what, step, is_lost=is_lost):
        step += 1
    assert step >= 2, "a request and a write"
