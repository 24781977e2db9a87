"""The limiter: finds a request's level, flow and seats, and counts metrics.

Until the configuration is loaded, the fallback (max-in-flight) decides.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.users import User
from apiserver.endpoints.filters.flowcontrol import borrowing, configuration, levels
from apiserver.endpoints.filters.flowcontrol.configuration import Configuration, Schema
from apiserver.endpoints.filters.flowcontrol.levels import Full, Seats, Waiter
from apiserver.endpoints.filters.limits import Limiter, Rejected, Seat, Watermark, too_many
from apiserver.endpoints.requestinfo import REMEMBERED_LENGTH, RequestInfo
from apiserver.metrics.instruments import Cell, Counter, Gauge, Histogram, HistogramCell, Registry

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 15.0
"""A quarter of a request's limit, as in Go."""
ADJUST_SECONDS: Final = 10.0
SCHEMA_HEADER: Final = "X-Kubernetes-PF-FlowSchema-UID"
LEVEL_HEADER: Final = "X-Kubernetes-PF-PriorityLevel-UID"
TIMED_OUT: Final = "time-out"
CANCELLED: Final = "cancelled"
BYTES_PER_SEAT: Final = 100_000
LIST_BYTES: Final = 1_000_000
"""Most bytes of a sliced, cached list in memory."""
WATCHES_PER_SEAT: Final = 10
EVENT_SECONDS: Final = 0.005
MOST_MUTATING_SEATS: Final = 10
_PART_OF_LEVEL: Final = 0.15
_MAX_KNOWN: Final = 8192
_SECONDS: Final = (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_NAMES: Final = ("priority_level", "flow_schema")


def _no_objects(group: str, resource: str) -> tuple[int, int]:
    del group, resource
    return 0, 0


def _no_watches(group: str, resource: str) -> int:
    del group, resource
    return 0


@dataclass(frozen=True, slots=True)
class Load:
    """Cost estimates of lists and writes. Each function takes group and resource."""

    objects: Callable[[str, str], tuple[int, int]] = _no_objects
    """Number of objects, and average bytes."""
    watches: Callable[[str, str], int] = _no_watches
    """Number of watches."""


class FlowMetrics:
    """Metrics of ``k8s.io/apiserver/pkg/util/flowcontrol/metrics``."""

    def __init__(self) -> None:
        name = "apiserver_flowcontrol_"
        level = ("priority_level",)
        self.rejected = Counter(f"{name}rejected_requests_total", "Requests refused by flow control.", (*_NAMES, "reason"))
        self.dispatched = Counter(f"{name}dispatched_requests_total", "Requests let in by flow control.", _NAMES)
        self.executing = Gauge(f"{name}current_executing_requests", "Requests that have seats.", _NAMES)
        self.executing_seats = Gauge(f"{name}current_executing_seats", "Seats in use.", _NAMES)
        self.inqueue = Gauge(f"{name}current_inqueue_requests", "Requests that wait for seats.", _NAMES)
        self.inqueue_seats = Gauge(f"{name}current_inqueue_seats", "Seats that are waited for.", _NAMES)
        self.waited = Histogram(f"{name}request_wait_duration_seconds", "Time in queues.", _SECONDS, (*_NAMES, "execute"))
        self.executed = Histogram(f"{name}request_execution_seconds", "Time with seats.", _SECONDS, (*_NAMES, "type"))
        self.seats = Histogram(f"{name}work_estimated_seats", "Seats of requests.", (1, 2, 4, 8, 16, 32, 64, 100), _NAMES)
        self.nominal = Gauge(f"{name}nominal_limit_seats", "Seats of a level by its shares.", level)
        self.lower = Gauge(f"{name}lower_limit_seats", "The fewest seats of a level.", level)
        self.upper = Gauge(f"{name}upper_limit_seats", "The most seats of a level.", level)
        self.current = Gauge(f"{name}current_limit_seats", "Seats that a level has now.", level)
        self.most = Gauge(f"{name}demand_seats_high_watermark", "The most seats wanted in the last period.", level)
        self.smoothed = Gauge(f"{name}demand_seats_smoothed", "Seats wanted, smoothed.", level)
        self.target = Gauge(f"{name}target_seats", "Seats that a level should have.", level)
        self.fraction = Gauge(f"{name}seat_fair_frac", "Seats for each one that is wanted.")

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self.rejected, self.dispatched, self.executing, self.executing_seats, self.inqueue, self.inqueue_seats)
        registry.add(self.waited, self.executed, self.seats, self.nominal, self.lower, self.upper, self.current)
        registry.add(self.most, self.smoothed, self.target, self.fraction)


