"""GETs that were answered before are answered without the chain, and nobody can tell but by the clock."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from apiserver.endpoints.filters import accounting, familiar
from apiserver.endpoints.filters.authentication import Trust
from apiserver.endpoints.filters.authorization import AllowAll, Decision
from apiserver.endpoints.filters.familiar import Familiars
from apiserver.endpoints.http.messages import LATER
from storage.memory import MemoryStorage
from storage.port import Storage, Unavailable
from tests.component.apiserver.conftest import Answer, Api, Pki, serving
from tests.component.apiserver.widgets import widget

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
"""
_END = "-----END CERTIFICATE-----\n"
QUERIES = ("", "?resourceVersion=0")


@asynccontextmanager
async def audited(pki: Pki, directory: Path, storage: Storage | None = None) -> AsyncIterator[tuple[Api, Path]]:
    """Serve with an audit log; yields its file, too."""
    policy, log = directory / "policy.yaml", directory / "audit.log"
    policy.write_text(POLICY)
    async with serving(pki, f"--audit-policy-file={policy}", f"--audit-log-path={log}", storage=storage) as api:
        yield api, log


class Spy:
    """What became of the requests whose heads were known."""

    def __init__(self) -> None:
        self.ways: Counter[str] = Counter()
        self.familiars: Familiars | None = None

    @property
    def made(self) -> Any:
        assert self.familiars is not None
        return self.familiars


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    found, real = Spy(), Familiars.answer

    def answer(self: Familiars, *arguments: Any) -> Any:
        result = real(self, *arguments)
        found.familiars = self
        found.ways["long" if result is None else "later" if result is LATER else "once"] += 1
        return result

    monkeypatch.setattr(Familiars, "answer", answer)
    return found


