from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from apiserver.server.options import Times
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import WIDGETS, widget
from tests.own_time import within

GET = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n"
LIST = WIDGETS.path("acc").encode()


@asynccontextmanager
async def connected(api: Api, pki: Pki, **more: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = api.url.removeprefix("https://").rpartition(":")
    context = pki.client("developer")
    for key, value in more.items():
        setattr(context, key, value)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(each[15:]) for each in head.split(b"\r\n") if each.lower().startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
        b"GET /x HTTP/1.1\nHost: a\n\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"GET https://a/x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 nonsense\r\n\r\n",
    ],
    ids=["length-and-chunks", "folded", "bare-lf", "nul", "absolute", "no-host", "noise"],
)
async def test_smuggling_attempts_are_400_and_close_the_connection(api: Api, pki: Pki, raw: bytes) -> None:
    async with asyncio.timeout(10), connected(api, pki) as (reader, writer):
        writer.write(raw + GET % b"/livez")
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 400 ")
        assert told.count(b"HTTP/1.1") == 1


async def test_bad_sizes_of_chunks_are_400(api: Api, pki: Pki) -> None:
    async with asyncio.timeout(10), connected(api, pki) as (reader, writer):
        writer.write(b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" % LIST)
        assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 400 ")
        assert await reader.read() == b""


async def test_neg_14_requests_sent_ahead_are_answered_in_order(api: Api, pki: Pki) -> None:
    await api.make(widget())
    async with asyncio.timeout(10), connected(api, pki) as (reader, writer):
        writer.write(GET % (LIST + b"/w1") + GET % b"/livez" + GET % (LIST + b"/nope"))
        answers = [await answer_of(reader) for _ in range(3)]
        assert [each[0].split(b" ")[1] for each in answers] == [b"200", b"200", b"404"]
        assert answers[1][1] == b"ok"


async def test_a_body_is_asked_for_with_100_continue(api: Api, pki: Pki) -> None:
    body = json.dumps(widget()).encode()
    async with asyncio.timeout(10), connected(api, pki) as (reader, writer):
        head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % (LIST, len(body)))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 201 ")


async def test_neg_16_every_request_of_a_connection_must_come_in_time(pki: Pki) -> None:
    settings = Times().connections
    quick = Times(connections=replace(settings, verified=replace(settings.verified, head_seconds=0.5)))
    async with serving(pki, times=quick) as api, asyncio.timeout(15), connected(api, pki) as (reader, writer):
        writer.write(GET % b"/livez")
        await answer_of(reader)
        writer.write(b"GET /livez HTTP/1.1\r\nX: ")
        assert await reader.read() == b""


async def test_neg_16_header_fields_end_at_a_megabyte(api: Api, pki: Pki) -> None:
    async with asyncio.timeout(20), connected(api, pki) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (1 << 20))
        assert (await answer_of(reader))[0].startswith(b"HTTP/1.1 431 ")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_neg_15_old_tls_is_refused_and_certificates_are_optional(api: Api, pki: Pki) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with connected(api, pki, minimum_version=ssl.TLSVersion.TLSv1_1, maximum_version=ssl.TLSVersion.TLSv1_1):
            pass
    async with connected(api, pki, maximum_version=ssl.TLSVersion.TLSv1_2) as (reader, writer):
        writer.write(GET % b"/livez")
        assert (await answer_of(reader))[1] == b"ok"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client())) as nobody, nobody.get(f"{api.url}/livez") as answer:
        assert answer.status == 200


async def test_req_08_head_is_refused_on_resources_only(api: Api) -> None:
    await api.make(widget())
    assert [(await api.call("HEAD", path)).code for path in ("", "w1", "w1/status")] == [405, 405, 405]
    for path in ("/livez", "/version", "/metrics"):
        answer = await api.call("HEAD", path)
        assert (answer.code, answer.body) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0


async def test_neg_09_people_get_lines_and_programs_do_not(api: Api) -> None:
    await api.make(widget())
    assert (await api.get("w1", User_Agent="x")).body.count(b"\n") == 1
    for agent in ("curl/8.0", "Wget/1", "Mozilla/5.0 (X11)"):
        assert (await api.get("w1", User_Agent=agent)).body.count(b"\n") > 5
    assert (await api.get("w1?pretty=0", User_Agent="curl")).body.count(b"\n") == 1
    assert (await api.get("w1?pretty=", User_Agent="curl")).body.count(b"\n") > 5
    assert (await api.get("?pretty=true", User_Agent="x")).body.count(b"\n") > 5
    assert (await api.get("w1", User_Agent="x", Accept="application/json;pretty=1")).body.count(b"\n") > 5
    async with api.watch("timeoutSeconds=1&pretty=true", User_Agent="curl") as frames:
        assert (await anext(frames))["type"] == "ADDED"


async def test_neg_10_large_lists_are_compressed_and_small_ones_not(api: Api) -> None:
    for number in range(40):
        await api.make({**widget(f"w{number}"), "metadata": {"name": f"w{number}", "annotations": {"a": "x" * 5000}}})
    api.session._auto_decompress = False  # so that the test sees the received bytes
    large = await api.get("", Accept_Encoding="gzip")
    assert (large.headers["Content-Encoding"], large.headers["Vary"]) == ("gzip", "Accept-Encoding")
    plain = await api.get("", Accept_Encoding="identity")
    assert ("Content-Encoding" in plain.headers, len(plain.body)) == (False, int(plain.headers["Content-Length"]))
    assert gzip.decompress(large.body) == plain.body
    assert len(plain.json["items"]) == 40
    small = await api.get("?limit=2", Accept_Encoding="gzip")
    assert ("Content-Encoding" in small.headers, "Vary" in small.headers) == (False, False)
    refused = await api.get("", Accept_Encoding="gzip;q=0")
    assert "Content-Encoding" not in refused.headers


