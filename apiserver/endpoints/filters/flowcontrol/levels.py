"""The seats of one priority level, and its fair queues.

Start-time fair queueing (Goyal et al., 1996) over seat-seconds: a queue's tag is its finished and running work, and the
lowest tag is next. An idle queue restarts at the tag served last, so that idling earns no credit. Shuffle sharding: a flow
can fill its hand of queues, which another flow is unlikely to share.

Without waiting requests, a request costs a comparison and an addition, and no tags.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

from apiserver.endpoints.filters.flowcontrol.borrowing import Demand
from apiserver.endpoints.filters.flowcontrol.configuration import Queuing

QUEUE_FULL: Final = "queue-full"
NO_SEAT: Final = "concurrency-limit"


class Full(Exception):
    """Neither a seat nor a place in a queue is free; ``reason`` labels the metric."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Waiter:
    """A request that has its seats or waits for them."""

    __slots__ = ("began", "dispatched", "queue", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.began = -1.0
        self.queue: Queue | None = None
        self.dispatched: Callable[[], None] | None = None
        """Called when the request gets its seats; None afterwards."""


class Queue:
    """Requests of the flows that share a queue."""

    __slots__ = ("_executing", "_weighted", "tag", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiter] = deque()
        self.tag = 0.0
        self._executing = 0
        self._weighted = 0.0

    @property
    def seats(self) -> int:
        """Seats that its requests hold or wait for."""
        return self._executing + sum(each.width for each in self.waiting)

    @property
    def idle(self) -> bool:
        """True if it has no requests."""
        return not self.waiting and not self._executing

    def position(self, now: float) -> float:
        """Return its work up to ``now``, including running requests."""
        return self.tag + self._executing * now - self._weighted

    def begin(self, waiter: Waiter, now: float) -> None:
        """Count a request that got its seats."""
        self._executing += waiter.width
        self._weighted += waiter.width * now

    def end(self, waiter: Waiter, now: float) -> None:
        """Count a request that returned its seats."""
        self._executing -= waiter.width
        self._weighted -= waiter.width * waiter.began
        self.tag += waiter.width * (now - waiter.began)


class Seats:
    """The seats of one level. ``now`` is a clock in seconds."""

    def __init__(self, limit: int, queuing: Queuing | None, now: Callable[[], float], *, exempt: bool = False) -> None:
        self.limit = limit
        self.exempt = exempt
        self.in_use = 0
        self.waiting = 0
        self.waiting_seats = 0
        self.demand = Demand(now())
        self._now = now
        self._queuing = queuing
        self._queues: list[Queue] = []
        self._virtual = 0.0
        self._next = 0
        self._set(queuing)

    def configure(self, limit: int, queuing: Queuing | None) -> None:
        """Change limit and queues. If queuing was turned off, waiting requests run as seats become free."""
        self.limit = limit
        if queuing is not None and queuing != self._queuing:
            self._set(queuing)
        self._queuing = queuing
        self._dispatch()

    def _set(self, queuing: Queuing | None) -> None:
        if queuing is not None:
            self._queues += [Queue() for _ in range(queuing.queues - len(self._queues))]

    def enter(self, flow: int, width: int) -> Waiter:
        """Give a request seats, or a place in a queue with a negative ``began``.

        Raises:
            Full: neither is free.
        """
        waiter = Waiter(width)
        if self.exempt or (not self.waiting and (self.in_use + width <= self.limit or not self.in_use)):
            self._begin(waiter)
            return waiter
        if self._queuing is None:
            raise Full(NO_SEAT)
        now = self._now()
        queue = min((self._queues[each] for each in deal(flow, self._queuing.queues, self._queuing.hand_size)), key=lambda each: each.seats)
        if len(queue.waiting) >= self._queuing.length:
            raise Full(QUEUE_FULL)
        if queue.idle:
            queue.tag = max(queue.tag, self._virtual)
        waiter.queue = queue
        queue.waiting.append(waiter)
        self.waiting += 1
        self.waiting_seats += width
        self.demand.set(self.in_use + self.waiting_seats, now)
        self._dispatch()
        return waiter

    def take(self) -> bool:
        """Take one seat for a short request, unless others wait; call :meth:`give` later."""
        if not self.exempt and (self.waiting or 0 < self.in_use >= self.limit):
            return False
        self.in_use += 1
        self.demand.set(self.in_use + self.waiting_seats, self._now())
        return True

    def give(self) -> None:
        """Return the seat that :meth:`take` gave."""
        self.in_use -= 1
        self.demand.set(self.in_use + self.waiting_seats, self._now())
        if self.waiting:
            self._dispatch()

    def leave(self, waiter: Waiter) -> None:
        """Return the seats, or leave the queue."""
        now = self._now()
        if waiter.began >= 0:
            self.in_use -= waiter.width
            if waiter.queue is not None:
                waiter.queue.end(waiter, now)
        elif waiter.queue is not None:
            waiter.queue.waiting.remove(waiter)
            self.waiting -= 1
            self.waiting_seats -= waiter.width
        self.demand.set(self.in_use + self.waiting_seats, now)
        if self.waiting:
            self._dispatch()

    def _begin(self, waiter: Waiter) -> None:
        waiter.began = now = self._now()
        self.in_use += waiter.width
        self.demand.set(self.in_use + self.waiting_seats, now)

    def _dispatch(self) -> None:
        while self.waiting:
            now = self._now()
            queue = self._choose(now)
            waiter = queue.waiting[0]
            if self.in_use and self.in_use + waiter.width > self.limit:
                return  # wait even if a narrower one would fit: it could starve
            queue.waiting.popleft()
            self._virtual = max(self._virtual, queue.position(now))
            self.waiting -= 1
            self.waiting_seats -= waiter.width
            self._begin(waiter)
            queue.begin(waiter, waiter.began)
            if waiter.dispatched is not None:
                waiter.dispatched()

    def _choose(self, now: float) -> Queue:
        """Return the queue with the lowest position, alternating between equal ones."""
        count = len(self._queues)
        order = [(self._next + each) % count for each in range(count)]
        index = min((each for each in order if self._queues[each].waiting), key=lambda each: self._queues[each].position(now))
        self._next = (index + 1) % count
        return self._queues[index]


def flow_of(schema: str, distinguisher: str) -> int:
    """Return the hash of a flow."""
    return int.from_bytes(hashlib.sha256(f"{schema}\0{distinguisher}".encode()).digest()[:8])


def deal(flow: int, queues: int, hand: int) -> list[int]:
    """Return a flow's hand of distinct queues, uniformly distributed."""
    dealt: list[int] = []
    for index in range(hand):
        flow, card = divmod(flow, queues - index)
        for each in sorted(dealt):
            if each <= card:
                card += 1
        dealt.append(card)
    return dealt