class Slow(MemoryStorage):
    """A storage whose revision can be held back, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Event | None = None
        self.fails = False

    async def revision(self) -> int:
        if self.held is not None:
            await self.held.wait()
        if self.fails:
            raise Unavailable("on purpose")
        return await super().revision()


async def familiar_with(api: Api, path: str, spy: Spy) -> Answer:
    """Ask until the short way is taken: heads are known from the second time on, and remembered at their end."""
    for _ in range(5):
        before = spy.ways["once"] + spy.ways["later"]
        answer = await api.get(path)
        if spy.ways["once"] + spy.ways["later"] > before:
            return answer
    raise AssertionError(f"no request for {path} was familiar: {spy.ways}")


def event_of(path: Path, answer: Answer) -> list[Any]:
    """Return the events of a request, without what differs in every one."""
    text = path.read_text()
    events = [json.loads(line) for line in text.splitlines() if answer.headers["Audit-Id"] in line]
    for each in events:
        for name in ("auditID", "requestReceivedTimestamp", "stageTimestamp"):
            assert each.pop(name)
    return events


async def metrics(api: Api) -> dict[str, float]:
    page = (await api.get("/metrics")).body.decode()
    pairs = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    counted = re.compile(r"^(apiserver_request_|apiserver_response_|authentic|authoriz|apiserver_audit_)")
    return {
        name: float(value) for name, value in pairs if counted.match(name) and not name.startswith(("authentication_duration_seconds_sum",))
    }


async def counted(api: Api, path: str) -> dict[str, float]:
    """Return what one GET adds to the counters that do not depend on how long it took."""
    before = await metrics(api)
    between = await metrics(api)
    assert (await api.get(path)).code == 200
    after = await metrics(api)
    page = {name: value - before.get(name, 0) for name, value in between.items()}  # what asking for the page itself adds
    added = {name: value - between.get(name, 0) - page.get(name, 0) for name, value in after.items()}
    return {name: round(value, 9) for name, value in added.items() if value and not name.partition("{")[0].endswith(("_sum", "_bucket"))}


@pytest.mark.parametrize("query", QUERIES)
async def test_answers_events_and_metrics_are_those_of_the_long_way(
    pki: Pki, tmp_path: Path, spy: Spy, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    async with audited(pki, tmp_path) as (api, log):
        await api.make(widget())
        short = await familiar_with(api, f"w1{query}", spy)
        short_counts = await counted(api, f"w1{query}")
        assert spy.ways["once" if query else "later"] == 2
        monkeypatch.setattr(Familiars, "answer", lambda *_: None)
        long = await api.get(f"w1{query}")
        long_counts = await counted(api, f"w1{query}")
    assert (short.code, short.body) == (long.code, long.body)
    changing = {"Audit-Id", "Date"}
    assert [(k, v) for k, v in short.headers.items() if k not in changing] == [(k, v) for k, v in long.headers.items() if k not in changing]
    assert list(short.headers) == list(long.headers)
    events = event_of(log, short)
    assert [each["stage"] for each in events] == ["RequestReceived", "ResponseComplete"]
    assert events == event_of(log, long)
    assert short_counts == long_counts


@pytest.mark.parametrize("query", QUERIES)
async def test_what_is_written_is_read_at_once_and_what_is_deleted_is_gone(api: Api, spy: Spy, query: str) -> None:
    made = await api.make(widget())
    await familiar_with(api, f"w1{query}", spy)
    made["metadata"]["labels"] = {"a": "b"}
    written = (await api.call("PUT", "w1", made)).json
    if query:
        await api.get("w1")  # the cache has it now
    assert (await api.get(f"w1{query}")).json == written
    await api.call("DELETE", "w1")
    if query:
        await api.get("w1")
    assert (await api.get(f"w1{query}")).code == 404
    again = await api.make(widget())
    if query:
        await api.get("w1")
    assert (await api.get(f"w1{query}")).json == again


async def test_who_is_not_trusted_any_more_is_not_answered(api: Api, spy: Spy) -> None:
    await api.make(widget())
    await familiar_with(api, "w1?resourceVersion=0", spy)
    spy.made._authenticator.trust = Trust()
    assert (await api.get("w1?resourceVersion=0")).code == 401


async def test_a_judgement_holds_for_its_time_only(api: Api, spy: Spy) -> None:
    await api.make(widget())
    await familiar_with(api, "w1?resourceVersion=0", spy)
    clock = spy.made._authenticator._clock
    spy.made._authenticator._clock = lambda: clock() + 61
    before = spy.ways["long"]
    assert (await api.get("w1?resourceVersion=0")).code == 200
    assert spy.ways["long"] == before + 1


async def test_the_address_in_the_audit_log_is_that_of_who_asked(pki: Pki, tmp_path: Path, spy: Spy) -> None:
    """Two clients with one certificate and one head: what is known of the first is not said of the second."""
    asked, tls = [], pki.client("developer")
    async with audited(pki, tmp_path) as (api, log):
        await api.make(widget())
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"):
            line = await raw(api, tls, address)
            for _ in range(3):
                line.send("?resourceVersion=0")
                head, _ = await line.answer()
                assert head.startswith("HTTP/1.1 200 ")
                audit = re.search(r"Audit-Id: (\S+)", head)
                assert audit is not None
                asked.append((audit[1], address))
            line.writer.close()
        assert spy.ways["once"] > 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    said = {(each["auditID"], *each["sourceIPs"]) for each in events}
    assert {each for each in said if each[0] in dict(asked)} == set(asked)


async def test_what_the_authorizer_does_not_know_any_more_is_asked_of_it(api: Api, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.make(widget())
    await familiar_with(api, "w1?resourceVersion=0", spy)

    async def decide(*_: Any) -> Decision:
        return Decision(allowed=False, reason="not any more")

    monkeypatch.setattr(AllowAll, "known", lambda *_: None)
    monkeypatch.setattr(AllowAll, "decide", decide)
    refused = await api.get("w1?resourceVersion=0")
    assert (refused.code, "not any more" in refused.json["message"]) == (403, True)


async def test_who_acts_as_another_goes_the_long_way_even_as_himself(api: Api, pki: Pki, spy: Spy) -> None:
    await api.make(widget())
    certificate = ssl.PEM_cert_to_DER_cert((pki.directory / "client-developer.crt").read_text().partition("-----END")[0] + _END)
    himself = {
        "Impersonate-User": "developer",
        "Impersonate-Extra-authentication.kubernetes.io%2Fcredential-id": f"X509SHA256={sha256(certificate).hexdigest()}",
    }
    for _ in range(5):
        assert (await api.get("w1?resourceVersion=0", **himself)).code == 200
    assert (spy.ways["once"], spy.ways["long"] > 1) == (0, True)


@pytest.mark.parametrize("query", QUERIES)
async def test_without_a_free_seat_the_long_way_says_so(pki: Pki, spy: Spy, query: str) -> None:
    async with serving(pki, "--max-requests-inflight=5") as api:
        await api.make(widget())
        await familiar_with(api, f"w1{query}", spy)
        mark = spy.made._limiter.watermark
        assert mark.reading == 0
        mark.reading = 5
        refused = await api.get(f"w1{query}")
        assert (refused.code, refused.headers["Retry-After"]) == (429, "1")
        mark.reading = 0
        assert (await api.get(f"w1{query}")).code == 200
        assert mark.reading == 0


async def test_when_storage_does_not_answer_the_long_way_says_so(pki: Pki, spy: Spy) -> None:
    storage = Slow()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        await familiar_with(api, "w1", spy)
        storage.fails = True
        refused = await api.get("w1")
        assert (refused.code, refused.json["reason"]) == (503, "ServiceUnavailable")
        storage.fails = False
        assert (await api.get("w1")).code == 200
        assert spy.made._limiter.watermark.reading == 0


async def test_a_client_that_does_not_wait_is_counted_and_its_seat_is_free(pki: Pki, tmp_path: Path, spy: Spy) -> None:
    storage = Slow()
    async with audited(pki, tmp_path, storage) as (api, log):
        await api.make(widget())
        await familiar_with(api, "w1", spy)
        storage.held = asyncio.Event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await api.get("w1")
        assert spy.made._limiter.watermark.reading == 1
        await asyncio.sleep(0.05)
        storage.held.set()
        storage.held = None
        assert (await api.get("w1")).code == 200
        assert spy.made._limiter.watermark.reading == 0
        aborted = [
            value for name, value in (await metrics(api)).items() if name.startswith("apiserver_request_aborts_total") and "widgets" in name
        ]
        assert aborted == [1.0]
    assert '"message":"Connection closed early"' in log.read_text()


async def test_a_slow_one_is_told_as_slow(pki: Pki, tmp_path: Path, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Slow()
    async with audited(pki, tmp_path, storage) as (api, log):
        await api.make(widget())
        await familiar_with(api, "w1", spy)
        for module in (familiar, accounting):
            monkeypatch.setattr(module, "SLOW_SECONDS", 0.0)
        answer = await api.get("w1")
    annotations = event_of(log, answer)[-1]["annotations"]
    assert annotations["authorization.k8s.io/decision"] == "allow"
    assert annotations["apiserver.latency.k8s.io/total"].endswith("s")


class Raw:
    """A connection on which requests are sent ahead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self.reader, self.writer = reader, writer
        self.path = path

    def send(self, *queries: str) -> None:
        self.writer.write(b"".join([f"GET {self.path}/w1{each} HTTP/1.1\r\nHost: h\r\n\r\n".encode() for each in queries]))

    async def answer(self) -> tuple[str, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"Content-Length: (\d+)", head)
        assert length is not None
        return head, await self.reader.readexactly(int(length[1]))


