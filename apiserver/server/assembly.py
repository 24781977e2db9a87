"""Build a server for any strategies: stores with caches, application, chain, health and metrics."""

from __future__ import annotations

import platform
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.endpoints import responses
from apiserver.endpoints.application import Application, Parts
from apiserver.endpoints.context import Page, RequestContext
from apiserver.endpoints.documents import OpenAPI
from apiserver.endpoints.filters.authentication import Authenticator
from apiserver.endpoints.filters.authorization import CachingAuthorizer
from apiserver.endpoints.filters.chain import REQUEST_SECONDS, Chain, Phase
from apiserver.endpoints.filters.deadlines import Deadlines
from apiserver.endpoints.filters.impersonation import Impersonation
from apiserver.endpoints.filters.limits import InFlight
from apiserver.endpoints.filters.origins import Origins
from apiserver.endpoints.filters.withdrawing import Withdrawing
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.openapi import version2, version3
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.endpoints.presenting import Presenter
from apiserver.endpoints.verbs.connecting import Streams
from apiserver.endpoints.verbs.served import Served
from apiserver.endpoints.verbs.streamlimits import DEFAULTS, StreamLimits
from apiserver.endpoints.verbs.watching import Watches
from apiserver.registry.cacher.watchcache import WatchCache
from apiserver.registry.generic import codec
from apiserver.registry.generic.admission import Admission
from apiserver.registry.generic.store import Store
from apiserver.registry.generic.strategy import CreatingVerb, Strategy
from apiserver.server import ownership
from apiserver.server.health import Check, Health, Indicators, ping
from apiserver.server.metrics import Metrics, Peaks
from apiserver.server.storage.measuring import MeasuredStorage
from storage.port import Storage, StorageError

DISTRIBUTION: Final = "kubevirt-python"
TITLE: Final = "Kubernetes"


