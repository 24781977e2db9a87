"""The seats of one priority level, and the queues for them.

Fairness is start-time fair queueing (Goyal et al., 1996) over seat-seconds: a queue's tag is the work that its requests were given,
finished and under way; the queue with the lowest tag is next; a queue that was idle begins at the tag of the last one that was served, so
that nobody saves up. Flows are dealt to queues by shuffle sharding: one flow can fill its hand of queues, and another is unlikely to have
the same hand.

While nobody waits a request costs a comparison and an addition, and nothing is tagged.
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
    """There is no seat and no place to wait; ``reason`` is the metric's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Waiter:
    """A request that has its seats, or waits for them."""

    __slots__ = ("began", "dispatched", "queue", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.began = -1.0
        self.queue: Queue | None = None
        self.dispatched: Callable[[], None] | None = None
        """Called when it gets them; None once it has."""


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
        """Seats that its requests have and want."""
        return self._executing + sum(each.width for each in self.waiting)

    @property
    def idle(self) -> bool:
        """True if it has no request at all."""
        return not self.waiting and not self._executing

    def position(self, now: float) -> float:
        """Return the work given to it so far, that under way included."""
        return self.tag + self._executing * now - self._weighted

    def begin(self, waiter: Waiter, now: float) -> None:
        """Count a request that got its seats."""
        self._executing += waiter.width
        self._weighted += waiter.width * now

    def end(self, waiter: Waiter, now: float) -> None:
        """Count a request that gave them back."""
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
        """Take new numbers. Who waits goes on waiting, unless there are no queues any more: then it is served as seats come free."""
        self.limit = limit
        if queuing is not None and queuing != self._queuing:
            self._set(queuing)
        self._queuing = queuing
        self._dispatch()

    def _set(self, queuing: Queuing | None) -> None:
        if queuing is not None:
            self._queues += [Queue() for _ in range(queuing.queues - len(self._queues))]

    def enter(self, flow: int, width: int) -> Waiter:
        """Give a request its seats, or a place in a queue; the waiter's ``began`` is negative as long as it waits.

        Raises:
            Full: neither.
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
        """Give one seat to whoever comes and goes in a moment, if nobody waits for it; :meth:`give` follows."""
        if not self.exempt and (self.waiting or 0 < self.in_use >= self.limit):
            return False
        self.in_use += 1
        self.demand.set(self.in_use + self.waiting_seats, self._now())
        return True

    def give(self) -> None:
        """Take such a seat back."""
        self.in_use -= 1
        self.demand.set(self.in_use + self.waiting_seats, self._now())
        if self.waiting:
            self._dispatch()

    def leave(self, waiter: Waiter) -> None:
        """Take the seats back, or the place in the queue."""
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
                return  # it is next, even if a narrower one would fit: it would wait for ever
            queue.waiting.popleft()
            self._virtual = max(self._virtual, queue.position(now))
            self.waiting -= 1
            self.waiting_seats -= waiter.width
            self._begin(waiter)
            queue.begin(waiter, waiter.began)
            if waiter.dispatched is not None:
                waiter.dispatched()

    def _choose(self, now: float) -> Queue:
        """Return the queue with the lowest position; among equals, each in its turn."""
        count = len(self._queues)
        order = [(self._next + each) % count for each in range(count)]
        index = min((each for each in order if self._queues[each].waiting), key=lambda each: self._queues[each].position(now))
        self._next = (index + 1) % count
        return self._queues[index]


def flow_of(schema: str, distinguisher: str) -> int:
    """Return the number of a flow."""
    return int.from_bytes(hashlib.sha256(f"{schema}\0{distinguisher}".encode()).digest()[:8])


def deal(flow: int, queues: int, hand: int) -> list[int]:
    """Return the hand of queues that a flow is dealt: different ones, each hand as likely as any other."""
    dealt: list[int] = []
    for index in range(hand):
        flow, card = divmod(flow, queues - index)
        for each in sorted(dealt):
            if each <= card:
                card += 1
        dealt.append(card)
    return dealt
