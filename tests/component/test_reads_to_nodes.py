from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.schema import Model
from apiserver.apis.virt.places import noderead
from apiserver.registry.virt import reads
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.reads import HandlerRead
from apiserver.registry.virt.revoking import RevokedNodes
from certs.reloading import ClientTls, Files, ServerTls
from handler.streams.reading import Reading
from handler.streams.server import Server, Target
from tests.component.handler.tls import Authority, Operator, revoking
from tests.component.handler.world import eventually
from tests.component.test_streams_to_nodes import UNTRUSTED


class Song(Model):
    words: list[str] | None = None


class Sing(HandlerRead):
    name = "song"
    answers = Resource("kubevirt.io", "v1alpha1", "songs", "Song")
    model = Song


class Scene:
    def __init__(self, root: Path, authority: Authority, revoked: RevokedNodes, operator: Operator) -> None:
        self.root, self.authority, self.revoked, self.operator = root, authority, revoked, operator
        self.text = json.dumps({"words": ["la"], "kind": "Status", "metadata": {"name": "x"}, "tune": 1})
        self.problem: errors.StatusError | None = None
        self.asked = 0
        self.gate: asyncio.Event | None = None
        self.port = 0
        tls = ClientTls(authority.virt_api())
        self.handlers = Handlers(self._locate, lambda: tls.context, revoked)
        self.song = Sing(self.handlers)

    async def _locate(self, node: str) -> tuple[str, int]:
        assert node
        return "127.0.0.1", self.port

    async def _tell(self, pod_uid: str, what: str) -> str:
        assert (pod_uid, what) == ("pod-1", "song")
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return self.text

    def vm(self, **status: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": "vm1", "namespace": "default", "uid": "u1", "labels": {"a": "b"}},
            "spec": {"domain": {}},
            "status": {"phase": "Running", "nodeName": "node1", **status},
        }

    @asynccontextmanager
    async def handler(self, files: Files) -> AsyncIterator[None]:
        tls = ServerTls(files, clients=ssl.CERT_REQUIRED)
        reading = Reading(self._tell, {"song": json.loads})
        server = Server(lambda *_: Target("pod-1"), tls, host="127.0.0.1", port=0, kubelet=self.root, reads=reading)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.run())
            await server.ready.wait()
            self.port = server.port
            yield
            task.cancel()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    authority = Authority(tmp_path / "certs")
    async with revoking(authority) as (revoked, operator):
        yield Scene(tmp_path, authority, revoked, operator)


async def test_nodes_answer_becomes_an_object(scene: Scene) -> None:
    async with scene.handler(scene.authority.node("node1")):
        found = await scene.song.read(scene.vm())

    metadata = {"name": "vm1", "namespace": "default", "uid": "u1"}
    assert found == {"kind": "Song", "apiVersion": "kubevirt.io/v1alpha1", "metadata": metadata, "words": ["la"]}


@pytest.mark.parametrize("text", ['{"words": "la"}', '{"words": [1]}', '{"words": ' + "[" * 500 + "]" * 500 + "}"])
async def test_malformed_node_answer_is_refused(scene: Scene, text: str) -> None:
    scene.text = text
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(errors.ServiceUnavailable, match="returned an invalid song"):
            await scene.song.read(scene.vm())


async def test_a_node_that_says_too_much_is_not_listened_to(scene: Scene) -> None:
    scene.text = json.dumps({"words": ["x" * noderead.MAX_BYTES]})
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(errors.ServiceUnavailable, match="longer than"):
            await scene.song.read(scene.vm())


@pytest.mark.parametrize("kind", [errors.Conflict, errors.Timeout, errors.ServiceUnavailable, errors.TooManyRequests])
async def test_why_the_node_does_not_tell_is_passed_on(scene: Scene, kind: type[errors.StatusError]) -> None:
    scene.problem = kind("no voice", errors.Details(retry_after_seconds=3))
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(kind, match="song of virtual machine default/vm1: no voice") as raised:
            await scene.song.read(scene.vm())

    assert raised.value.details.retry_after_seconds == 3


async def test_no_terminal_obeys_why_a_node_does_not_tell(scene: Scene) -> None:
    scene.problem = errors.Conflict("\x1b[2J no\nvoice", errors.Details(retry_after_seconds=1 << 30))
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(errors.Conflict, match=r"song of virtual machine default/vm1: \[2J no \| voice") as raised:
            await scene.song.read(scene.vm())

    assert raised.value.details.retry_after_seconds == errors.MAX_UNTRUSTED_RETRY_SECONDS


@pytest.mark.parametrize(
    ("status", "words"), [({"phase": "Stopped"}, r"it is not running \(phase Stopped\)"), ({"nodeName": ""}, "its node is not known")]
)
async def test_a_machine_without_a_guest_is_not_asked_about(scene: Scene, status: dict[str, str], words: str) -> None:
    with pytest.raises(errors.BadRequest, match=f'cannot read song of virtual machine "vm1": .*{words}'):
        await scene.song.read(scene.vm(**status))


@pytest.mark.parametrize("untrusted", UNTRUSTED)
async def test_untrusted_peers_at_the_nodes_address_are_not_believed(scene: Scene, untrusted: str) -> None:
    make: Callable[[Authority], Files] = UNTRUSTED[untrusted]
    async with scene.handler(make(scene.authority)):
        with pytest.raises(errors.ServiceUnavailable, match="cannot connect"):
            await scene.song.read(scene.vm())

    assert scene.asked == 0


async def test_a_revoked_node_is_not_believed(scene: Scene) -> None:
    await scene.operator.revoke("node1", "2126-01-01T00:00:00Z")
    await eventually(lambda: bool(scene.revoked._revocations.nodes))
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(errors.ServiceUnavailable, match="is not trusted: certificates of node node1 from before 2126"):
            await scene.song.read(scene.vm())
    await scene.operator.revoke("node1")
    await eventually(lambda: scene.revoked.is_revoked("node1"))
    with pytest.raises(errors.ServiceUnavailable, match='node "node1" is revoked'):
        await scene.song.read(scene.vm())


async def test_few_may_wait_for_one_machine(scene: Scene) -> None:
    scene.gate = asyncio.Event()
    async with scene.handler(scene.authority.node("node1")), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(scene.song.read(scene.vm())) for _ in range(reads.MAX_WAITING_PER_MACHINE)]
        await eventually(lambda: scene.asked == len(waiting))
        with pytest.raises(errors.TooManyRequests, match="too many similar requests for song"):
            await scene.song.read(scene.vm())
        scene.gate.set()

    assert all(each.result()["words"] == ["la"] for each in waiting)
    assert not scene.song._waiting._waiting


async def test_a_node_that_does_not_answer_is_given_up(scene: Scene) -> None:
    song = Sing(scene.handlers, seconds=1.0)
    scene.gate = asyncio.Event()
    async with scene.handler(scene.authority.node("node1")):
        with pytest.raises(errors.Timeout, match=r"^virt-handler of node node1 was asked for song of virtual machine"):
            await song.read(scene.vm())
        scene.gate.set()
