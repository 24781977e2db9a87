from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import TransportError
from controller.runtime.leaderelection import LeaderElector, LeadershipLost, Settings
from tests.unit.controller.virtualtime import run


class Clock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """One lease with optimistic locking; :meth:`view` is one process' connection to it."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.revision = 0

    def view(self, is_cut_off: Callable[[], bool] = lambda: False) -> View:
        return View(self, is_cut_off)


class View:
    def __init__(self, server: Server, is_cut_off: Callable[[], bool]) -> None:
        self.server = server
        self.is_cut_off = is_cut_off

    async def _hop(self) -> None:
        await asyncio.sleep(0.01)
        if self.is_cut_off():
            await asyncio.sleep(3)
            raise TransportError("timed out")

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        await self._hop()
        if self.server.lease is None:
            raise errors.NotFound("no lease")
        return copy.deepcopy(self.server.lease)

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        await self._hop()
        if self.server.lease is not None:
            raise errors.AlreadyExists("taken")
        return self._store(obj)

    async def update(self, resource: Resource, obj: Object) -> Object:
        await self._hop()
        if self.server.lease is None or obj["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
            raise errors.Conflict("stale")
        return self._store(obj)

    def _store(self, obj: Object) -> Object:
        self.server.revision += 1
        self.server.lease = copy.deepcopy(obj)
        self.server.lease["metadata"]["resourceVersion"] = str(self.server.revision)
        return copy.deepcopy(self.server.lease)


class Terms:
    """Who led, from when to when."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []

    def lead(self, who: str, *, seconds: float = 1e6) -> Callable[[], object]:
        async def work() -> None:
            began = asyncio.get_running_loop().time()
            try:
                await asyncio.sleep(seconds)
            finally:
                self.spans.append((who, began, asyncio.get_running_loop().time()))

        return work


def an_elector(view: View, identity: str) -> LeaderElector:
    return LeaderElector(view, Settings("kubevirt", "virt-controller", identity), Clock())


def overlaps(spans: list[tuple[str, float, float]]) -> bool:
    ordered = sorted(spans, key=lambda span: span[1])
    return any(later[1] < earlier[2] for earlier, later in itertools.pairwise(ordered))


async def campaign(elector: LeaderElector, work: Callable[[], object]) -> None:
    with suppress(LeadershipLost):
        await elector.run(work)  # type: ignore[arg-type] # coroutine functions are what Terms makes


def test_only_one_of_two_candidates_leads() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
            for who in ("a", "b"):
                tasks.create_task(campaign(an_elector(server.view(), who), terms.lead(who)))

    with pytest.raises(TimeoutError):
        run(scenario())
    assert len(terms.spans) == 1


def test_a_leader_that_is_cut_off_stops_before_another_starts() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
            tasks.create_task(campaign(an_elector(server.view(lambda: loop.time() > 50), "a"), terms.lead("a")))
            await asyncio.sleep(1)
            tasks.create_task(campaign(an_elector(server.view(), "b"), terms.lead("b")))

    with pytest.raises(TimeoutError):
        run(scenario())
    (first, _, lost), (second, won, _) = terms.spans
    assert (first, second) == ("a", "b")
    assert lost <= 60.1
    assert lost < won <= 70
    assert not overlaps(terms.spans)


def test_a_leader_that_stops_gives_the_lease_back() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(campaign(an_elector(server.view(), "a"), terms.lead("a")))
            await asyncio.sleep(1)
            tasks.create_task(campaign(an_elector(server.view(), "b"), terms.lead("b")))
            await asyncio.sleep(20)
            leading.cancel()

    with pytest.raises(TimeoutError):
        run(scenario())
    (_, _, left), (_, won, _) = terms.spans
    assert left < won < left + 3


def test_a_leader_whose_lease_was_taken_stops_at_its_next_renewal() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async def usurp() -> None:
            await asyncio.sleep(10)
            assert server.lease is not None
            server.view()._store({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "z"}})

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(usurp())
            with pytest.raises(LeadershipLost):
                await an_elector(server.view(), "a").run(terms.lead("a"))  # type: ignore[arg-type]

    run(scenario())
    assert terms.spans[0][2] < 13


def test_short_trouble_with_the_server_costs_nobody_the_lead() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(100):
            await campaign(an_elector(server.view(lambda: 20 < loop.time() < 24), "a"), terms.lead("a"))

    with pytest.raises(TimeoutError):
        run(scenario())
    assert terms.spans[0][2] == pytest.approx(100, abs=1)
