"""virt-api is killed, or etcd fails, at each request to etcd of each verb; the repeated call carries the verb out once.

A request is lost, or carried out without an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio

from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.client.rest import Client
from apiserver.server.options import Options
from apiserver.server.running import Kinds
from certs.reloading import ClientTls
from storage.memory import MemoryStorage
from storage.port import Batch, Condition, Delete, Entry, Page, Put, Unavailable
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.test_node_restriction import MACHINE, MIGRATION, MOMENT, RUNNING, launcher_pod, serving
from tests.component.handler.tls import Authority
from tests.contracts import test_served_versions as versions
from tests.contracts.test_served_versions import PODS, VERSIONS, Answer, Version, handling

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
T = TypeVar("T")
ID: Final = "0b7c1a52-0000-4000-8000-000000000001"
VERBS: Final[Mapping[str, Json | None]] = {**versions.VERBS, "cancelmigration": RUNNING, "setpassword": RUNNING}
SAVING: Final[Json] = {"managedSave": {"claimName": "memory"}}
SPECS: Final[Mapping[str, Json]] = {"start": {"runStrategy": "Halted"}, "suspend": SAVING, "resume": SAVING}
BODIES: Final[Mapping[str, Json]] = {
    "cancelmigration": {"migration": "move"},
    "setpassword": {"user": "debian", "password": "s3cret"},
    "sendkey": {"id": ID, "keys": ["KEY_A"]},
}
CUTS: Final = tuple((killed, is_lost) for killed in ("virt-api", "etcd") for is_lost in (True, False))


class CutStorage:
    def __init__(self, behind: MemoryStorage) -> None:
        self._behind = behind
        self.request_progress, self.compact, self.close = behind.request_progress, behind.compact, behind.close
        self.at: int | None = None
        self.killed = ""
        self.is_lost = False
        self.cut = asyncio.Event()
        self.steps = 0
        self._never = asyncio.Event()

    def arm(self, at: int, killed: str, *, is_lost: bool) -> None:
        self.at, self.killed, self.is_lost, self.steps = at, killed, is_lost, 0
        self.cut.clear()

    def disarm(self) -> None:
        self.at = None
        self._never.set()
        self._never = asyncio.Event()

    async def _asked(self, request: Callable[[], Awaitable[T]]) -> T:
        self.steps += self.at is not None
        if self.steps - 1 != self.at:
            return await request()
        if not self.is_lost:
            await request()
        self.cut.set()
        if self.killed == "virt-api":
            await self._never.wait()
        raise Unavailable("cut")

    async def get(self, key: str) -> Entry | None:
        return await self._asked(lambda: self._behind.get(key))

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        return await self._asked(lambda: self._behind.range(prefix, start=start, limit=limit, revision=revision))

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        return await self._asked(lambda: self._behind.commit(conditions, writes))

    async def revision(self) -> int:
        return await self._asked(self._behind.revision)

    def watch(self, prefix: str, *, after: int, previous: bool = True) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        return self._behind.watch(prefix, after=after, previous=previous)


@dataclass
class World:
    first: Version
    """Its requests to etcd are cut."""
    second: Version
    cutting: CutStorage
    known: dict[str, tuple[Answer, list[str]]] = field(default_factory=dict)

    async def begin(self, verb: str) -> list[str]:
        self.cutting.disarm()
        storage = self.second.storage
        await storage.commit([], [Delete(each.key) for each in (await storage.range("/registry/")).entries])
        machine = await self.second.make(VIRTUAL_MACHINES, {**MACHINE, "spec": {**MACHINE["spec"], **SPECS.get(verb, {})}})
        status = VERBS[verb]
        if status is not None:
            await self.second.cluster.kube.put(PODS, launcher_pod(machine, status.get("podName", "p1"), status.get("podUID", "uid-1")))
            assert (await self.second.put_status(status)).code == 200
        if verb == "cancelmigration":
            await self.second.make(MIGRATIONS, MIGRATION)
        return await self.objects()

    async def objects(self) -> list[str]:
        found = [each for kind in (VIRTUAL_MACHINES, MIGRATIONS) for each in (await self.second.ask("GET", kind)).body]
        return [steady(each) for each in found]

    async def done(self, verb: str) -> tuple[Answer, list[str]]:
        if verb not in self.known:
            await self.begin(verb)
            self.known[verb] = await call(self.second, verb), await self.objects()
        return self.known[verb]


def steady(obj: Json) -> str:
    """Return an object as text, without what differs between two equal histories."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    text = json.dumps({**obj, "metadata": metadata}, sort_keys=True)
    return re.sub(r"20\d\d-\d\d-\d\dT[\d:.]+Z", MOMENT, re.sub(r"[0-9a-f-]{36}", lambda match: match[0] if match[0] == ID else "uid", text))


