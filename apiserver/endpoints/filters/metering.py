"""Request metrics with the names, labels and buckets of ``k8s.io/apiserver/pkg/endpoints/metrics``.

``apiserver_request_duration_seconds`` and ``apiserver_request_sli_duration_seconds`` share an array for requests that did not wait, because
their buckets nest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.watchmeters import WatchMeters
from apiserver.metrics.exposition import heading, histogram_lines, label_text
from apiserver.metrics.instruments import LIMIT, OTHER, Cell, Counter, Gauge, Histogram, HistogramCell, Registry, exponential

SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
_SLI_FROM: Final = 2
"""The SLI lacks the first two buckets."""
SIZES: Final = exponential(1000, 10, 7)
BODY_SIZES: Final = tuple(50_000 + 100_000 * each for each in range(31))
FILTER_SECONDS: Final = exponential(0.001, 2, 15)
COMPONENT: Final = "apiserver"
Subresources = Mapping[tuple[str, str, str], Collection[str]]
"""By (group, version, resource)."""
LABELS: Final = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_DRY: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_VERBS: Final = {
    "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
    "get": "GET", "list": "LIST", "watch": "WATCH", "post": "POST", "put": "PUT", "head": "GET",
}  # fmt: skip
_SIZED: Final = frozenset({"GET", "LIST"})
_PATHS: Final = {"/apis": "apis", **{each: each for each in ("/healthz", "/livez", "/readyz", "/metrics", "/version")}}
"""With their own label, as in Go."""
_KNOWN_USERS: Final = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})


class Series:
    """The counters of requests with equal labels."""

    __slots__ = (
        "bodies",
        "codes",
        "counts",
        "dry_run",
        "labels",
        "size_counts",
        "size_total",
        "sized",
        "sli",
        "total",
        "waited",
        "waited_total",
    )

    def __init__(self, labels: tuple[str, ...], dry_run: str) -> None:
        self.labels = labels
        self.dry_run = dry_run
        self.codes: dict[int, int] = {}
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0
        self.waited: list[int] | None = None
        """Of requests that waited; ``sli``: without the wait."""
        self.sli: list[int] | None = None
        self.waited_total = 0.0
        self.sized = labels[0] in _SIZED
        self.size_counts = [0] * (len(SIZES) + 1)
        self.size_total = 0
        self.bodies: HistogramCell | None = None

    def ended(self, code: int, seconds: float, waited: float, size: int) -> None:
        """Count one answer; ``waited``: seconds on webhooks and queues."""
        try:
            self.codes[code] += 1
        except KeyError:
            self.codes[code] = 1
        self.total += seconds
        if waited:
            self._waited(seconds, waited)
        else:
            self.counts[bisect_left(SECONDS, seconds)] += 1
        if self.sized:
            self.size_counts[bisect_left(SIZES, size)] += 1
            self.size_total += size

    def _waited(self, seconds: float, waited: float) -> None:
        if self.waited is None or self.sli is None:
            self.waited, self.sli = [0] * len(self.counts), [0] * len(self.counts)
        self.waited[bisect_left(SECONDS, seconds)] += 1
        self.sli[bisect_left(SECONDS, max(0.0, seconds - waited))] += 1
        self.waited_total += min(seconds, waited)

    def durations(self) -> list[int]:
        """Return the number of requests per bucket of total duration."""
        return self.counts if self.waited is None else [a + b for a, b in zip(self.counts, self.waited, strict=True)]

    def sli_durations(self) -> list[int]:
        """Return the number of requests per SLI bucket of duration minus waiting."""
        whole = self.counts if self.sli is None else [a + b for a, b in zip(self.counts, self.sli, strict=True)]
        return [sum(whole[: _SLI_FROM + 1]), *whole[_SLI_FROM + 1 :]]


class Requests:
    """Metrics of requests. Only ``served`` names become labels, because clients can invent others."""

    def __init__(self, served: Subresources | None = None) -> None:
        self._served: dict[tuple[str, str, str], Collection[str]] = dict(served or {})
        self._series: dict[tuple[str, ...], Series] = {}
        self._by_request: dict[tuple[str | bool, ...], Series] = {}
        self.long_running = Gauge("apiserver_longrunning_requests", "Open long-running requests.", LABELS)
        self.terminations = Counter(
            "apiserver_request_terminations_total", "Requests rejected to protect the server.", (*LABELS, "code")
        )  # fmt: skip
        self.aborts = Counter("apiserver_request_aborts_total", "Requests that clients closed before the response.", LABELS[:-1])
        self.body_sizes = Histogram(
            "apiserver_request_body_size_bytes", "Sizes of request bodies in bytes.", BODY_SIZES, ("group", "resource", "verb")
        )
        self.watches = WatchMeters()

    def serve(self, served: Subresources) -> None:
        """Let metrics name these resources and subresources. One that is given again replaces its earlier entry."""
        self._served.update(served)

    def series(self, info: RequestInfo, *, dry_run: str = "", apply: bool = False, connect: bool = False) -> Series:
        """Return the series that counts such requests, created if missing. ``connect``: the request is a stream."""
        if not self._serves(info):
            key: tuple[str | bool, ...] = (*self.labels(info, apply=apply, connect=connect), dry_run)
        else:
            key = (
                info.verb, info.resource, info.subresource, info.group, info.version,
                not info.name or info.selected_name, not info.namespace, dry_run, apply, connect,
            )  # fmt: skip
        found = self._by_request.get(key)
        if found is None:
            found = self._add(info, dry_run=dry_run, apply=apply, connect=connect)
            if len(self._by_request) < 4 * LIMIT:
                self._by_request[key] = found
        return found

    def _add(self, info: RequestInfo, *, dry_run: str, apply: bool, connect: bool) -> Series:
        labels = self.labels(info, apply=apply, connect=connect)
        key = (*labels, dry_run)
        if key not in self._series and len(self._series) >= LIMIT:
            labels, key = (OTHER,) * len(labels), (OTHER,)
        series = self._series.setdefault(key, Series(labels, dry_run))
        if info.mutating and key != (OTHER,) and self._serves(info):
            series.bodies = self.body_sizes.cell(info.group, info.resource, info.verb)
        return series

    def labels(self, info: RequestInfo, *, apply: bool = False, connect: bool = False) -> tuple[str, ...]:
        """Return a request's values of :data:`LABELS`, from a bounded set."""
        verb = "CONNECT" if connect else "APPLY" if apply else _VERBS.get(info.verb, OTHER)
        if not self._serves(info):
            return verb, "", "", "", "" if info.is_resource else _PATHS.get(info.path, ""), "", COMPONENT
        return verb, info.group, info.version, info.resource, info.subresource, _scope(info), COMPONENT

    def _serves(self, info: RequestInfo) -> bool:
        subresources = self._served.get((info.group, info.version, info.resource))
        return subresources is not None and (not info.subresource or info.subresource in subresources)

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(_Total(self._series), _Durations(self._series), _Sli(self._series), _Sizes(self._series))
        registry.add(self.long_running, self.terminations, self.aborts, self.body_sizes)
        self.watches.register(registry)


