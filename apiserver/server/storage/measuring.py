"""Metrics of storage operations, with the names of ``k8s.io/apiserver/pkg/storage/etcd3/metrics``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, Final

from apiserver.metrics.instruments import Cell, Counter, Histogram, HistogramCell, Registry
from storage.port import Batch, Condition, Delete, Entry, Page, Put, Storage, StorageError

SECONDS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
_LABELS: Final = ("operation", "group", "resource")


class StorageMetrics:
    """Metrics of storage operations, with cached cells per resource."""

    def __init__(self, root: str) -> None:
        self._skip = len(root.strip("/").split("/")) if root.strip("/") else 0
        self.seconds = Histogram("etcd_request_duration_seconds", "Time of requests to storage.", SECONDS, _LABELS)
        self.requests = Counter("etcd_requests_total", "Requests to storage.", _LABELS)
        self.errors = Counter("etcd_request_errors_total", "Requests to storage that failed.", _LABELS)
        self.lists = Counter("apiserver_storage_list_total", "Lists served from storage.", ("group", "resource"))
        self.listed = Counter("apiserver_storage_list_fetched_objects_total", "Objects that those lists read.", ("group", "resource"))
        self._cells: dict[tuple[str, ...], tuple[Cell, HistogramCell]] = {}

    def register(self, registry: Registry) -> None:
        """Register all metrics."""
        registry.add(self.seconds, self.requests, self.errors, self.lists, self.listed)

    def observe(self, operation: str, key: str, began: float) -> None:
        """Count an answered operation; ``key`` may be its keys' prefix; ``began``: its ``perf_counter()``."""
        # GROUP and RESOURCE follow the root, which starts with a slash.
        place = (operation, *key.split("/", self._skip + 3)[self._skip + 1 : self._skip + 3])
        cells = self._cells.get(place)
        if cells is None:
            labels = (operation, *self.resource(key))
            cells = self._cells[place] = (self.requests.cell(*labels), self.seconds.cell(*labels))
        cells[0].value += 1
        cells[1].observe(perf_counter() - began)

    def failed(self, operation: str, key: str, began: float) -> None:
        """Count a failed operation; parameters as of :meth:`observe`."""
        self.observe(operation, key, began)
        self.errors.increment(operation, *self.resource(key))

    def resource(self, key: str) -> tuple[str, str]:
        """Return group and resource of a key or prefix, each empty if missing; a single part is the resource."""
        parts = key.strip("/").split("/")[self._skip :]
        return (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0] if parts else "")


class MeasuredStorage:
    """A Storage that passes calls on to another, and counts and times reads and commits."""

    def __init__(self, storage: Storage, metrics: StorageMetrics) -> None:
        self._storage = storage
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the wrapped one has
        return getattr(self._storage, name)

    async def get(self, key: str) -> Entry | None:
        """Call and measure ``Storage.get``."""
        began = perf_counter()
        try:
            entry = await self._storage.get(key)
        except StorageError:
            self._metrics.failed("get", key, began)
            raise
        self._metrics.observe("get", key, began)
        return entry

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Call and measure ``Storage.range``."""
        began = perf_counter()
        try:
            page = await self._storage.range(prefix, start=start, limit=limit, revision=revision)
        except StorageError:
            self._metrics.failed("list", prefix, began)
            raise
        self._metrics.observe("list", prefix, began)
        resource = self._metrics.resource(prefix)
        self._metrics.lists.increment(*resource)
        self._metrics.listed.cell(*resource).value += len(page.entries)
        return page

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """Call and measure ``Storage.commit``."""
        operation = _operation(conditions, writes)
        key = writes[0].key if writes else conditions[0].key if conditions else ""
        began = perf_counter()
        try:
            revision = await self._storage.commit(conditions, writes)
        except StorageError:
            self._metrics.failed(operation, key, began)
            raise
        self._metrics.observe(operation, key, began)
        return revision

    def watch(self, prefix: str, *, after: int, previous: bool = True) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Pass on ``Storage.watch``, unmeasured."""
        return self._storage.watch(prefix, after=after, previous=previous)

    async def request_progress(self) -> None:
        """Pass on ``Storage.request_progress``."""
        await self._storage.request_progress()

    async def revision(self) -> int:
        """Call and measure ``Storage.revision``; failures are not counted."""
        began = perf_counter()
        revision = await self._storage.revision()
        self._metrics.observe("getCurrentResourceVersion", "", began)
        return revision

    async def compact(self, revision: int) -> None:
        """Pass on ``Storage.compact``."""
        await self._storage.compact(revision)

    async def close(self) -> None:
        """Pass on ``Storage.close``."""
        await self._storage.close()


def _operation(conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> str:
    if not writes:
        return "get"
    if isinstance(writes[0], Delete):
        return "delete"
    return "create" if conditions and conditions[0].mod_revision == 0 else "update"
