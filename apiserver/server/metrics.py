"""Metrics under the names that operators' dashboards and alerts know from Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from apiserver.endpoints.call import Call
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.registry.generic.store import Store

_SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
_LABELS: Final = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_VERBS: Final = {
    "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
    "get": "GET", "list": "LIST", "watch": "WATCH", "post": "POST", "put": "PUT",
}  # fmt: skip


class _Objects(Collector):
    """How many objects there are, counted when somebody asks."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores

    def collect(self) -> list[Metric]:
        """Return the gauges."""
        objects = GaugeMetricFamily("apiserver_storage_objects", "Number of stored objects, by resource.", labels=["resource"])
        bad = GaugeMetricFamily(
            "apiserver_storage_undecodable_objects", "Number of stored values that are no objects.", labels=["resource"]
        )
        for name, store in self._stores.items():
            objects.add_metric([name], len(store.cache.list().items))
            bad.add_metric([name], len(store.cache.undecodable))
        return [objects, bad]


class Metrics:
    """Counts requests; an ``Observer`` of the chain."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Objects(stores))
        self._known = {store.resource.plural for store in stores.values()}
        self._requests = Counter(
            "apiserver_request", "Requests by verb, resource and code.", (*_LABELS, "dry_run", "code"), registry=self.registry
        )  # fmt: skip
        self._seconds = Histogram(
            "apiserver_request_duration_seconds", "Response latency.", _LABELS, buckets=_SECONDS, registry=self.registry
        )  # fmt: skip
        self._long = Gauge("apiserver_longrunning_requests", "Watches and streams that are open.", _LABELS, registry=self.registry)
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests", "Requests that are being answered.", ("request_kind",), registry=self.registry
        )  # fmt: skip

    def began(self, call: Call, *, long_running: bool) -> None:
        """Count a request that is let in."""
        if long_running:
            self._long.labels(**self._labels(call.info)).inc()
        else:
            self._in_flight.labels(_kind(call.info)).inc()

    def ended(self, call: Call, code: int, seconds: float, *, long_running: bool) -> None:
        """Count an answer; the time of a watch says nothing and is not kept."""
        labels = self._labels(call.info)
        dry_run = "All" if "dryRun" in call.request.query else ""
        self._requests.labels(**labels, dry_run=dry_run, code=str(code)).inc()
        if long_running:
            self._long.labels(**labels).dec()
        else:
            self._in_flight.labels(_kind(call.info)).dec()
            self._seconds.labels(**labels).observe(seconds)

    def _labels(self, info: RequestInfo) -> dict[str, str]:
        """Return labels out of a bounded set: what a client invents is ``other``."""
        known = info.is_resource and info.resource in self._known
        return {
            "verb": _VERBS.get(info.verb, "other"),
            "group": info.group if known else "",
            "version": info.version if known else "",
            "resource": info.resource if known else "",
            "subresource": info.subresource if known and len(info.subresource) < 32 and info.subresource.isalpha() else "",
            "scope": info.scope if known else "",
            "component": "apiserver",
        }

    async def page(self, call: Call) -> web.StreamResponse:
        """Answer in Prometheus' text format."""
        del call
        body = generate_latest(self.registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _kind(info: RequestInfo) -> str:
    return "mutating" if info.mutating else "readOnly"
