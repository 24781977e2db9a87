"""``/metrics``, with Kubernetes' names for existing dashboards and alerts.

:mod:`apiserver.endpoints.filters.metering` counts requests, :mod:`apiserver.server.storage.measuring` storage
operations; caches, limits and queues are read on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import Client
from apiserver.endpoints import discovery, responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.filters.limits import InFlight
from apiserver.endpoints.filters.metering import Deciding, Requests
from apiserver.endpoints.filters.tokens import TokenCounts
from apiserver.endpoints.http.messages import Response
from apiserver.metrics import process
from apiserver.metrics.instruments import Counter, Histogram, Read, Registry
from apiserver.registry.generic.store import Store
from apiserver.server.storage.measuring import StorageMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PEAK_SECONDS: Final = 1.0
_DELEGATED_SECONDS: Final = (0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10)
_CLIENT_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_EXPIRY_SECONDS: Final = (
    0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000,
)  # fmt: skip
Labelled = Iterable[tuple[tuple[str, ...], float]]


class Delegation:
    """Metrics of reviews by kube-apiserver, and of client certificates."""

    def __init__(self) -> None:
        self.authn = Counter("apiserver_delegated_authn_request_total", "TokenReviews by status code.", ("code",))
        self.authn_seconds = Histogram(
            "apiserver_delegated_authn_request_duration_seconds", "Time of TokenReviews.", _DELEGATED_SECONDS, ("code",)
        )
        self.authz = Counter("apiserver_delegated_authz_request_total", "SubjectAccessReviews by status code.", ("code",))
        self.authz_seconds = Histogram(
            "apiserver_delegated_authz_request_duration_seconds", "Time of SubjectAccessReviews.", _DELEGATED_SECONDS, ("code",)
        )
        self.tokens = TokenCounts()
        self.expiry = Histogram(
            "apiserver_client_certificate_expiration_seconds", "Remaining lifetime of client certificates in seconds.", _EXPIRY_SECONDS
        )
        self.requests = Counter("rest_client_requests_total", "Requests to kube-apiserver.", ("code", "method", "host"))
        self.request_seconds = Histogram(
            "rest_client_request_duration_seconds", "Duration of requests to kube-apiserver in seconds.", _CLIENT_SECONDS, ("verb", "host")
        )

    def follow(self, client: Client) -> None:
        """Count the client's requests to kube-apiserver from now on; replaces its ``observe``."""
        host = client.config.server.partition("://")[2]

        def observe(method: str, code: int, seconds: float) -> None:
            self.requests.increment(str(code) if code else "<error>", method, host)
            self.request_seconds.observe(seconds, method, host)

        client.observe = observe

    def authenticated(self, code: str, seconds: float) -> None:
        """Count and time a TokenReview by status code."""
        self.authn.increment(code)
        self.authn_seconds.observe(seconds, code)

    def authorized(self, code: str, seconds: float) -> None:
        """Count and time a SubjectAccessReview by status code."""
        self.authz.increment(code)
        self.authz_seconds.observe(seconds, code)

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self.authn, self.authn_seconds, self.authz, self.authz_seconds, self.expiry)
        registry.add(self.requests, self.request_seconds)
        registry.add(self.tokens.requests, self.tokens.seconds, self.tokens.fetches)


class Peaks:
    """Peak requests within the last second, as Go's gauge of requests in flight."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._last = (0, 0)

    async def run(self) -> None:
        """Keep each second's peaks until cancelled."""
        while True:
            self._last = self._in_flight.take_peaks()
            await asyncio.sleep(_PEAK_SECONDS)

    def read(self) -> Labelled:
        """Return the last second's peaks of reads and of writes, labelled."""
        return ((("readOnly",), self._last[0]), (("mutating",), self._last[1]))


