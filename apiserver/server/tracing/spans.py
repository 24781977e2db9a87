"""OpenTelemetry spans of requests, their storage operations and webhook calls.

Names and attributes are Go's (``k8s.io/apiserver/pkg/endpoints/filters/traces.go`` and its instrumentations). Only a
privileged caller's ``traceparent`` (``system:masters``, ``system:monitoring``) is followed, because others could make us
record without limit; their spans are linked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from apiserver.apis.meta.errors import StatusError
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.requestinfo import RequestInfo
from storage.port import Batch, Condition, Delete, Entry, Page, Put, Storage

_PRIVILEGED: Final = frozenset({"system:masters", "system:monitoring"})
_PROPAGATOR: Final = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
_EXPORT_SECONDS: Final = 5
_SERVER_ERROR: Final = 500
_Result = TypeVar("_Result")


def provider(endpoint: str, rate: float) -> TracerProvider:
    """Return the exporter to ``endpoint`` (``host:port``), sampling a share ``rate`` of new traces."""
    made = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(rate) if rate else ALWAYS_OFF), resource=Resource.create({"service.name": "apiserver"})
    )
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=_EXPORT_SECONDS)))
    return made


class Spans:
    """Records spans; the tracing of a :class:`~apiserver.endpoints.filters.chain.Chain`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("k8s.io/apiserver")

    def close(self) -> None:
        """Send the remaining spans; blocks for a few seconds at most."""
        self._provider.shutdown()

    async def __call__(self, context: RequestContext, answer: Awaitable[Response]) -> Response:
        """Await the answer to an authenticated request within its own span."""
        fields = (*context.request.headers.items(), *context.request.own.items())
        remote = _PROPAGATOR.extract({name.lower(): value for name, value in fields}, Context())
        trusted = not _PRIVILEGED.isdisjoint(context.user.groups)
        theirs = trace.get_current_span(remote).get_span_context()
        with self._tracer.start_as_current_span(
            _name(context.info),
            remote if trusted else Context(),
            SpanKind.SERVER,
            attributes=_attributes(context),
            links=[trace.Link(theirs)] if theirs.is_valid and not trusted else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            code = 0
            try:
                response = await answer
                code = response.status
            except StatusError as error:
                code = error.code
                raise
            finally:
                _ended(span, code)
            return response

    def storage(self, storage: Storage) -> Storage:
        """Return the storage with a span for each call of a traced request."""
        return _TracedStorage(storage, self._tracer)

    @contextmanager
    def calling(self, method: str, url: str, headers: dict[str, str]) -> Iterator[Callable[[int], object]]:
        """Record an outgoing call of a traced request, with ``traceparent``; yield a function for its status."""
        if not trace.get_current_span().is_recording():
            yield lambda _: None
            return
        about = {"http.request.method": method, "url.full": url, "server.address": urlsplit(url).hostname or ""}
        span = self._tracer.start_span(f"HTTP {method}", kind=SpanKind.CLIENT, attributes=about)
        _PROPAGATOR.inject(headers, trace.set_span_in_context(span))
        try:
            yield partial(_ended, span)
        except BaseException as error:
            span.set_status(StatusCode.ERROR, "cancelled" if isinstance(error, asyncio.CancelledError) else str(error))
            raise
        finally:
            span.end()


def _name(info: RequestInfo) -> str:
    if not info.is_resource:
        return info.method
    parts = ["apis", info.group, info.version] if info.group else ["api", info.version]
    parts += ["namespaces", "{:namespace}"] if info.namespace else []
    parts += [info.resource, *(["{:name}"] if info.name else []), *([info.subresource] if info.subresource else [])]
    return f"{info.method} /{'/'.join(parts)}"


def _attributes(context: RequestContext) -> dict[str, str]:
    return {
        "http.request.method": context.info.method,
        "http.target": context.request.target,
        "url.scheme": "https",
        "url.path": context.info.path,
        "user_agent.original": context.request.headers.get("User-Agent", ""),
        "network.protocol.version": "1.1",
        "audit-id": context.audit_id,
    }


def _ended(span: Span, code: int) -> None:
    if code:
        span.set_attribute("http.response.status_code", code)
    if not code or code >= _SERVER_ERROR:
        span.set_status(StatusCode.ERROR)


class _TracedStorage:
    """Records spans of the wrapped storage, named as by etcd's Go client."""

    def __init__(self, storage: Storage, tracer: trace.Tracer) -> None:
        self._storage = storage
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the wrapped one has
        return getattr(self._storage, name)

    async def _within(self, method: str, key: str, work: Awaitable[_Result]) -> _Result:
        if not trace.get_current_span().is_recording():
            return await work
        with self._tracer.start_as_current_span(
            f"etcdserverpb.KV/{method}", kind=SpanKind.CLIENT, attributes={"rpc.system": "grpc", "key": key}, record_exception=False
        ):
            return await work

    async def get(self, key: str) -> Entry | None:
        """See Storage."""
        return await self._within("Range", key, self._storage.get(key))

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """See Storage."""
        return await self._within("Range", prefix, self._storage.range(prefix, start=start, limit=limit, revision=revision))

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        """See Storage."""
        return await self._within("Txn", writes[0].key if writes else "", self._storage.commit(conditions, writes))

    def watch(self, prefix: str, *, after: int, previous: bool = True) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """See Storage."""
        return self._storage.watch(prefix, after=after, previous=previous)

    async def request_progress(self) -> None:
        """See Storage."""
        await self._storage.request_progress()

    async def revision(self) -> int:
        """See Storage."""
        return await self._within("Range", "", self._storage.revision())

    async def compact(self, revision: int) -> None:
        """See Storage."""
        await self._storage.compact(revision)

    async def close(self) -> None:
        """See Storage."""
        await self._storage.close()