async def test_neg_13_answers_carry_security_and_audit_headers(api: Api) -> None:
    answer = await api.get("nope", Audit_Id="abc")
    assert answer.headers["Cache-Control"] == "no-cache, private"
    assert (answer.headers["Audit-Id"], answer.headers["X-Content-Type-Options"]) == ("abc", "nosniff")
    assert answer.headers["Date"].endswith("GMT")


async def test_wch_14_watch_speaks_websocket_and_ends_on_close(api: Api) -> None:
    await api.make(widget())
    async with api.session.ws_connect(f"{api.url}{api.path}?watch=1", protocols=("v4.channel.k8s.io",)) as socket:
        first = await socket.receive()
        assert (first.type, json.loads(first.data)["type"], socket.protocol) == (aiohttp.WSMsgType.TEXT, "ADDED", "v4.channel.k8s.io")
        await socket.send_str("nobody reads this" * 100)
        await api.patch("w1", {"spec": {"size": 2}})
        second = json.loads((await socket.receive()).data)
        assert (second["type"], second["object"]["spec"]["size"]) == ("MODIFIED", 2)
        await socket.close()
        assert socket.close_code == 1000
    async with api.session.ws_connect(f"{api.url}{api.path}?watch=1&timeoutSeconds=1") as socket:
        types = [json.loads(each.data)["type"] async for each in socket]
        assert (types, socket.close_code) == (["ADDED"], 1000)


async def test_agg_06_a_frame_is_sent_at_once_and_without_a_length(api: Api) -> None:
    async with api.session.get(f"{api.url}{api.path}?watch=1") as answer:
        assert "Content-Length" not in answer.headers
        assert answer.headers["Transfer-Encoding"] == "chunked"
        await api.make(widget())
        assert b'"ADDED"' in await within(0.5, answer.content.readline())


async def test_watch_ends_when_its_client_disconnects(api: Api, pki: Pki) -> None:
    async with connected(api, pki) as (reader, writer):
        writer.write(GET % (LIST + b"?watch=1"))
        await reader.readuntil(b"\r\n\r\n")
        assert await _watches(api) == 1
    async with asyncio.timeout(30):
        while await _watches(api):
            await asyncio.sleep(0.02)


async def _watches(api: Api) -> int:
    page = (await api.get("/metrics")).body.decode()
    found = [line for line in page.splitlines() if line.startswith("apiserver_longrunning_requests{") and 'resource="widgets"' in line]
    return round(sum(float(each.rpartition(" ")[2]) for each in found))


async def _stop(api: Api) -> None:
    await api.process.listener.stop(delay=0, not_ready=lambda: None)


async def test_wch_16_watches_end_cleanly_and_spread_at_shutdown(pki: Pki) -> None:
    ends: list[float] = []

    async def follow(api: Api) -> None:
        async with api.session.get(f"{api.url}{api.path}?watch=1") as answer:
            assert [each async for each in answer.content] == []  # anything but a clean end raises
        ends.append(asyncio.get_running_loop().time())

    async with asyncio.TaskGroup() as tasks, serving(pki, times=Times(watches_end=0.5)) as api:
        for _ in range(20):
            tasks.create_task(follow(api))
        while await _watches(api) < 20:
            await asyncio.sleep(0.02)
        stopping = asyncio.get_running_loop().time()
        # The client stays open until its watches end, so the test stops the server from within.
        api.extra["stopping"] = stopping
        await _stop(api)
    assert len(ends) == 20
    assert max(ends) - min(ends) > 0.1


async def test_shd_01_a_stop_loses_no_request(pki: Pki) -> None:
    async with serving(pki) as api:
        await api.make(widget())
        codes: list[int] = []
        done = asyncio.Event()

        async def ask() -> None:
            while not done.is_set():
                try:
                    answer = await api.get("w1")
                except aiohttp.ClientConnectorError:
                    return
                codes.append(answer.code)
                if answer.code == 429:
                    assert (answer.headers["Retry-After"], answer.headers["Connection"]) == ("5", "close")

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(ask())
            while len(codes) <= 8:
                await asyncio.sleep(0.02)
            await _stop(api)
            done.set()
    assert set(codes) <= {200, 429}
    assert codes.count(200) > 8


async def test_shd_01_current_request_is_answered_during_shutdown(pki: Pki) -> None:
    async with serving(pki) as api:
        entered, release = asyncio.Event(), asyncio.Event()
        commit = api.storage.commit

        async def slow(*given: Any) -> int:
            entered.set()
            await release.wait()
            return await commit(*given)

        api.storage.commit = slow  # type: ignore[method-assign, assignment]  # a double of one method
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(api.call("POST", "", widget()))
            await entered.wait()
            stopping = tasks.create_task(_stop(api))
            await asyncio.sleep(0.1)
            assert not stopping.done()
            release.set()
        assert (first.result().code, first.result().headers["Connection"]) == (201, "close")
