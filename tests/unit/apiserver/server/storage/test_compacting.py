import asyncio

import pytest

from apiserver.server.storage.compacting import KEY, Compactor
from storage.memory import MemoryStorage
from storage.port import Compacted, Put
from tests.unit.controller.virtualtime import in_virtual_time


async def write(storage: MemoryStorage, times: int = 1) -> int:
    revision = 0
    for number in range(times):
        revision = await storage.commit([], [Put("a", str(number).encode())])
    return revision


async def test_history_goes_up_to_where_the_interval_before_ended() -> None:
    storage = MemoryStorage()
    compactor = Compactor(storage)
    early = await write(storage)
    assert await compactor.turn()
    between = await write(storage, 3)
    await storage.range("", revision=early)
    assert await compactor.turn()
    with pytest.raises(Compacted):
        await storage.range("", revision=early)
    assert (await storage.range("a", revision=between)).entries[0].value == b"2"


async def test_single_server_compacts_per_interval_and_is_replaced() -> None:
    storage = MemoryStorage()
    servers = [Compactor(storage) for _ in range(3)]
    for _ in range(6):
        await write(storage, 5)
        for each in servers:
            await each.turn()
    entry = await storage.get(KEY)
    assert entry is not None
    before = max(each.compacted for each in servers)
    assert before > 0
    won = []
    for _ in range(5):
        await write(storage)
        won.append([await each.turn() for each in servers[1:]])
    assert sum(map(sum, won)) == 5
    assert max(each.compacted for each in servers) > before


async def test_a_server_that_finds_the_key_of_others_waits_an_interval() -> None:
    storage = MemoryStorage()
    await storage.commit([], [Put(KEY, b"17")])
    compactor = Compactor(storage)
    assert not await compactor.turn()
    revision = await write(storage)
    assert await compactor.turn()
    entry = await storage.get(KEY)
    assert entry is not None
    assert int(entry.value) < revision


@in_virtual_time
async def test_an_outage_does_not_end_it() -> None:
    storage = MemoryStorage()
    compactor = Compactor(storage)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(compactor.run(0.01))
        await write(storage, 3)
        await asyncio.sleep(0.05)
        assert compactor.compacted
        await storage.close()
        await asyncio.sleep(0.05)
        assert not running.done()
        running.cancel()
