"""FLW-02: a flow with unlimited demand takes nothing from another flow. Time is simulated."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.endpoints.filters.flowcontrol.configuration import Queuing
from apiserver.endpoints.filters.flowcontrol.levels import Full, Seats, Waiter, deal, flow_of

QUEUING = Queuing()


def disjoint() -> tuple[int, int]:
    """Return two flows without a common queue."""
    first = flow_of("s", "a")
    hand = set(deal(first, 64, 8))
    return first, next(each for each in range(1, 10**6) if not hand & set(deal(each * 7919, 64, 8))) * 7919


@dataclass
class World:
    """Runs events in the order of their time."""

    now: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    number: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.number), do))

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, do = heapq.heappop(self.events)
            do()
        self.now = until


@dataclass
class Client:
    """Keeps ``parallel`` requests running, ``seconds`` each; tries again 0.1 s after a refusal."""

    world: World
    seats: Seats
    flow: int
    parallel: int
    seconds: float
    width: int = 1
    pause: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: int = 0

    def begin(self) -> None:
        for _ in range(self.parallel):
            self.ask()

    def ask(self) -> None:
        asked = self.world.now
        try:
            waiter = self.seats.enter(self.flow, self.width)
        except Full:
            self.refused += 1
            self.world.at(asked + 0.1, self.ask)
            return

        def served() -> None:
            self.world.at(self.world.now + self.seconds, lambda: self.end(waiter, asked))

        if waiter.began >= 0:
            served()
        else:
            waiter.dispatched = served

    def end(self, waiter: Waiter, asked: float) -> None:
        self.seats.leave(waiter)
        self.latencies.append(self.world.now - asked)
        self.world.at(self.world.now + self.pause, self.ask)


def level(world: World, limit: int, queuing: Queuing | None = QUEUING) -> Seats:
    return Seats(limit, queuing, lambda: world.now)


def test_a_noisy_user_does_not_starve_another() -> None:
    world = World()
    seats = level(world, 10)
    noisy = Client(world, seats, flow_of("s", "noisy"), 500, 0.1)
    quiet = Client(world, seats, flow_of("s", "quiet"), 1, 0.1, pause=0.05)
    noisy.begin()
    world.at(1.0, quiet.begin)
    world.run(40)
    assert sorted(quiet.latencies)[int(len(quiet.latencies) * 0.98)] < 0.2 * 1.1  # less than twice the latency that it has alone
    assert len(noisy.latencies) > 0.9 * 40 * 10 / 0.1 - len(quiet.latencies)  # no seat is wasted


def test_two_users_who_want_everything_get_half_each() -> None:
    world = World()
    seats = level(world, 10)
    clients = [Client(world, seats, flow, 200, seconds) for flow, seconds in zip(disjoint(), (0.02, 0.1), strict=True)]
    for each in clients:
        each.begin()
    world.run(20)
    work = [len(each.latencies) * each.seconds for each in clients]
    assert work[0] == pytest.approx(work[1], rel=0.1)
    assert sum(work) == pytest.approx(200, rel=0.05)


def test_wide_requests_pay_for_their_width() -> None:
    world = World()
    seats = level(world, 10)
    wide = Client(world, seats, flow_of("s", "wide"), 50, 0.1, width=5)
    narrow = Client(world, seats, flow_of("s", "narrow"), 100, 0.1)
    wide.begin()
    narrow.begin()
    world.run(30)
    assert len(wide.latencies) * 5 == pytest.approx(len(narrow.latencies), rel=0.15)


def test_a_request_wider_than_the_level_is_served_alone() -> None:
    world = World()
    seats = level(world, 2, Queuing(queues=1, hand_size=1))
    first = seats.enter(1, 1)
    wide = seats.enter(2, 5)
    third = seats.enter(3, 1)
    assert (first.began, wide.began, third.began) == (0, -1, -1)
    seats.leave(first)
    assert (wide.began, third.began) == (0, -1)
    seats.leave(wide)
    assert third.began == 0


def test_who_was_idle_has_not_saved_up() -> None:
    world = World()
    seats = level(world, 1, Queuing(queues=8, hand_size=1, length=1000))
    flows = [next(each for each in range(100) if deal(each, 8, 1) == [queue]) for queue in (0, 1)]
    busy = Client(world, seats, flows[0], 10, 0.1)
    late = Client(world, seats, flows[1], 10, 0.1)
    busy.begin()
    world.at(20, late.begin)
    world.run(20)
    before = len(busy.latencies)
    world.run(40)
    assert len(busy.latencies) - before == pytest.approx(len(late.latencies), abs=3)


def test_without_queues_what_does_not_fit_is_refused_at_once() -> None:
    seats = level(World(), 1, None)
    seats.enter(1, 1)
    with pytest.raises(Full, match="concurrency-limit"):
        seats.enter(1, 1)


def test_a_full_queue_refuses() -> None:
    seats = level(World(), 1, Queuing(queues=1, hand_size=1, length=2))
    for _ in range(3):
        seats.enter(1, 1)
    with pytest.raises(Full, match="queue-full"):
        seats.enter(1, 1)


def test_who_stops_waiting_leaves_nothing_behind() -> None:
    seats = level(World(), 1)
    first, second, third = (seats.enter(flow, 1) for flow in (1, 2, 3))
    seats.leave(second)
    assert seats.waiting == 1
    seats.leave(first)
    assert third.began >= 0
    seats.leave(third)
    assert (seats.in_use, seats.waiting, seats.waiting_seats) == (0, 0, 0)


def test_more_seats_let_in_who_waits() -> None:
    seats = level(World(), 1)
    waiters = [seats.enter(each, 1) for each in range(3)]
    seats.configure(3, Queuing())
    assert all(each.began >= 0 for each in waiters)


def test_queues_that_go_away_serve_who_waits_in_them() -> None:
    seats = level(World(), 1)
    first, second = seats.enter(1, 1), seats.enter(2, 1)
    seats.configure(1, None)
    seats.leave(first)
    assert second.began >= 0


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 128), st.data())
def test_a_hand_has_different_queues(flow: int, queues: int, data: st.DataObject) -> None:
    hand = data.draw(st.integers(1, min(queues, 10)))
    dealt = deal(flow, queues, hand)
    assert len(set(dealt)) == hand
    assert all(0 <= each < queues for each in dealt)


def test_hands_are_dealt_evenly() -> None:
    counts = [0] * 64
    for each in range(4000):
        for queue in deal(flow_of("s", str(each)), 64, 8):
            counts[queue] += 1
    assert max(counts) < 1.4 * min(counts)