async def raw(api: Api, tls: ssl.SSLContext, address: str = "127.0.0.1") -> Raw:
    port = int(api.url.rpartition(":")[2])
    connection = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost", local_addr=(address, 0))
    return Raw(*connection, api.path)


async def test_requests_sent_ahead_are_answered_in_their_order(pki: Pki, spy: Spy) -> None:
    storage = Slow()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        line = await raw(api, pki.client("developer"))
        for _ in range(4):
            for query in QUERIES:
                line.send(query)
                await line.answer()
        assert min(spy.ways["once"], spy.ways["later"]) > 0
        storage.held = asyncio.Event()
        line.send("")
        await asyncio.sleep(0.05)
        line.send("?resourceVersion=0", "?resourceVersion=7000000", "")
        await asyncio.sleep(0.05)
        storage.held.set()
        storage.held = None
        codes = [(await line.answer())[0].split(" ")[1] for _ in range(4)]
        assert codes == ["200", "200", "504", "200"]
        line.writer.close()


async def test_an_answer_under_way_when_the_server_drains_is_the_connections_last(pki: Pki, spy: Spy) -> None:
    storage = Slow()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        line = await raw(api, pki.client("developer"))
        for _ in range(4):
            line.send("")
            await line.answer()
        storage.held = asyncio.Event()
        line.send("")
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.3, storage.held.set)  # leaving the block stops the server meanwhile
    head, body = await line.answer()
    assert head.startswith("HTTP/1.1 200 ")
    assert "Connection: close\r\n" in head
    assert json.loads(body)["kind"] == "Widget"
    assert await line.reader.read() == b""
    line.writer.close()