@dataclass(slots=True)
class _Flow:
    """One flow of a schema, with its metrics."""

    schema: Schema
    seats: Seats
    number: int
    headers: tuple[tuple[str, str], ...]
    dispatched: Cell
    executing: Cell
    executing_seats: Cell
    at_once: HistogramCell
    executed: HistogramCell
    estimated: HistogramCell
    watermark: Watermark

    def begin(self, *, writes: bool) -> bool:
        """Take a seat if one is free and no request waits; call :meth:`end` later."""
        if not self.seats.take():
            return False
        self.estimated.observe(1)
        self.at_once.observe(0.0)
        self.dispatched.value += 1
        self.executing.value += 1
        self.executing_seats.value += 1
        self.watermark.add(writes=writes)
        return True

    def end(self, seconds: float, *, writes: bool) -> None:
        """Return the seat after ``seconds``."""
        self.executing.value -= 1
        self.executing_seats.value -= 1
        self.executed.observe(seconds)
        self.watermark.remove(writes=writes)
        self.seats.give()


class PriorityAndFairness:
    """See :class:`~apiserver.endpoints.filters.limits.Limiter`. Levels lend seats only while ``run`` runs."""

    def __init__(
        self,
        total: int,
        fallback: Limiter,
        metrics: FlowMetrics,
        *,
        load: Load | None = None,
        now: Callable[[], float] = time.monotonic,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Take the server's number of seats, and the limiter to use before :meth:`configure`."""
        self.load = load or Load()
        self.watermark = Watermark()
        self.queued = Watermark()
        self._total = total
        self._fallback = fallback
        self._metrics = metrics
        self._now = now
        self._wait_seconds = wait_seconds
        self._configuration: Configuration | None = None
        self._bounds: dict[str, borrowing.Bounds] = {}
        self._levels: dict[str, Seats] = {}
        self._flows: dict[tuple[User | str, ...], _Flow] = {}

    def configure(self, schemas: Iterable[Object], levels: Iterable[Object]) -> None:
        """Take the cluster's FlowSchemas and PriorityLevelConfigurations. Without either, use the fallback."""
        listed = list(schemas), list(levels)
        if not all(listed):
            self._configuration = None
            return
        self._configuration, wrong = configuration.read(*listed)
        for each in wrong:
            logger.warning("left out of flow control", extra={"reason": each})
        self._bounds = borrowing.bounds(self._configuration.levels, self._total)
        for name, level in self._configuration.levels.items():
            bound = self._bounds[name]
            known = self._levels.get(name)
            if known is None or known.exempt != level.exempt:
                self._levels[name] = Seats(bound.nominal, level.queuing, self._now, exempt=level.exempt)
            else:
                known.configure(max(bound.lower, min(known.limit, bound.upper)), level.queuing)
            for gauge, value in (
                (self._metrics.nominal, bound.nominal),
                (self._metrics.lower, bound.lower),
                (self._metrics.upper, bound.upper),
            ):
                gauge.cell(name).value = value
        self._levels = {name: seats for name, seats in self._levels.items() if name in self._configuration.levels}
        self._flows.clear()
        self.adjust()

    async def run(self) -> None:
        """Reassign seats between levels until cancelled."""
        while True:
            await asyncio.sleep(ADJUST_SECONDS)
            self.adjust()

    def adjust(self) -> None:
        """Divide the seats by the demand since the last call."""
        now, left = self._now(), float(self._total)
        items = {}
        for name, seats in self._levels.items():
            most = seats.demand.close(now)
            bound = self._bounds[name]
            self._metrics.most.cell(name).value = most
            self._metrics.smoothed.cell(name).value = round(seats.demand.smoothed, 3)
            if seats.exempt:
                left -= max(bound.lower, most)
            else:
                items[name] = borrowing.allocation_item(bound, most, seats.demand.smoothed)
        shares, fraction = borrowing.allocate(max(0.0, left), list(items.values()))
        self._metrics.fraction.cell().value = fraction
        for (name, each), share in zip(items.items(), shares, strict=True):
            seats = self._levels[name]
            seats.configure(max(1, round(share)), self._configuration.levels[name].queuing if self._configuration else None)
            self._metrics.target.cell(name).value = each.target
            self._metrics.current.cell(name).value = seats.limit

    def enter(self, user: User, info: RequestInfo, *, long_running: bool) -> Seat | None:
        """See :class:`Limiter`."""
        if self._configuration is None:
            return self._fallback.enter(user, info, long_running=long_running)
        if long_running and info.verb != "watch":
            return None
        flow = self._flow(self._configuration, user, info)
        width, after = self._width(flow, info)
        if width == 1 and not after and flow.begin(writes=info.mutating):
            return _OneSeat(flow, info.mutating, self._now)
        flow.estimated.observe(width)
        try:
            waiter = flow.seats.enter(flow.number, width)
        except Full as full:
            self._metrics.rejected.increment(flow.schema.level, flow.schema.name, full.reason)
            raise _refusal(flow) from None
        return _Seat(self, flow, waiter, after, info.mutating)

    def take_peaks(self) -> tuple[int, int]:
        """See :class:`Limiter`."""
        if self._configuration is None:
            return self._fallback.take_peaks()
        return self.watermark.take()

    def take_queued(self) -> tuple[int, int]:
        """See :class:`Limiter`."""
        return self.queued.take()

    def _flow(self, known: Configuration, user: User, info: RequestInfo) -> _Flow:
        if len(info.path) > REMEMBERED_LENGTH:
            return self._made(known, user, info)
        key = (user, info.verb, info.resource, info.namespace, info.subresource, info.group, "" if info.is_resource else info.path)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= _MAX_KNOWN:
                self._flows.clear()
            flow = self._flows[key] = self._made(known, user, info)
        return flow

    def _made(self, known: Configuration, user: User, info: RequestInfo) -> _Flow:
        schema = known.classify(user, info)
        distinguisher = schema.flow(user, info)
        metrics, names = self._metrics, (schema.level, schema.name)
        headers = (SCHEMA_HEADER, schema.uid), (LEVEL_HEADER, known.levels[schema.level].uid)
        return _Flow(
            schema,
            self._levels[schema.level],
            levels.flow_of(schema.name, distinguisher),
            headers,
            metrics.dispatched.cell(*names),
            metrics.executing.cell(*names),
            metrics.executing_seats.cell(*names),
            metrics.waited.cell(*names, "true"),
            metrics.executed.cell(*names, "regular"),
            metrics.seats.cell(*names),
            self.watermark,
        )

    def _width(self, flow: _Flow, info: RequestInfo) -> tuple[int, float]:
        """Return a request's seats, and the seconds for which it keeps them afterwards."""
        if not info.is_resource or flow.seats.exempt:
            return 1, 0.0
        if info.verb in {"list", "watch"} and not info.selected_name:
            count, size = self.load.objects(info.group, info.resource)
            wide = math.ceil(min(count * size, LIST_BYTES) / BYTES_PER_SEAT)
            return self._at_most(flow, wide), 0.0
        if info.mutating:
            watches = self.load.watches(info.group, info.resource)
            if watches >= WATCHES_PER_SEAT:
                wide = self._at_most(flow, min(MOST_MUTATING_SEATS, math.ceil(watches / WATCHES_PER_SEAT)))
                return wide, watches / WATCHES_PER_SEAT * EVENT_SECONDS / wide
        return 1, 0.0

    def _at_most(self, flow: _Flow, wide: int) -> int:
        return max(1, min(wide, math.ceil(self._bounds[flow.schema.level].nominal * _PART_OF_LEVEL)))

    async def wait(self, flow: _Flow, waiter: Waiter) -> float:
        """Wait for the seats; return the seconds waited."""
        names = (flow.schema.level, flow.schema.name)
        inqueue, inqueue_seats = self._metrics.inqueue.cell(*names), self._metrics.inqueue_seats.cell(*names)
        free = asyncio.get_running_loop().create_future()
        waiter.dispatched = lambda: None if free.done() else free.set_result(None)
        began = self._now()
        inqueue.value += 1
        inqueue_seats.value += waiter.width
        reason = CANCELLED
        try:
            async with asyncio.timeout(self._wait_seconds):
                if waiter.began < 0:
                    await free
            reason = ""
        except TimeoutError:
            reason = TIMED_OUT
            raise _refusal(flow) from None
        finally:
            inqueue.value -= 1
            inqueue_seats.value -= waiter.width
            self._metrics.waited.observe(self._now() - began, *names, "false" if reason else "true")
            if reason:
                self._metrics.rejected.increment(*names, reason)
        return self._now() - began


class _OneSeat:
    """The seat of a request that needs one and found it free."""

    __slots__ = ("_began", "_flow", "_left", "_now", "_writes", "headers")
    waits = False

    def __init__(self, flow: _Flow, writes: bool, now: Callable[[], float]) -> None:  # noqa: FBT001 - hot path
        self._flow = flow
        self._writes = writes
        self._now = now
        self._began = now()
        self._left = False
        self.headers = flow.headers

    async def taken(self) -> float:
        return 0.0

    def initialized(self) -> None:
        self.leave()

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._flow.end(self._now() - self._began, writes=self._writes)


class _Seat:
    """The seats of a request."""

    __slots__ = ("_after", "_control", "_flow", "_left", "_running", "_waiter", "_writes", "waits")

    def __init__(self, control: PriorityAndFairness, flow: _Flow, waiter: Waiter, after: float, writes: bool) -> None:  # noqa: FBT001 - hot path
        self._control = control
        self._flow = flow
        self._waiter = waiter
        self._after = after
        self._writes = writes
        self._left = False
        self._running = False
        self.waits = waiter.began < 0
        if not self.waits:
            flow.at_once.observe(0.0)
            self._begin()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return self._flow.headers

    async def taken(self) -> float:
        queued = self._control.queued
        queued.add(writes=self._writes)
        try:
            seconds = await self._control.wait(self._flow, self._waiter)
        finally:
            queued.remove(writes=self._writes)
        self._begin()
        return seconds

    def initialized(self) -> None:
        self.leave()

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        if not self._running:
            self._flow.seats.leave(self._waiter)
            return
        flow, waiter = self._flow, self._waiter
        flow.executing.value -= 1
        flow.executing_seats.value -= waiter.width
        flow.executed.observe(self._control._now() - waiter.began)  # noqa: SLF001 - the two are one
        self._control.watermark.remove(writes=self._writes)
        if self._after:
            asyncio.get_running_loop().call_later(self._after, flow.seats.leave, waiter)
        else:
            flow.seats.leave(waiter)

    def _begin(self) -> None:
        self._running = True
        flow = self._flow
        flow.dispatched.value += 1
        flow.executing.value += 1
        flow.executing_seats.value += self._waiter.width
        self._control.watermark.add(writes=self._writes)


def _refusal(flow: _Flow) -> Rejected:
    return too_many(flow.headers)
