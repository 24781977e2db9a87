from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.apis.virt.places import streams
from certs.reloading import ClientTls, Files, ServerTls
from controller.runtime.reconciling import Request
from handler.pods import launcher, reads
from handler.pods.links import Holder, Links
from handler.pods.reads import Reads
from handler.streams import reading
from handler.streams.reading import Reading
from handler.streams.server import Server, Target
from launcher.protocol import messages
from tests.component.handler.tls import Authority
from tests.component.handler.world import eventually
from tests.fakes.launcher import FakeLauncher

POD = "pod-1"


class Scene:
    def __init__(self, root: Path, wait_seconds: float = reads.WAIT_SECONDS, fresh_seconds: float = reads.FRESH_SECONDS) -> None:
        self.root = root
        self.authority = Authority(root / "certs")
        self.launcher = FakeLauncher(POD)
        self.launcher.texts["song"] = '{"la": 1}'
        connect = partial(launcher.connect, kubelet=root, identify=self.launcher.identify)
        self.links = Links(connect, changed=lambda _: None)
        self.targets = {"uid-1": Target(POD), "uid-off": Target(POD, "the guest is not running")}
        tls = ServerTls(self.authority.node("n"), clients=ssl.CERT_REQUIRED)
        lookup = lambda _machine, uid: self.targets.get(uid)  # noqa: E731 - as the agent's
        self.asking = Reads(self.links, wait_seconds=wait_seconds, fresh_seconds=fresh_seconds)
        answers = Reading(self.asking.read, {"song": json.loads})
        self.server = Server(lookup, tls, host="127.0.0.1", port=0, kubelet=root, reads=answers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.launcher.serving(self.root), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in (self.server, self.links)]
            await self.server.ready.wait()
            link = self.links.acquire(POD, Holder("vm", Request("default", "testvm")))
            await eventually(lambda: link.connection is not None)
            yield
            for task in running:
                task.cancel()

    async def get(self, what: str = "song", uid: str = "uid-1", files: Files | None = None) -> tuple[int, Any]:
        context = ClientTls(files or self.authority.virt_api()).context
        url = f"https://127.0.0.1:{self.server.port}{streams.handler_path('default', 'testvm', uid, what)}"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(url, server_hostname="n.virt-handler") as response,
        ):
            return response.status, await response.json()

    @property
    def asked(self) -> list[messages.Request]:
        return [each for each in self.launcher.received if isinstance(each, messages.Read)]


@pytest.fixture
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, **getattr(request, "param", {}))
    async with made.running():
        yield made


async def test_the_launcher_is_asked_once_for_all_who_ask(scene: Scene) -> None:
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(scene.get()) for _ in range(reading.MAX_WAITING_PER_MACHINE)]

    assert [each.result() for each in answers] == [(200, {"la": 1})] * len(answers)
    assert scene.asked == [messages.Read("song")]
    assert await scene.get() == (200, {"la": 1})
    assert len(scene.asked) == 1


@pytest.mark.parametrize("scene", [{"fresh_seconds": 0.0}], indirect=True)
async def test_an_answer_that_is_not_fresh_any_more_is_asked_for_again(scene: Scene) -> None:
    await scene.get()
    scene.launcher.texts["song"] = '{"lo": 2}'

    assert await scene.get() == (200, {"lo": 2})


@pytest.mark.parametrize("scene", [{"fresh_seconds": 0.2}], indirect=True)
async def test_unrequested_answer_is_not_kept(scene: Scene) -> None:
    await scene.get()
    assert scene.asking._asked
    await eventually(lambda: not scene.asking._asked)
    assert scene.asking._next is None


async def test_single_timer_forgets_answers(scene: Scene) -> None:
    await scene.get()
    first = scene.asking._next
    assert first is not None
    await scene.get()
    assert first.cancelled()


async def test_only_virt_api_reads(scene: Scene) -> None:
    code, status = await scene.get(files=scene.authority.node("n2"))
    assert (code, status["kind"]) == (403, "Status")
    assert scene.asked == []


async def test_missing_reads_are_reported(scene: Scene) -> None:
    assert (await scene.get(uid="other"))[0] == 404
    assert (await scene.get(uid="uid-off"))[0] == 400
    assert (await scene.get(what="dance"))[0] == 404


@pytest.mark.parametrize(("reason", "code"), [("Invalid", 400), ("Conflict", 409), ("Timeout", 504), ("Failed", 503), ("NotReady", 409)])
async def test_a_refusal_is_everybodys_and_made_printable(scene: Scene, reason: messages.RefusalReason, code: int) -> None:
    scene.launcher.texts["song"] = messages.Refusal(0, reason, "no \x1b[2Jvoice", messages.Status(1))

    found, status = await scene.get()
    assert (found, status["message"]) == (code, "song of virtual machine default/testvm: no [2Jvoice")
    assert (await scene.get())[0] == code
    assert len(scene.asked) == 1


async def test_malformed_answer_is_not_passed_on(scene: Scene) -> None:
    scene.launcher.texts["song"] = "no json"

    code, status = await scene.get()
    assert (code, "returned invalid song" in status["message"]) == (503, True)


@pytest.mark.parametrize("scene", [{"wait_seconds": 1.0}], indirect=True)
async def test_a_launcher_that_does_not_answer_keeps_few_waiting(scene: Scene) -> None:
    scene.launcher.mute_reads = True
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(scene.get()) for _ in range(reading.MAX_WAITING_PER_MACHINE + 3)]

    codes = sorted(each.result()[0] for each in answers)
    assert codes == [429] * 3 + [504] * reading.MAX_WAITING_PER_MACHINE
    assert len(scene.asked) == 1
    link = scene.links.get(POD)
    assert link is not None
    assert link.connection is not None


async def test_a_launcher_of_an_older_release_is_not_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.launcher.texts.clear()
    async with scene.running():
        code, status = await scene.get()

    assert (code, "of an older version without song" in status["message"]) == (400, True)
    assert scene.asked == []


async def test_a_launcher_that_hangs_up_is_told(scene: Scene) -> None:
    scene.launcher.mute_reads = True
    async with asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(scene.get())
        await eventually(lambda: bool(scene.asked))
        scene.launcher.hang_up()

    code, status = answer.result()
    assert (code, "closed the connection" in status["message"]) == (503, True)


async def test_answer_of_a_gone_launcher_is_not_its_successors(scene: Scene) -> None:
    link = scene.links.get(POD)
    assert link is not None
    before = link.connection
    await scene.get()
    scene.launcher.hang_up()
    await eventually(lambda: link.connection is not None and link.connection is not before)
    scene.launcher.texts["song"] = '{"lo": 2}'

    assert await scene.get() == (200, {"lo": 2})


async def test_a_reader_that_leaves_takes_nothing_from_the_others(scene: Scene) -> None:
    asking = Reads(scene.links)
    scene.launcher.mute_reads = True
    async with asyncio.TaskGroup() as tasks:
        first, second = (tasks.create_task(asking.read(POD, "song")) for _ in range(2))
        await eventually(lambda: bool(scene.asked))
        first.cancel()
        (pending,) = asking._asked.values()
        await asyncio.wait((first,))
        scene.launcher.mute_reads = False
        connection = pending.connection
        connection._take(messages.Content(next(iter(connection._waiting)), "la"))

    assert second.result() == "la"
    assert not connection._waiting
