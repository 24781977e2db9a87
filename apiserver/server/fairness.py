"""Build flow control: follow the cluster's configuration, with a fallback."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Final

from apiserver.apis.core.resources import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS
from apiserver.apis.meta.objects import Object
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints.filters.flowcontrol.control import FlowMetrics, Load, PriorityAndFairness
from apiserver.endpoints.filters.limits import InFlight, Limiter
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.store import Store

_LOOK_SECONDS: Final = 5.0
_SAMPLE: Final = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The flags."""

    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    enable_priority_and_fairness: bool = True

    @property
    def total(self) -> int:
        """Seats of the server: the sum of both limits, as in Go."""
        return self.max_requests_inflight + self.max_mutating_requests_inflight


class Fairness:
    """The limiter and its tasks. Readiness does not depend on it: max-in-flight applies without configuration."""

    def __init__(self, limits: Limits, client: Client | None, registry: Registry) -> None:
        in_flight = InFlight(limits.max_requests_inflight, limits.max_mutating_requests_inflight)
        self.limiter: Limiter = in_flight
        self._control: PriorityAndFairness | None = None
        if client is None or not limits.enable_priority_and_fairness or not limits.total:
            return
        metrics = FlowMetrics()
        metrics.register(registry)
        self.limiter = self._control = PriorityAndFairness(limits.total, in_flight, metrics)
        self._schemas = Informer(client, FLOW_SCHEMAS)
        self._levels = Informer(client, PRIORITY_LEVEL_CONFIGURATIONS)
        for informer in (self._schemas, self._levels):
            informer.subscribe(self._changed)

    def follow(self, stores: Collection[Store], watches: Callable[[str, str], int]) -> None:
        """Take the sources of object sizes and watch counts."""
        if self._control is not None:
            self._control.load = Load(Sizes(stores).of, watches)

    def background(self) -> list[Coroutine[None, None, None]]:
        """Return the coroutines to run."""
        if self._control is None:
            return []
        return [self._schemas.run(), self._levels.run(), self._begin(), self._control.run()]

    async def _begin(self) -> None:
        await self._schemas.synced.wait()
        await self._levels.synced.wait()
        self._changed(None, None)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        del old, new
        if self._control is not None and self._schemas.synced.is_set() and self._levels.synced.is_set():
            self._control.configure(self._schemas.list(), self._levels.list())


class Sizes:
    """Number and average size of resources' objects, updated every few seconds."""

    def __init__(self, stores: Collection[Store], now: Callable[[], float] = time.monotonic) -> None:
        self._stores = {(each.resource.group, each.resource.plural): each for each in stores}
        self._now = now
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    def of(self, group: str, resource: str) -> tuple[int, int]:
        """Return number and average size in bytes; 0 if not served."""
        store = self._stores.get((group, resource))
        if store is None:
            return 0, 0
        known = self._known.get((group, resource))
        if known is None or known[0] < self._now():
            sample = store.cache.list(limit=_SAMPLE).items
            size = sum(len(each.data) for each in sample) // len(sample) if sample else 0
            known = self._known[group, resource] = (self._now() + _LOOK_SECONDS, size)
        return len(store.cache), known[1]