class Deciding:
    """Metrics of authentication and authorization."""

    def __init__(self) -> None:
        self.attempts = Counter("authentication_attempts", "Authentications by result.", ("result",))
        self.authentications = Histogram("authentication_duration_seconds", "Time of authentication.", FILTER_SECONDS, ("result",))
        self.users = Counter("authenticated_user_requests", "Authenticated requests by kind of user.", ("username",))
        self.authorizations = Histogram("authorization_duration_seconds", "Time of authorization.", FILTER_SECONDS, ("result",))
        self.decisions = Counter("authorization_attempts_total", "Authorizations by result.", ("result",))
        self._success, self._success_seconds = self.attempts.cell("success"), self.authentications.cell("success")
        self._allowed, self._allowed_seconds = self.decisions.cell("allowed"), self.authorizations.cell("allowed")
        self._users: dict[str, Cell] = {}

    def authenticated(self, name: str, seconds: float) -> None:
        """Count and time a successful authentication of the user ``name``."""
        self._success.value += 1
        self._success_seconds.observe(seconds)
        user = self._users.get(name)
        if user is None:
            user = self.users.cell(compressed(name))
            if len(self._users) < LIMIT:
                self._users[name] = user
        user.value += 1

    def unauthenticated(self, result: str, seconds: float) -> None:
        """Count a ``failure`` or an ``error`` of authentication."""
        self.attempts.increment(result)
        self.authentications.observe(seconds, result)

    def allowed(self, seconds: float) -> None:
        """Count an allowed request."""
        self._allowed.value += 1
        self._allowed_seconds.observe(seconds)

    def refused(self, result: str, seconds: float) -> None:
        """Count a ``denied``, ``no-opinion`` or ``error`` of authorization."""
        self.decisions.increment(result)
        self.authorizations.observe(seconds, result)

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self.attempts, self.authentications, self.users, self.authorizations, self.decisions)


