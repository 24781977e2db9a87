"""TRC-01: spans of requests, sent to a collector by OTLP over gRPC."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.component.apiserver import webhooks
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import widget

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the received spans."""

    port: int = 0
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    async def Export(  # noqa: N802 - gRPC's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            self.services |= {each.value.string_value for each in resource.resource.attributes if each.key == "service.name"}
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def of(self, trace: str) -> list[Span]:
        return [each for each in self.spans if each.trace_id.hex() == trace]

    def one(self, name: str) -> Span:
        (found,) = [each for each in self.spans if each.name == name]
        return found


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    server, collector = grpc.aio.server(), Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated
    collector.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)


def configuration(directory: Path, port: int, rate: int = 0) -> str:
    file = directory / "tracing.yaml"
    file.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
        f"endpoint: 127.0.0.1:{port}\nsamplingRatePerMillion: {rate}\n"
    )  # fmt: skip
    return f"--tracing-config-file={file}"


def attributes(span: Span) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@asynccontextmanager
async def privileged(pki: Pki, api: Api) -> AsyncIterator[Api]:
    context: ssl.SSLContext = pki.client("admin", groups=("system:masters",))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield Api(api.url, session, api.strategy, api.storage)


async def test_trc_01_a_privileged_callers_trace_goes_on(pki: Pki, tmp_path: Path) -> None:
    async with collecting() as collector:
        async with serving(pki, configuration(tmp_path, collector.port)) as api, privileged(pki, api) as admin:
            answer = await admin.call("POST", "", widget("w1"), traceparent=PARENT)
            assert answer.code == 201
            assert (await admin.get("absent", traceparent=PARENT)).code == 404
            await admin.get("w1")  # without a trace context
        (created,) = [each for each in collector.of(TRACE) if each.name.startswith("POST")]
        (absent,) = [each for each in collector.of(TRACE) if each.name.startswith("GET")]
        (commit,) = [each for each in collector.spans if each.name == "etcdserverpb.KV/Txn"]
    assert collector.services == {"apiserver"}
    assert (created.name, created.kind, created.parent_span_id.hex()) == (
        "POST /apis/example.test/v1/namespaces/{:namespace}/widgets", Span.SPAN_KIND_SERVER, "b7ad6b7169203331",
    )  # fmt: skip
    told = attributes(created)
    assert (told["http.response.status_code"], told["audit-id"]) == (201, answer.headers["Audit-Id"])
    assert absent.name == "GET /apis/example.test/v1/namespaces/{:namespace}/widgets/{:name}"
    assert attributes(absent)["http.response.status_code"] == 404
    assert absent.status.code == 0  # a client error
    assert (commit.trace_id, commit.parent_span_id) == (created.trace_id, created.span_id)
    assert {each.trace_id.hex() for each in collector.spans} == {TRACE}


async def test_trc_01_anybody_elses_trace_is_linked_to_and_makes_no_spans(pki: Pki, tmp_path: Path) -> None:
    async with collecting() as collector:
        async with serving(pki, configuration(tmp_path, collector.port)) as api:
            assert (await api.get("", traceparent=PARENT)).code == 200
        assert collector.spans == []
        async with serving(pki, configuration(tmp_path, collector.port, 1_000_000)) as api:
            assert (await api.get("", traceparent=PARENT)).code == 200
    span = next(each for each in collector.spans if each.name == "GET /apis/example.test/v1/namespaces/{:namespace}/widgets")
    assert span.trace_id.hex() != TRACE
    assert [each.trace_id.hex() for each in span.links] == [TRACE]


async def test_trc_01_webhooks_are_told_the_trace(pki: Pki, tmp_path: Path) -> None:
    async with collecting() as collector, webhooks.world(pki, tmp_path) as world:
        hook = world.hook("see")
        await world.validating(hook)
        async with world.api(configuration(tmp_path, collector.port, 1_000_000)) as api:
            await api.make(widget())
        made = collector.one("POST /apis/example.test/v1/namespaces/{:namespace}/widgets")
        asked = collector.one("HTTP POST")
    assert (asked.trace_id, asked.parent_span_id) == (made.trace_id, made.span_id)
    told = {name.lower(): value for name, value in world.hooks["see"].headers[-1].items()}
    assert told["traceparent"].startswith(f"00-{made.trace_id.hex()}-{asked.span_id.hex()}-0")


async def test_requests_are_answered_without_a_collector(pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with collecting() as collector:
        port = collector.port
    async with asyncio.timeout(20), serving(pki, configuration(tmp_path, port, 1_000_000)) as api:
        assert (await api.get("")).code == 200
