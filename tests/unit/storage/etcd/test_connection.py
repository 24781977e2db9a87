"""An endpoint's choice, with scripted servers."""

import asyncio

import pytest

from storage.etcd import connection
from storage.etcd.connection import Connection
from storage.grpc import frames
from storage.port import Unavailable
from tests.own_time import within
from tests.unit.storage.grpc.test_link import SETTINGS, echo, serving, soon


def connection_to(*ports: int) -> Connection:
    return Connection(tuple(f"http://127.0.0.1:{port}" for port in ports), None, asyncio.get_running_loop().time)


async def give_up(store: Connection) -> None:
    with pytest.raises(Unavailable):
        await store.ready(soon(0.01))


async def test_many_callers_wait_for_one_connection() -> None:
    made = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await reader.readexactly(len(frames.PREFACE))
        asyncio.get_running_loop().call_later(0.05, writer.write, SETTINGS)
        await reader.read()

    async with serving(counted) as port:
        store = connection_to(port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(give_up(store))
            waiting = [tasks.create_task(store.ready(soon())) for _ in range(20)]
            links = {await each for each in waiting}
        assert len(links) == 1
        assert made <= 2  # the impatient caller's, and the one that the others share
        await store.close()


async def test_a_hanging_endpoint_gets_company_by_the_next() -> None:
    async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(hanging) as first, serving(echo) as second:
        store = connection_to(first, second)
        endpoint, made = await within(connection.ATTEMPT_SECONDS, store.ready(soon()))
        assert endpoint.url.endswith(str(second))
        assert await made.unary(endpoint.range, b"x", soon()) == b"x"
        await store.close()


async def test_closing_ends_those_who_wait_for_a_connection() -> None:
    async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(hanging) as port:
        store = connection_to(port)
        asyncio.get_running_loop().call_later(0.05, store._closing.set)
        with pytest.raises(Unavailable, match="closed"):
            await within(1, store.ready(soon()))
