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

    def view(self, is_cut_off: Callable[[], bool] = lambda: False, answers_after: Callable[[], float] = lambda: 0.0) -> View:
        return View(self, is_cut_off, answers_after)

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        spec: Object = self.lease["spec"]
        return spec

    def take(self, identity: str, **spec: object) -> None:
        self.view()._store({"metadata": {}, **(self.lease or {}), "spec": {"leaseDurationSeconds": 15, **spec, "holderIdentity": identity}})


class View:
    def __init__(self, server: Server, is_cut_off: Callable[[], bool], answers_after: Callable[[], float]) -> None:
        self.server = server
        self.is_cut_off = is_cut_off
        self.answers_after = answers_after
        self.requests = 0

    async def _hop(self) -> None:
        self.requests += 1
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
        stored = self._store(obj)
        await asyncio.sleep(self.answers_after())
        return stored

    def _store(self, obj: Object) -> Object:
        self.server.revision += 1
        self.server.lease = copy.deepcopy(obj)
        self.server.lease["metadata"]["resourceVersion"] = str(self.server.revision)
        return copy.deepcopy(self.server.lease)


class Terms:
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


class Refusing(View):
    async def _hop(self) -> None:
        await asyncio.sleep(0.01)
        if self.is_cut_off():
            raise TransportError("refused")


class Lingering(View):
    async def _hop(self) -> None:
        try:
            await asyncio.sleep(60 if self.is_cut_off() else 0.01)
        finally:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(("kind", "late"), [(Refusing, 0.0), (Lingering, 0.1)])
def test_a_leader_stops_in_time_however_its_last_renewal_fails(kind: type[View], late: float) -> None:
    server, terms = Server(), Terms()
    stored: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def note() -> float:
            stored.append(loop.time())
            return 0.0

        view = kind(server, lambda: loop.time() > 50, note)
        elector = LeaderElector(view, Settings("kubevirt", "virt-controller", "a", 15, 10.0, 3.0), Clock())
        async with asyncio.timeout(100):
            with pytest.raises(LeadershipLost):
                await elector.run(terms.lead("a"))  # type: ignore[arg-type] # coroutine functions are what Terms makes

    run(scenario())
    ((_, _, lost),) = terms.spans
    assert stored[-1] + 9 < lost <= stored[-1] + 10 + late


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


def test_leader_stops_at_the_renewal_after_losing_its_lease() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async def usurp() -> None:
            await asyncio.sleep(10)
            assert server.lease is not None
            server.view()._store({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "z"}})

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(usurp())
            with pytest.raises(LeadershipLost):
                await an_elector(server.view(), "a").run(terms.lead("a"))  # type: ignore[arg-type]  # coroutine functions are what Terms makes

    run(scenario())
    assert terms.spans[0][2] < 13


def test_short_outage_does_not_cost_the_leadership() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(100):
            await campaign(an_elector(server.view(lambda: 20 < loop.time() < 24), "a"), terms.lead("a"))

    with pytest.raises(TimeoutError):
        run(scenario())
    assert terms.spans[0][2] == pytest.approx(100, abs=1)


def test_each_renewal_is_one_request() -> None:
    view, terms = Server().view(), Terms()

    async def scenario() -> None:
        async with asyncio.timeout(100):
            await campaign(an_elector(view, "a"), terms.lead("a"))

    with pytest.raises(TimeoutError):
        run(scenario())
    assert 45 < view.requests < 55  # every two seconds; two each acquire and release the lease


def test_lease_that_a_user_edits_is_renewed_after_a_read() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async def edit() -> None:
            await asyncio.sleep(10)
            assert server.lease is not None
            server.view()._store({**server.lease, "metadata": {**server.lease["metadata"], "labels": {"a": "b"}}})

        async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
            tasks.create_task(edit())
            tasks.create_task(campaign(an_elector(server.view(), "a"), terms.lead("a")))

    with pytest.raises(TimeoutError):
        run(scenario())
    assert terms.spans[0][2] == pytest.approx(50, abs=1)
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize("answer", [0.0, 3.0, 6.0, 9.0])
def test_term_counts_from_the_start_of_its_renewal(answer: float) -> None:
    """Other candidates count from the stored change, which may precede the response."""
    server, terms = Server(), Terms()
    stored: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def slow() -> float:
            stored.append(loop.time())
            return answer if loop.time() > 50 else 0.0

        view = server.view(lambda: len(stored) > 1 and stored[-1] > 50, slow)
        async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
            tasks.create_task(campaign(an_elector(view, "a"), terms.lead("a")))
            await asyncio.sleep(1)
            tasks.create_task(campaign(an_elector(server.view(), "b"), terms.lead("b")))

    with pytest.raises(TimeoutError):
        run(scenario())
    (first, _, lost), (second, won, _) = terms.spans
    assert (first, second) == ("a", "b")
    assert stored[-1] < lost <= stored[-1] + 10
    assert won > stored[-1] + 15


