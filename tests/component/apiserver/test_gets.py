from __future__ import annotations

import asyncio
import json
import re
import ssl

import pytest

from storage.memory import MemoryStorage
from storage.port import Unavailable
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import widget

QUERIES = ("", "?resourceVersion=0")


class Slow(MemoryStorage):
    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.fails = False

    async def revision(self) -> int:
        if self.held is not None:
            self.asked.set()
            await self.held.wait()
        if self.fails:
            raise Unavailable("on purpose")
        return await super().revision()

    def hold(self) -> asyncio.Event:
        self.held = asyncio.Event()
        return self.held


class Line:
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


async def dial(api: Api, tls: ssl.SSLContext, address: str = "127.0.0.1") -> Line:
    port = int(api.url.rpartition(":")[2])
    connection = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost", local_addr=(address, 0))
    return Line(*connection, api.path)


@pytest.mark.parametrize("query", QUERIES)
async def test_writes_and_deletions_are_visible_at_once(api: Api, query: str) -> None:
    made = await api.make(widget())
    assert (await api.get(f"w1{query}")).json == made
    made["metadata"]["labels"] = {"a": "b"}
    written = (await api.call("PUT", "w1", made)).json
    if query:
        await api.get("w1")
    assert (await api.get(f"w1{query}")).json == written
    await api.call("DELETE", "w1")
    if query:
        await api.get("w1")
    assert (await api.get(f"w1{query}")).code == 404
    again = await api.make(widget())
    if query:
        await api.get("w1")
    assert (await api.get(f"w1{query}")).json == again


async def test_when_storage_does_not_answer_that_is_said(pki: Pki) -> None:
    storage = Slow()
    async with serving(pki, "--max-requests-inflight=1", storage=storage) as api:
        await api.make(widget())
        storage.fails = True
        for _ in range(2):
            refused = await api.get("w1")
            assert (refused.code, refused.json["reason"]) == (503, "ServiceUnavailable")
        storage.fails = False
        assert (await api.get("w1")).code == 200


async def aborts(api: Api) -> list[str]:
    page = (await api.get("/metrics")).body.decode()
    aborted = [line for line in page.splitlines() if line.startswith("apiserver_request_aborts_total") and "widgets" in line]
    return [line.rpartition(" ")[2] for line in aborted]


async def test_aborted_request_is_counted_and_its_seat_freed(pki: Pki) -> None:
    storage = Slow()
    async with serving(pki, "--max-requests-inflight=1", storage=storage) as api:
        await api.make(widget())
        held = storage.hold()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            impatient = tasks.create_task(api.get("w1"))
            await storage.asked.wait()
            impatient.cancel()
            while not await aborts(api):
                await asyncio.sleep(0.02)
        held.set()
        storage.held = None
        assert (await api.get("w1")).code == 200
        assert await aborts(api) == ["1"]


async def test_requests_sent_ahead_are_answered_in_their_order(pki: Pki) -> None:
    storage = Slow()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        line = await dial(api, pki.client("developer"))
        held = storage.hold()
        line.send("")
        await storage.asked.wait()
        line.send("?resourceVersion=0", "?resourceVersion=7000000", "")
        await asyncio.sleep(0.05)
        held.set()
        storage.held = None
        codes = [(await line.answer())[0].split(" ")[1] for _ in range(4)]
        assert codes == ["200", "200", "504", "200"]
        line.writer.close()


async def test_response_during_a_drain_is_the_connections_last(pki: Pki) -> None:
    storage = Slow()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        line = await dial(api, pki.client("developer"))
        held = storage.hold()
        line.send("")
        await storage.asked.wait()
        asyncio.get_running_loop().call_later(0.3, held.set)
    head, body = await line.answer()
    assert head.startswith("HTTP/1.1 200 ")
    assert "Connection: close\r\n" in head
    assert json.loads(body)["kind"] == "Widget"
    assert await line.reader.read() == b""
    line.writer.close()