async def call(through: Version, verb: str, query: str = "") -> Answer:
    return await through.ask("PUT", VIRTUAL_MACHINES, "vm1", verb, query, body=BODIES.get(verb, {"id": ID}))


async def call_cut(world: World, verb: str, query: str = "") -> Answer | None:
    async with asyncio.TaskGroup() as tasks:
        calling, cut = tasks.create_task(call(world.first, verb, query)), tasks.create_task(world.cutting.cut.wait())
        await asyncio.wait((calling, cut), return_when=asyncio.FIRST_COMPLETED)
        if cut.done() and world.cutting.killed == "virt-api":
            calling.cancel()
        cut.cancel()
    return None if calling.cancelled() else calling.result()


@pytest_asyncio.fixture(params=VERSIONS, scope="module", loop_scope="module")
async def world(request: pytest.FixtureRequest, pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory, storage = tmp_path_factory.mktemp("versions"), MemoryStorage()
    authority = Authority(directory / "certs")
    tls, cutting, known = ClientTls(authority.virt_api()), CutStorage(storage), list[Kinds]()

    def make(options: Options, client: Client | None) -> Kinds:
        known.append(versions.kinds(options, client, tls, handler))
        return known[-1]

    async with handling(authority) as handler, serving(pki, directory, storage=cutting, kinds=make) as first:
        await storage.commit([], [Delete(each.key) for each in (await storage.range("/registry/")).entries])
        async with serving(pki, directory, storage=storage, kinds=make) as second:
            hubs = [{each.resource.plural: each for each in kinds.strategies if each.hub is each} for kinds in known]
            through = [Version(request.param, each, of, handler, storage) for each, of in zip((first, second), hubs, strict=True)]
            yield World(through[0], through[1], cutting)
            cutting.disarm()


async def test_every_verb_is_cut(world: World) -> None:
    assert VERBS.keys() == world.first.hubs[VIRTUAL_MACHINES.plural].verbs.keys()


@pytest.mark.sample(4, "cuts of virt-api and etcd")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("killed", "is_lost"), CUTS, ids=lambda value: {True: "lost", False: "unanswered"}.get(value, value))
async def test_repeated_call_carries_a_verb_out_once(world: World, verb: str, killed: str, *, is_lost: bool) -> None:
    expected, done = await world.done(verb)
    step = 0
    while True:
        before = await world.begin(verb)
        world.cutting.arm(step, killed, is_lost=is_lost)
        answer = await call_cut(world, verb)
        if not world.cutting.cut.is_set():
            break
        left = await world.objects()
        assert left in (before, done), step
        assert answer is None or answer.code in (503, 504) or left == done, answer
        for _ in range(2):
            repeated = await call(world.second, verb)
            assert repeated.code in (200, 201), (step, repeated)
            assert steady(repeated.body) == steady(expected.body), step
            assert await world.objects() == done, step
        step += 1
    assert step >= 1


@pytest.mark.sample(4, "cuts of virt-api and etcd")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("killed", "is_lost"), CUTS, ids=lambda value: {True: "lost", False: "unanswered"}.get(value, value))
async def test_dry_run_that_is_cut_leaves_nothing(world: World, verb: str, killed: str, *, is_lost: bool) -> None:
    _, done = await world.done(verb)
    step = 0
    while True:
        await world.begin(verb)
        revision = await world.second.storage.revision()
        world.cutting.arm(step, killed, is_lost=is_lost)
        await call_cut(world, verb, "dryRun=All")
        if not world.cutting.cut.is_set():
            break
        assert await world.second.storage.revision() == revision, step
        assert (await call(world.second, verb)).code in (200, 201)
        assert await world.objects() == done, "the dry run's id is free"
        step += 1
    assert step >= 1
