"""Promises 1, 3, 6 and 9 of ``storage.port`` when one of three etcd members is killed, cut off or stopped."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.etcd.rpc import rpc_pb2 as rpc
from storage.etcd.store import _STATUS, EtcdStorage, Settings
from storage.port import Batch, Put, RevisionMismatch, Unavailable
from tests.contracts.test_storage_outages import Writer, written
from tests.fakes.etcd_server import EtcdServer, three_members
from tests.own_time import within

pytestmark = pytest.mark.slow


async def leader_of(members: list[EtcdServer]) -> EtcdServer:
    for member in members:
        storage = EtcdStorage(Settings((member.endpoint,), timeout_seconds=2.0))
        try:
            status = rpc.StatusResponse.FromString(await storage._call("status", _STATUS, b"", repeat=True))
            if status.leader == status.header.member_id:
                return member
        except Unavailable:
            continue
        finally:
            await storage.close()
    raise AssertionError("no member leads")


async def folded(batches: AsyncIterator[Batch], into: dict[str, bytes], revisions: list[int]) -> None:
    async for batch in batches:
        for change in batch.changes:
            assert not revisions or batch.revision >= revisions[-1]
            revisions.append(batch.revision)
            if change.entry:
                into[change.key] = change.entry.value
            else:
                into.pop(change.key)


@pytest.mark.timeout(120)
@pytest.mark.sample(2, "losses of etcd's leader")
@pytest.mark.parametrize("blow", ["kill", "pause"])
async def test_sto_04_writes_and_watches_survive_a_leader_loss(tmp_path: Path, blow: str) -> None:
    with three_members(tmp_path) as members:
        endpoints = tuple(member.endpoint for member in members)
        store = EtcdStorage(Settings(endpoints, prefix="/test/", timeout_seconds=3.0))
        begin = await store.revision()
        writers = [Writer(store, f"counter/{number}") for number in range(8)]
        state: dict[str, bytes] = {}
        revisions: list[int] = []
        over = False
        async with store.watch("counter/", after=begin) as batches, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(folded(batches, state, revisions))
            async with asyncio.TaskGroup() as writing:
                for writer in writers:
                    writing.create_task(writer.run(lambda: over))
                for _ in range(2):
                    await asyncio.sleep(1.0)
                    leader = await leader_of(members)
                    before = len(revisions)
                    (leader.kill if blow == "kill" else leader.pause)()
                    async with asyncio.timeout(30):
                        while len(revisions) < before + 50:
                            await asyncio.sleep(0.1)
                    if blow == "kill":
                        await asyncio.to_thread(leader.start)
                    else:
                        leader.resume()
                await asyncio.sleep(0.5)
                await written(writers, 11)
                over = True
            page = await store.range("counter/")
            wanted = {entry.key: entry.value for entry in page.entries}
            async with asyncio.timeout(10):
                while state != wanted:
                    await asyncio.sleep(0.05)
            following.cancel()
        for writer in writers:
            assert len(writer.acknowledged) > 10
            assert set(writer.acknowledged) <= set(revisions)
        assert len(revisions) == len(set(revisions))
        await store.close()


@pytest.mark.timeout(120)
async def test_sto_09_one_dead_endpoint_is_harmless_two_hang_nothing(tmp_path: Path) -> None:
    with three_members(tmp_path) as members:
        store = EtcdStorage(Settings(tuple(member.endpoint for member in members), timeout_seconds=2.0))
        for member in members:
            member.kill()
            async with asyncio.timeout(30):
                while True:
                    try:
                        await store.commit([], [Put("a", member.name.encode())])
                        break
                    except Unavailable:  # during an election
                        continue
            assert await store.revision() > 0
            await asyncio.to_thread(member.start)
        members[0].kill()
        members[1].kill()
        for call in (store.get("a"), store.revision(), store.commit([], [Put("a", b"x")])):
            with pytest.raises((Unavailable, RevisionMismatch)):
                await within(5, call)
        await asyncio.to_thread(members[0].start)
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await store.get("a") is not None
                    break
                except Unavailable:
                    continue
        await store.close()
