"""virt-handler or libvirtd is killed at each step of a change of a running guest's disks and media; the change is then finished once.

A step is a mount, a request to virt-launcher, or a write of the status. It is lost, or carried out without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from apiserver.apis.meta.errors import ServiceUnavailable
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import hot_plug
from launcher.protocol import messages
from tests.component.handler.world import VMS, FakeNode, World, a_world, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

NEXT: Final = "pod-of-the-next-medium"
CLAIM: Final = {"type": "PersistentVolumeClaim", "source": {"name": "data"}}
DRIVE: Final = {"device": "cdrom"}
IMPORTED: Final = {"type": "PersistentVolumeClaim", "source": {"name": "data", "import": {"http": {"url": "http://images/x"}}}}
BLANK: Final = {"type": "EmptyDisk", "source": {"size": "1Mi"}}


class Case(NamedTuple):
    before: Object | None
    """Without its name; None: the guest lacks the disk."""
    after: Object | None
    changes: str


CASES: Final = {
    "attach": Case(None, CLAIM, hot_plug.DISK),
    "detach": Case(CLAIM, None, hot_plug.DISK),
    "attach an overlay": Case(None, BLANK, hot_plug.OVERLAY),
    "detach an overlay": Case(BLANK, None, hot_plug.OVERLAY),
    "attach an import": Case(None, IMPORTED, hot_plug.DISK),
    "detach an import": Case(IMPORTED, None, hot_plug.DISK),
    "insert": Case(DRIVE, {**DRIVE, **CLAIM}, hot_plug.MEDIUM),
    "eject": Case({**DRIVE, **CLAIM}, DRIVE, hot_plug.MEDIUM),
    "another medium": Case({**DRIVE, **CLAIM}, {**DRIVE, **CLAIM, "source": {"name": "other"}}, hot_plug.MEDIUM),
}


@dataclass
class Cutter:
    world: World
    launcher: FakeLauncher
    is_lost: bool
    kills_libvirtd: bool
    at: int
    steps: int | None = None
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    def install(self) -> None:
        judge = self.world.api.judge
        assert judge is not None
        self.world.api.judge = partial(self._write, judge)
        self.launcher.instead = self._request

    def _is_cut_here(self) -> bool:
        if self.steps is None or self.cut.is_set():
            return False
        self.steps += 1
        if self.steps - 1 == self.at:
            self.cut.set()
        return self.cut.is_set()

    async def mount(self, change: Callable[[], object]) -> None:
        is_cut = not self.kills_libvirtd and self._is_cut_here()
        if not (is_cut and self.is_lost):
            change()
        if is_cut:
            await asyncio.Event().wait()

    def _write(self, judge: Callable[[str, str, Object, Object], None], *write: Any) -> None:
        if not self.kills_libvirtd and self._is_cut_here() and self.is_lost:
            raise ServiceUnavailable("the write is lost")
        judge(*write)

    def _request(self, request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        is_cut = self._is_cut_here()
        refusal = None if is_cut and self.is_lost else self.launcher._carry_out(request)
        if is_cut and self.kills_libvirtd:
            return "Timeout", "libvirtd was killed"
        if is_cut:
            self.launcher.hang_up()
        return refusal


def forms(vm: Object, case: Case) -> tuple[Object, Object]:
    domain, (root, *_) = vm["spec"]["domain"], vm["spec"]["domain"]["devices"]["disks"]
    disks = ([root, *([{"name": "data", **each}] if each is not None else [])] for each in (case.before, case.after))
    old, new = ({**domain, "devices": {**domain["devices"], "disks": each}} for each in disks)
    return old, new


def edit(case: Case) -> Callable[[Object], None]:
    def change(vm: Object) -> None:
        old, new = forms(vm, case)
        vm["spec"]["domain"] = new
        vm["status"]["running"] = {"generation": 1, "domain": old}
        record(vm, "pod-of-the-disk")

    return change


def record(vm: Object, pod_uid: str) -> None:
    (disk,) = (each for each in (*hot_plug.added(vm), *hot_plug.removed(vm)) if each["name"] == "data")
    volume = {"attachPodName": hot_plug.pod_name(vm, disk), "attachPodUID": pod_uid}
    vm["status"]["volumeStatus"] = [{"name": "data", "phase": "AttachedToNode", "hotplugVolume": volume}]
    hot_plug.record(vm)


async def follow_ejection(world: World) -> None:
    await eventually(lambda: "running" in world.status() and bool(hot_plug.added(world.api.get(VMS, "default", "testvm"))))
    await world.api.edit(VMS, "default", "testvm", partial(record, pod_uid=NEXT))


def report(launcher: FakeLauncher, case: Case) -> None:
    assert launcher.status.domain is not None
    own = messages.DeviceStatus("disk", "data", "vdb", empty=case.before == DRIVE)
    devices = (messages.DeviceStatus("disk", "disk0", "vda"), *((own,) if case.before is not None else ()))
    launcher.change(domain=replace(launcher.status.domain, devices=devices, changes=(case.changes,)))


def is_there(launcher: FakeLauncher) -> list[bool]:
    domain = launcher.status.domain
    return [not each.empty for each in domain.devices if each.name == "data"] if domain is not None else []


async def played(kubelet: Path, case: Case, step: int, *, is_lost: bool, kills_libvirtd: bool) -> bool:
    """Plug or unplug a disk, cut at ``step``, before its effect (``is_lost``) or after it; return False without that step."""
    comes, again = case.after not in (None, DRIVE), case.before not in (None, DRIVE) and case.after not in (None, DRIVE)
    expected = [True] if comes else [False] if case.after == DRIVE else []
    mounted = {} if comes and not again else {"data": "pod-of-the-disk"}
    async with a_world(kubelet) as world, AsyncExitStack() as first, asyncio.TaskGroup() as tasks:
        await world.vm()
        launcher = await world.launcher("pod-1")
        await world.launcher("pod-of-the-disk")
        launcher.drives = ("data",) if case.changes == hot_plug.MEDIUM else ()
        cutter = Cutter(world, launcher, is_lost, kills_libvirtd, step)
        cutter.install()

        def prepare(node: FakeNode) -> None:
            node.mounted, node.mounting = mounted, cutter.mount

        def is_done() -> bool:
            done = {"data": NEXT if again else "pod-of-the-disk"} if comes else {}
            return is_there(launcher) == expected and mounted == done and "running" not in world.status()

        prepare((await first.enter_async_context(world.handler())).node)
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher, case)
        await eventually(lambda: world.status()["domain"].get("liveChanges") == [case.changes])
        cutter.steps = 0
        await world.api.edit(VMS, "default", "testvm", edit(case))
        follower = tasks.create_task(follow_ejection(world)) if again else None
        await eventually(lambda: cutter.cut.is_set() or is_done())
        is_cut = cutter.cut.is_set()
        if is_cut and not kills_libvirtd:
            await first.aclose()
            prepare((await first.enter_async_context(world.handler())).node)
        if follower is not None:
            await follower
        await eventually(is_done)
        await eventually(lambda: not world.status().get("changes"))
        assert launcher.starts == 1
    return is_cut


@pytest.mark.sample(3, "cuts of disk changes")
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize(("kills_libvirtd", "least"), [(False, 2), (True, 1)], ids=["virt-handler", "libvirtd"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_change_is_finished_after_a_kill_at_each_step(
    tmp_path: Path, case: Case, least: int, *, kills_libvirtd: bool, is_lost: bool
) -> None:
    step = 0
    while await played(tmp_path / str(step), case, step, is_lost=is_lost, kills_libvirtd=kills_libvirtd):
        step += 1
    assert step >= least
