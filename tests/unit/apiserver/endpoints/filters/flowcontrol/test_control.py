"""FLW-01, FLW-02: the limiter of the filter chain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.apis.meta.errors import TooManyRequests
from apiserver.apis.meta.users import User
from apiserver.endpoints import requestinfo
from apiserver.endpoints.filters.flowcontrol.control import FlowMetrics, Load, PriorityAndFairness
from apiserver.endpoints.filters.limits import InFlight, Rejected, Seat
from apiserver.metrics.instruments import Registry
from tests.unit.apiserver.endpoints.filters.flowcontrol.test_configuration import level, rule, schema

PATH = "/apis/example.com/v1/namespaces/a/widgets"
GET = requestinfo.parse("GET", f"{PATH}/x", {})
LIST = requestinfo.parse("GET", PATH, {})
WATCH = requestinfo.parse("GET", PATH, {"watch": "1"})
PUT = requestinfo.parse("PUT", f"{PATH}/x", {})
ALICE = User("alice", ("system:authenticated",))
MASTER = User("admin", ("system:masters", "system:authenticated"))
QUEUE = {"type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 10}}


def a_hundred(group: str, resource: str) -> int:
    return 100


def control(total: int = 2, load: Load | None = None, **more: Any) -> tuple[PriorityAndFairness, Registry]:
    registry, metrics = Registry(), FlowMetrics()
    metrics.register(registry)
    made = PriorityAndFairness(total, InFlight(1, 1), metrics, load=load, **more)
    levels = [level("work", limitResponse=QUEUE, nominalConcurrencyShares=1_000_000)]
    made.configure([schema("s", 500, rule("User", "*", resources=["*"], paths=["*"]), distinguisherMethod={"type": "ByUser"})], levels)
    return made, registry


def enter(made: PriorityAndFairness, info: requestinfo.RequestInfo = GET, user: User = ALICE) -> Seat:
    seat = made.enter(user, info, long_running=info.verb == "watch")
    assert seat is not None
    return seat


def test_a_seat_says_whose_it_is() -> None:
    made, registry = control()
    seat = enter(made)
    assert seat.headers == (("X-Kubernetes-PF-FlowSchema-UID", "u-s"), ("X-Kubernetes-PF-PriorityLevel-UID", "u-work"))
    assert 'apiserver_flowcontrol_current_executing_requests{priority_level="work",flow_schema="s"} 1' in registry.page().decode()
    seat.leave()
    seat.leave()
    page = registry.page().decode()
    assert 'apiserver_flowcontrol_current_executing_requests{priority_level="work",flow_schema="s"} 0' in page
    assert 'apiserver_flowcontrol_dispatched_requests_total{priority_level="work",flow_schema="s"} 1' in page


async def test_who_waits_is_served_when_a_seat_is_free() -> None:
    made, _ = control()
    seats = [enter(made) for _ in range(3)]
    assert [each.waits for each in seats] == [False, False, True]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(seats[2].taken())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        seats[0].leave()
        assert await waiting > 0
    for each in seats:
        each.leave()
    assert not enter(made).waits


async def test_who_waits_too_long_is_refused_with_retry_after() -> None:
    made, registry = control(wait_seconds=0.01)
    seats = [enter(made) for _ in range(3)]
    with pytest.raises(TooManyRequests) as refused:
        await seats[2].taken()
    assert refused.value.details.retry_after_seconds == 1
    seats[2].leave()
    assert 'rejected_requests_total{priority_level="work",flow_schema="s",reason="time-out"} 1' in registry.page().decode()
    seats[0].leave()
    assert not enter(made).waits


async def test_a_client_that_goes_away_leaves_its_queue() -> None:
    made, registry = control()
    seats = [enter(made) for _ in range(3)]
    waiting = asyncio.ensure_future(seats[2].taken())  # noqa: TID251 - it is cancelled
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    seats[2].leave()
    assert [made.take_queued() for _ in range(2)] == [(1, 0), (0, 0)]
    page = registry.page().decode()
    assert 'current_inqueue_requests{priority_level="work",flow_schema="s"} 0' in page
    assert 'reason="cancelled"} 1' in page


def test_full_queues_refuse_before_anything_is_read() -> None:
    """FLW-03: enter() raises before any code reads the body."""
    made, _ = control()
    for _ in range(22):  # two run, twenty wait in the flow's two queues
        enter(made)
    with pytest.raises(TooManyRequests) as refused:
        enter(made)
    assert isinstance(refused.value, Rejected)
    assert refused.value.headers[0] == ("X-Kubernetes-PF-FlowSchema-UID", "u-s")


def test_masters_always_get_in() -> None:
    made, _ = control()
    for _ in range(12):
        enter(made)
    assert not any(enter(made, user=MASTER).waits for _ in range(100))


def test_a_watch_gives_its_seat_back_once_it_is_initialized() -> None:
    made, _ = control()
    watches = []
    for _ in range(20):
        watches.append(enter(made, WATCH))
        assert not watches[-1].waits
        watches[-1].initialized()
    for each in watches:
        each.leave()
    assert not enter(made).waits


def test_streams_need_no_seat() -> None:
    made, _ = control()
    assert made.enter(ALICE, requestinfo.parse("GET", f"{PATH}/x/console", {}), long_running=True) is None


@pytest.mark.parametrize(("count", "size", "seats"), [(0, 0, 1), (10, 4500, 1), (100, 4500, 5), (100_000, 4500, 10)])
def test_a_list_is_as_wide_as_what_it_returns(count: int, size: int, seats: int) -> None:
    made, registry = control(
        100, Load(objects=lambda group, resource: (count, size) if (group, resource) == ("example.com", "widgets") else (0, 0))
    )
    enter(made, LIST)
    assert f'current_executing_seats{{priority_level="work",flow_schema="s"}} {seats}\n' in registry.page().decode()


async def test_a_write_that_many_watch_keeps_its_seats_a_little_longer() -> None:
    made, _ = control(100, Load(watches=a_hundred))
    enter(made, PUT).leave()
    level = made._levels["work"]
    assert level.in_use == 10
    await asyncio.sleep(0.02)
    assert level.in_use == 0


def test_without_configuration_the_fallback_decides() -> None:
    made, _ = control()
    made.configure([], [])
    seat = enter(made)
    with pytest.raises(TooManyRequests):
        enter(made)
    assert enter(made, PUT).headers == ()
    enter(made, user=MASTER).leave()
    assert made.take_peaks() == (2, 1)
    seat.leave()
    enter(made)


def test_a_new_configuration_holds_for_new_requests_and_keeps_the_old_ones_seats() -> None:
    made, _ = control()
    seats = [enter(made), enter(made)]
    levels = [level("work", nominalConcurrencyShares=1_000_000)]
    made.configure([schema("t", 500, rule("User", "*", resources=["*"]))], levels)
    with pytest.raises(TooManyRequests):
        enter(made)
    seats[0].leave()
    assert enter(made).headers[0][1] == "u-t"


def test_peaks_are_those_since_the_last_look() -> None:
    made, _ = control()
    enter(made).leave()
    put = enter(made, PUT)
    assert made.take_peaks() == (1, 1)
    assert made.take_peaks() == (0, 1)
    put.leave()
