"""virt-handler is killed at each step of each verb; the next one finishes the verb once.

A step is a request to virt-launcher, a mount of a memory image, or a write of the status. It is lost, or carried out without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.meta.errors import ServiceUnavailable
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import operations
from handler.network.namespaces import CommandFailed
from launcher.protocol import messages
from tests.component.handler.test_guests import ask, result_of
from tests.component.handler.test_suspension import ID, IMAGE, claimed, image, on_disk, on_node_disk
from tests.component.handler.world import FakeNode, World, a_world, eventually, phase_is
from tests.fakes.launcher import FakeLauncher
from tests.unit.handler.reconcilers.builders import a_pause, an_operation

PAUSE: Final = "pause"
RESUME_FROM_IMAGE: Final = "resume from an image"
SUSPEND_TO_NODE_DISK: Final = "suspend to the node's disk"
RESUME_FROM_NODE_DISK: Final = "resume from the node's disk"
ON_NODE_DISK: Final = (SUSPEND_TO_NODE_DISK, RESUME_FROM_NODE_DISK)
SUSPENDS: Final = (operations.SUSPEND, SUSPEND_TO_NODE_DISK)
RESUMES: Final = (RESUME_FROM_IMAGE, RESUME_FROM_NODE_DISK)
VERBS: Final = (*operations.ACTIONS, PAUSE, RESUME_FROM_IMAGE, *ON_NODE_DISK)


@dataclass
class Cutter:
    world: World
    launcher: FakeLauncher
    is_lost: bool
    at: int | None = None
    steps: int = 0
    carried_out: int = 0
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    def install(self) -> None:
        judge = self.world.api.judge
        assert judge is not None
        self.world.api.judge = partial(self._write, judge)
        self.launcher.instead = self._request

    def _is_cut_here(self) -> bool:
        self.steps += self.at is not None
        if self.steps - 1 != self.at:
            return False
        self.cut.set()
        return True

    @contextmanager
    def killed(self) -> Iterator[None]:
        is_cut = self._is_cut_here()
        if is_cut and self.is_lost:
            raise CommandFailed("the command did not run")
        yield
        if is_cut:
            raise CommandFailed("the command's end was not seen")

    async def mount(self, change: Callable[[], object]) -> None:
        is_cut = self._is_cut_here()
        if not (is_cut and self.is_lost):
            change()
        if is_cut:
            await asyncio.Event().wait()

    def _write(self, judge: Callable[[str, str, Object, Object], None], *write: Any) -> None:
        if self._is_cut_here() and self.is_lost:
            raise ServiceUnavailable("the write is lost")
        judge(*write)

    def _request(self, request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        is_cut = self._is_cut_here()
        if is_cut and self.is_lost:
            self.launcher.hang_up()
            return "Failed", "unread"
        new = isinstance(request, messages.Operate) and self.launcher.status.operation_of(request.id) is None
        refusal = self.launcher._carry_out(request)
        self.carried_out += new and refusal is None
        if new and isinstance(request, messages.Operate) and request.action in (operations.SUSPEND, "SuspendToNodeDisk"):
            asyncio.get_running_loop().call_later(0.02, self.launcher.saved, IMAGE)
        if is_cut:
            self.launcher.hang_up()
        return refusal


def is_done(world: World, launcher: FakeLauncher, verb: str) -> bool:
    match verb:
        case operations.SUSPEND | "suspend to the node's disk":
            return phase_is(world, "Suspended")
        case "pause":
            told = {each["type"]: each["status"] for each in world.status()["conditions"]}
            return told.get("Paused") == "True" and launcher.status.domain is not None and launcher.status.domain.state == "paused"
        case "resume from an image" | "resume from the node's disk":
            return phase_is(world, "Running")
        case _:
            return result_of(world, ID)[0] != ""


async def begin(world: World, verb: str) -> None:
    if verb == PAUSE:
        await ask(world, pause=a_pause())
    elif verb == SUSPEND_TO_NODE_DISK:
        await ask(world, an_operation(ID, 1, operations.SUSPEND, parameters={"nodeDisk": True}))
    else:
        await ask(world, an_operation(ID, 1, verb))


async def played(kubelet: Path, verb: str, step: int, *, is_lost: bool) -> bool:
    """Call a verb, cut at ``step``, before its effect (``is_lost``) or after it; return False without that step."""
    prepare, saved = (on_node_disk, on_disk()) if verb in ON_NODE_DISK else (claimed, image())
    async with a_world(kubelet) as world:
        await prepare(world, **({"managedSave": saved} if verb in RESUMES else {}))
        launcher = await world.launcher("pod-1")
        cutter = Cutter(world, launcher, is_lost)
        cutter.install()
        node = FakeNode()
        node.mounting = cutter.mount
        done = partial(is_done, world, launcher, verb)
        if verb in RESUMES:
            cutter.at = step
        async with world.handler(fake=node):
            if verb not in RESUMES:
                await eventually(lambda: phase_is(world, "Running"))
                cutter.at = step
                await begin(world, verb)
            await eventually(lambda: cutter.cut.is_set() or done())
        if not cutter.cut.is_set():
            return False
        async with world.handler(fake=node):
            await eventually(done)
        assert launcher.starts == 1
        if verb in (*operations.ACTIONS, SUSPEND_TO_NODE_DISK):
            assert cutter.carried_out == 1
            assert result_of(world, ID)[0] == operations.SUCCEEDED
        assert [each.id for each in node.memory_images] == ([ID] if verb in ON_NODE_DISK else [])
        assert ("managedSave" in world.status()) is (verb in SUSPENDS)
    return True


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize("verb", VERBS)
async def test_next_virt_handler_finishes_a_verb_once(tmp_path: Path, verb: str, is_lost: bool) -> None:
    step = 0
    while await played(tmp_path / str(step), verb, step, is_lost=is_lost):
        step += 1
    assert step >= (3 if verb in ON_NODE_DISK else 2), "a request and a write; on a node's disk also a mount"