def now() -> datetime:
    """Return the present UTC time."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Assembly:
    """The connected parts of an API server; the caller runs its caches, its informers and :meth:`background`."""

    chain: Chain
    stores: Mapping[Resource, Store]
    watches: Watches
    streams: Streams
    caches: Sequence[WatchCache]
    peaks: Peaks
    informers: Sequence[Informer] = ()
    stopping: bool = field(default=False)

    async def synced(self) -> None:
        """Wait until all caches and informers are synced, then let the chain serve requests."""
        for cache in self.caches:
            await cache.synced.wait()
        for informer in self.informers:
            await informer.synced.wait()
        self.chain.phase = Phase.SERVING

    def background(self) -> tuple[Coroutine[None, None, None], ...]:
        """Return coroutines to run with the server, next to ``run`` of each cache and informer."""
        return self.synced(), self.peaks.run(), self.chain.deadlines.run()

    def not_ready(self) -> None:
        """Make /readyz fail, so no new clients come."""
        self.stopping = True


def assemble(
    strategies: Sequence[Strategy],
    storage: Storage,
    *,
    root: str,
    admission: Admission,
    authenticator: Authenticator,
    authorizer: CachingAuthorizer,
    in_flight: InFlight,
    metrics: Metrics,
    impersonation: Impersonation | None = None,
    origins: Origins | None = None,
    withdrawing: Withdrawing | None = None,
    request_seconds: float = REQUEST_SECONDS,
    informers: Sequence[Informer] = (),
    probes: tuple[Check, Check] | None = None,
    stream_limits: StreamLimits = DEFAULTS,
) -> Assembly:
    """Build a server of these kinds. ``root``: prefix of storage keys, without a final slash.

    ``probes``: storage checks for /healthz and for /readyz; by default, reading the storage's revision.

    Raises ValueError for a verb that creates objects of an unserved resource.
    """
    _check_creations(strategies)
    storage = MeasuredStorage(storage, metrics.storage)
    v3 = _openapi(strategies)
    caches = {
        strategy: WatchCache(storage, codec.collection(root, strategy.resource), partial(codec.decode, strategy))
        for strategy in strategies
        if strategy.hub is strategy
    }
    stores = _stores(strategies, storage, caches, root, admission, v3)
    watches, streams = Watches(metrics.requests.watches), Streams(stream_limits)
    peaks = Peaks(in_flight)
    metrics.follow(stores.values(), peaks)
    indicators = Indicators()
    pages: dict[str, Page] = {
        "/metrics/slis": indicators.page, "/metrics": metrics.page, "/version": _version, "/version/": _version,
    }  # fmt: skip
    parts = Parts(
        served={store.resource: _served(store, v3) for store in stores.values()},
        openapi=OpenAPI(version2.convert(list(v3.values()), title=TITLE, version=_release()), v3),
        pages=pages,
        watches=watches,
        streams=streams,
        now=now,
    )
    chain = Chain(
        Application(parts), authenticator, authorizer, in_flight, metrics.requests, metrics.deciding, impersonation,
        origins or Origins(), withdrawing, Deadlines(request_seconds),
    )  # fmt: skip
    assembly = Assembly(chain, stores, watches, streams, tuple(caches.values()), peaks, informers)
    for path, checks in _checks(assembly, storage, probes).items():
        pages.update(Health(path, checks, indicators).pages())
    return assembly


def _check_creations(strategies: Sequence[Strategy]) -> None:
    served = {each.resource for each in strategies}
    for each in strategies:
        for name, verb in each.verbs.items():
            if isinstance(verb, CreatingVerb) and verb.creates not in served:
                plural, missing = each.resource.plural, f"{verb.creates.plural} of {verb.creates.api_version}"
                raise ValueError(f"{plural}/{name} of {each.resource.api_version} creates {missing}, which this server does not serve")


def _stores(
    strategies: Sequence[Strategy],
    storage: Storage,
    caches: Mapping[Strategy, WatchCache],
    root: str,
    admission: Admission,
    v3: Mapping[str, Object],
) -> dict[Resource, Store]:
    types = ownership.types_of(v3)
    return {
        strategy.resource: Store(
            storage,
            caches[strategy.hub],
            strategy,
            root=root,
            admission=admission,
            now=now,
            owners=ownership.owners_of(strategy, strategies, types),
        )
        for strategy in strategies
    }


def _openapi(strategies: Sequence[Strategy]) -> dict[str, Object]:
    described: dict[str, list[Described]] = {}
    for strategy in strategies:
        described.setdefault(version3.path_of(strategy.resource), []).append(Described.of(strategy))
    return {path: version3.build(each, title=TITLE, version=_release()) for path, each in described.items()}


def _served(store: Store, v3: Mapping[str, Object]) -> Served:
    shape = version3.shape(v3[version3.path_of(store.resource)], Described.of(store.strategy))
    return Served(store, Presenter(store.strategy, now), shape)


def _checks(assembly: Assembly, storage: Storage, probes: tuple[Check, Check] | None) -> dict[str, dict[str, Check]]:
    """Return the health checks by path and name. ``/livez`` omits storage: a restart would not help."""

    async def etcd() -> bool:
        try:
            await storage.revision()
        except StorageError:
            return False
        return True

    healthy, serving = probes or (etcd, etcd)

    async def informers() -> bool:
        return assembly.chain.phase is not Phase.STARTING

    async def shutdown() -> bool:
        return not assembly.stopping

    live: dict[str, Check] = {"ping": ping, "log": ping}
    hooks: dict[str, Check] = {
        "poststarthook/generic-apiserver-start-informers": informers,
        "poststarthook/storage-watch-caches": informers,
    }
    storing: dict[str, Check] = {"etcd": healthy, "etcd-readiness": serving}
    return {
        "/livez": live,
        "/readyz": {**live, **storing, "informer-sync": informers, **hooks, "shutdown": shutdown},
        "/healthz": {**live, "etcd": healthy, **hooks},
    }


async def _version(context: RequestContext) -> Response:
    release = _release()
    major, minor, *_ = (*release.split("."), "0")
    info = {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{release}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": platform.python_compiler(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    return await responses.answer(context, info, pretty=True)


def _release() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0.0.0"