@pytest.mark.parametrize("other", ["z", "A"])
def test_stopping_leader_does_not_release_anothers_lease(other: str) -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(campaign(an_elector(server.view(), "a"), terms.lead("a")))
            await asyncio.sleep(10.5)
            server.take(other)
            leading.cancel()

    run(scenario())
    assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == (other, 15)


def test_released_lease_has_no_holder_and_expires_at_once() -> None:
    server, terms = Server(), Terms()
    elector = an_elector(server.view(), "a")
    assert not elector.is_leader
    run(campaign(elector, terms.lead("a", seconds=3)))
    assert not elector.is_leader
    assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)


@pytest.mark.parametrize(("seconds", "wins_at"), [(60, 60), (5, 5), (15, 15), (None, 15)])
def test_silent_holder_is_awaited_for_its_own_lease_duration(seconds: int | None, wins_at: float) -> None:
    server, terms = Server(), Terms()
    server.take("z", leaseDurationSeconds=seconds)

    async def scenario() -> None:
        async with asyncio.timeout(100):
            await campaign(an_elector(server.view(), "a"), terms.lead("a"))

    with pytest.raises(TimeoutError):
        run(scenario())
    ((_, won, _),) = terms.spans
    assert wins_at < won <= wins_at + 2.1


def test_renewing_holder_is_respected_whatever_its_clock() -> None:
    server, terms = Server(), Terms()

    async def scenario() -> None:
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            tasks.create_task(campaign(an_elector(server.view(), "a"), terms.lead("a")))
            for _ in range(8):
                server.take("z", renewTime="1970-01-01T00:00:00.000000Z")
                await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        run(scenario())
    ((_, won, _),) = terms.spans
    assert 85 < won <= 88


def test_a_lease_says_since_when_and_how_often_it_changed_hands() -> None:
    server, terms = Server(), Terms()
    now = "2026-01-01T00:00:00.000000Z"
    run(campaign(an_elector(server.view(), "a"), terms.lead("a", seconds=10)))
    assert server.spec == {
        "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now, "leaseTransitions": 1,
    }  # fmt: skip
    server.take("", acquireTime="2025-01-01T00:00:00Z", leaseTransitions=5, strategy="kept")
    lead = an_elector(server.view(), "b")
    assert run(lead._try())
    assert server.spec["acquireTime"] == now
    assert (server.spec["leaseTransitions"], server.spec["holderIdentity"], server.spec["strategy"]) == (6, "b", "kept")
    server.take("b", acquireTime="2025-01-01T00:00:00Z", leaseTransitions=5)
    assert run(an_elector(server.view(), "b")._try())
    assert (server.spec["leaseTransitions"], server.spec["acquireTime"]) == (5, "2025-01-01T00:00:00Z")
    server.take("b")
    assert run(an_elector(server.view(), "b")._try())
    assert server.spec["acquireTime"] == now


def test_error_of_the_led_work_ends_the_term_and_frees_the_lease() -> None:
    server = Server()

    async def fail() -> None:
        await asyncio.sleep(5)
        raise ValueError("a defect")

    with pytest.raises(ExceptionGroup) as caught:
        run(an_elector(server.view(), "a").run(fail))
    assert isinstance(caught.value.exceptions[0], ValueError)
    assert server.spec["holderIdentity"] == ""


@pytest.mark.parametrize("times", [(0.0, 10.0, 15), (-1.0, 10.0, 15), (10.0, 10.0, 15), (2.0, 15.0, 15), (11.0, 10.0, 15), (2.0, 16.0, 15)])
def test_times_that_would_let_two_lead_are_refused(times: tuple[float, float, int]) -> None:
    retry, deadline, duration = times
    with pytest.raises(ValueError, match="retry < renew deadline < lease duration"):
        Settings("ns", "n", "i", duration, deadline, retry)
    Settings("ns", "n", "i", 3, 2.0, 1.0)