def dry_run(query: Mapping[str, str]) -> str:
    """Return the label ``dry_run`` of a write: empty, ``All`` or ``invalid``."""
    given = query.get("dryRun")
    return "" if given is None else "All" if given == "All" else "invalid"


def compressed(name: str) -> str:
    """Return a user's label: a known name, ``email_id`` or OTHER, because labels must not name people."""
    return name if name in _KNOWN_USERS else "email_id" if "@" in name else OTHER


def _scope(info: RequestInfo) -> str:
    return "resource" if info.verb == "create" else info.scope


class _Total:
    name = "apiserver_request_total"
    _about = "Requests by verb, dry run, group, version, resource, scope, component and code."

    def __init__(self, series: dict[tuple[str, ...], Series]) -> None:
        self._series = series

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, "counter", self._about)
        for each in self._series.values():
            for code, count in each.codes.items():
                yield f"{self.name}{label_text((*_DRY, 'code'), (*_dry(each), str(code)))} {count}"


class _Durations:
    name = "apiserver_request_duration_seconds"
    _about = "Response time in seconds by verb, dry run, group, version, resource, subresource, scope and component."

    def __init__(self, series: dict[tuple[str, ...], Series]) -> None:
        self._series = series

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, "histogram", self._about)
        for each in self._series.values():
            if each.labels[0] != "WATCH":
                yield from histogram_lines(self.name, _DRY, _dry(each), SECONDS, each.durations(), each.total)


class _Sli:
    name = "apiserver_request_sli_duration_seconds"
    _about = "Response time in seconds without webhooks and queueing."

    def __init__(self, series: dict[tuple[str, ...], Series]) -> None:
        self._series = series

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, "histogram", self._about)
        for each in self._series.values():
            if each.labels[0] != "WATCH" and not each.dry_run:
                total = each.total - each.waited_total
                yield from histogram_lines(self.name, LABELS, each.labels, SECONDS[_SLI_FROM:], each.sli_durations(), total)


class _Sizes:
    name = "apiserver_response_sizes"
    _about = "Sizes of responses to reads in bytes."

    def __init__(self, series: dict[tuple[str, ...], Series]) -> None:
        self._series = series

    def lines(self) -> Iterator[str]:
        yield from heading(self.name, "histogram", self._about)
        for each in self._series.values():
            if each.sized:
                yield from histogram_lines(self.name, LABELS, each.labels, SIZES, each.size_counts, each.size_total)


def _dry(series: Series) -> tuple[str, ...]:
    return (series.labels[0], series.dry_run, *series.labels[1:])