class Metrics:
    """The page ``/metrics`` and its metrics."""

    def __init__(self, *, root: str = "") -> None:
        self.registry = Registry()
        self.requests = Requests()
        self.deciding = Deciding()
        self.delegation = Delegation()
        self.storage = StorageMetrics(root)
        for each in (self.requests, self.deciding, self.delegation, self.storage):
            each.register(self.registry)
        self.registry.add(*process.families())

    def follow(self, stores: Collection[Store], peaks: Peaks) -> None:
        """Add metrics of the stores' caches and the peaks."""
        self.requests.serve({_served(each.resource): [name for name, *_ in discovery.subresources(each.strategy)] for each in stores})
        about = "Maximum concurrent requests within the last second, by kind."
        self.registry.add(Read("apiserver_current_inflight_requests", "gauge", about, ("request_kind",), peaks.read))
        self.registry.add(*_caches([each for each in stores if each.strategy.hub is each.strategy]))

    async def page(self, context: RequestContext) -> Response:
        """Answer in Prometheus' text format."""
        response = Response(body=self.registry.page(), content_type=CONTENT_TYPE)
        return await responses.compressed(context.request, response)


def _caches(stores: Collection[Store]) -> Iterable[Read]:
    def each(names: Callable[[Store], tuple[str, ...]], count: Callable[[Store], float]) -> Callable[[], Labelled]:
        return lambda: ((names(store), count(store)) for store in stores)

    group = ("group", "resource")
    about = "Stored objects at the last count."
    yield Read("apiserver_storage_objects", "gauge", about, ("resource",), each(_qualified, _objects))
    yield Read("apiserver_resource_objects", "gauge", about, group, each(_names, _objects))
    about = "Stored values that cannot be decoded."
    yield Read("apiserver_storage_undecodable_objects", "gauge", about, group, each(_names, lambda store: len(store.cache.undecodable)))
    about = "Stored values that could not be decoded, each revision of each key once."
    yield Read("apiserver_storage_decode_errors_total", "counter", about, group, each(_names, lambda store: store.cache.decode_errors))
    about = "Comparisons of watch caches with the storage, by result."
    yield Read("apiserver_storage_consistency_checks_total", "counter", about, (*group, "status"), lambda: _checks(stores))
    about = "Changes that the watch cache received from the storage."
    yield Read("apiserver_watch_cache_events_received_total", "counter", about, group, each(_names, lambda store: store.cache.changes))
    about = "Changes that watch caches dispatched to watches."
    yield Read("apiserver_watch_cache_events_dispatched_total", "counter", about, group, each(_names, lambda store: store.cache.dispatched))
    about = "Consistent lists by whether the watch cache was fresh and whether the storage answered instead."
    consistent = (*group, "success", "fallback")
    yield Read("apiserver_watch_cache_consistent_read_total", "counter", about, consistent, lambda: _consistent(stores))
    about = "Revision that the watch cache has reached."
    yield Read("apiserver_watch_cache_resource_version", "gauge", about, group, each(_names, lambda store: store.cache.revision))
    index = ("group", "resource", "index")
    about = "Lists that watch caches answered."
    yield Read(
        "apiserver_cache_list_total", "counter", about, index, each(lambda store: (*_names(store), ""), lambda store: store.cache.lists)
    )
    about = "Objects that watch caches read for lists."
    yield Read(
        "apiserver_cache_list_fetched_objects_total",
        "counter",
        about,
        index,
        each(lambda store: (*_names(store), ""), lambda store: store.cache.list_fetched),
    )
    about = "Objects in the lists that watch caches answered."
    yield Read(
        "apiserver_cache_list_returned_objects_total", "counter", about, group, each(_names, lambda store: store.cache.list_returned)
    )
    about = "Full reads of the storage by the watch cache."
    yield Read("apiserver_watch_cache_initializations_total", "counter", about, group, each(_names, lambda store: store.cache.listings))


def _checks(stores: Collection[Store]) -> Labelled:
    for store in stores:
        for status, count in store.cache.checks.items():
            yield (*_names(store), status), count


def _consistent(stores: Collection[Store]) -> Labelled:
    for store in stores:
        reads = store.cache.consistent_reads
        yield (*_names(store), "true", "false"), reads["success"]
        yield (*_names(store), "false", "true"), reads["fallback"]


def _objects(store: Store) -> int:
    return store.cache.count()


def _served(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _names(store: Store) -> tuple[str, ...]:
    return store.resource.group, store.resource.plural


def _qualified(store: Store) -> tuple[str, ...]:
    return (f"{store.resource.plural}.{store.resource.group}" if store.resource.group else store.resource.plural,)
