"""Promises 3 and 9 of ``storage.port`` with a real etcd."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storage.etcd import connection
from storage.etcd.connection import Tls
from storage.etcd.store import EtcdStorage, Settings
from storage.port import Batch, Change, Compacted, Condition, Put, RevisionMismatch, Unavailable
from tests.fakes.etcd_server import EtcdServer
from tests.fakes.etcd_tls import Authority
from tests.own_time import within
from tests.ports import free_port


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd", durable=True)
    server.start()
    yield server
    server.close()


@asynccontextmanager
async def connected(*endpoints: str, tls: Tls | None = None, timeout_seconds: float = 5.0) -> AsyncIterator[EtcdStorage]:
    store = EtcdStorage(Settings(endpoints, tls=tls, prefix="/test/", timeout_seconds=timeout_seconds))
    try:
        yield store
    finally:
        await store.close()


class Writer:
    def __init__(self, store: EtcdStorage, key: str) -> None:
        self._store = store
        self.key = key
        self.acknowledged: dict[int, bytes] = {}
        self.unknown = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        revision, number = 0, 0
        while not is_over():
            number += 1
            value = str(number).encode()
            try:
                revision = await self._store.commit([Condition(self.key, revision)], [Put(self.key, value)])
                self.acknowledged[revision] = value
            except (Unavailable, RevisionMismatch) as error:
                self.unknown += isinstance(error, Unavailable)
                revision, number = await self._look()

    async def _look(self) -> tuple[int, int]:
        while True:
            try:
                entry = await self._store.get(self.key)
            except Unavailable:
                continue
            return (entry.mod_revision, int(entry.value)) if entry else (0, 0)


async def written(writers: Sequence[Writer], count: int) -> None:
    while min(len(each.acknowledged) for each in writers) < count:
        await asyncio.sleep(0.05)


async def test_3_9_writes_and_watches_survive_an_etcd_kill(durable: EtcdServer) -> None:
    async with connected(durable.endpoint) as store:
        begin = await store.revision()
        writers = [Writer(store, f"counter/{number}") for number in range(8)]
        seen: dict[int, list[Change]] = {}
        over = False

        async def follow() -> None:
            complete = begin
            async with store.watch("counter/", after=begin) as batches:
                async for batch in batches:
                    assert batch.revision >= complete
                    if batch.changes:
                        assert batch.revision > complete
                        assert batch.revision not in seen
                        seen[batch.revision] = list(batch.changes)
                    complete = batch.revision
                    if over and complete >= last:
                        return

        last = 1 << 62
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            async with asyncio.TaskGroup() as writing:
                for writer in writers:
                    writing.create_task(writer.run(lambda: over))
                for number in range(3):
                    await asyncio.sleep(0.5)
                    await written(writers, 5 * (number + 1))
                    durable.kill()
                    await asyncio.sleep(0.1)
                    await asyncio.to_thread(durable.start)
                await asyncio.sleep(0.3)
                over = True
            last = await store.revision()
            while not following.done():
                await store.request_progress()
                await asyncio.sleep(0.02)
        page = await store.range("counter/")

    assert sum(writer.unknown for writer in writers) >= 3, "nothing was under way when etcd was killed"
    state: dict[str, bytes] = {}
    for revision, changes in seen.items():
        for change in changes:
            assert change.entry is not None
            assert change.entry.mod_revision == revision
            assert (change.previous.value if change.previous else None) == state.get(change.key)
            state[change.key] = change.entry.value
    for writer in writers:
        assert len(writer.acknowledged) > 10
        for revision, value in writer.acknowledged.items():
            assert [(change.key, change.entry and change.entry.value) for change in seen[revision]] == [(writer.key, value)]
    assert {entry.key: entry.value for entry in page.entries} == state
    assert list(seen) == sorted(seen)


async def test_9_calls_time_out_while_etcd_is_stopped(durable: EtcdServer) -> None:
    async with connected(durable.endpoint, timeout_seconds=1.0) as store:
        revision = await store.commit([], [Put("a", b"1")])
        async with store.watch("a", after=revision) as batches:
            durable.pause()

            async def fail() -> None:
                for call in (store.get("a"), store.range("a"), store.revision(), store.commit([], [Put("a", b"lost?")])):
                    with pytest.raises(Unavailable):
                        await call

            await within(4 * 1.0 + 1, fail())
            durable.resume()
            await asyncio.sleep(0.1)
            assert await store.get("a") is not None
            last = await store.commit([], [Put("a", b"2")])
            async with asyncio.timeout(30):
                async for batch in batches:
                    if batch.revision == last:
                        break


async def test_9_the_first_call_after_a_restart_works(durable: EtcdServer) -> None:
    async with connected(durable.endpoint, timeout_seconds=1.0) as store:
        await store.commit([], [Put("a", b"1")])
        durable.kill()
        for _ in range(2):
            with pytest.raises(Unavailable):
                await store.get("a")
        await asyncio.to_thread(durable.start)
        await asyncio.sleep(0.7)  # the longest pause between two attempts
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"1"


async def test_9_a_read_outlives_a_short_restart(durable: EtcdServer) -> None:
    async with connected(durable.endpoint) as store:
        await store.commit([], [Put("a", b"1")])
        durable.kill()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(store.get("a"))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(durable.start)
        assert reading.result() is not None


async def test_9_an_endpoint_that_is_dead_is_passed_over(etcd_server: EtcdServer) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for endpoints in ((dead, etcd_server.endpoint), (etcd_server.endpoint, dead)):
        async with connected(*endpoints) as store:

            async def use() -> None:
                await store.commit([], [Put("endpoints", b"1")])
                assert await store.get("endpoints") is not None

            await within(3, use())


async def test_9_an_endpoint_that_hangs_is_left_for_another(etcd_server: EtcdServer, durable: EtcdServer) -> None:
    async with connected(durable.endpoint, etcd_server.endpoint, timeout_seconds=0.4) as store:
        await store.commit([], [Put("endpoints", b"on the first")])
        durable.pause()
        with pytest.raises(Unavailable):
            await store.get("endpoints")
        await store.commit([], [Put("endpoints", b"on the second")])
        durable.resume()
        entry = await store.get("endpoints")
        assert entry is not None
        assert entry.value == b"on the second"


async def test_7_restored_backup_ends_watches_without_history(
    durable: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    async with connected(durable.endpoint) as store:
        await store.commit([], [Put("a", b"kept")])
        durable.kill()
        durable.back_up()
        await asyncio.to_thread(durable.start)
        revision = 0
        for number in range(20):
            revision = await store.commit([], [Put("a", b"lost %d" % number)])
        async with asyncio.timeout(20), store.watch("a", after=revision) as batches, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(expect_compacted(batches))
            await asyncio.sleep(0.1)
            durable.kill()
            durable.restore()
            await asyncio.to_thread(durable.start)
            await following
        assert "restore from a backup" in caplog.text
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == b"kept"
        again = await store.commit([], [Put("a", b"new")])
        assert again < revision
        async with asyncio.timeout(30), store.watch("a", after=again - 1) as batches:
            assert (await anext(batches)).revision == again


async def expect_compacted(batches: AsyncIterator[Batch]) -> None:
    with pytest.raises(Compacted):
        async for _ in batches:
            pass


async def test_a_prefix_separates_stores_and_is_not_seen(etcd_server: EtcdServer) -> None:
    async with connected(etcd_server.endpoint) as one:
        two = EtcdStorage(Settings((etcd_server.endpoint,), prefix="/test/inner/"))
        whole = EtcdStorage(Settings((etcd_server.endpoint,)))
        await two.commit([], [Put("b", b"2")])
        assert [entry.key for entry in (await one.range("inner/")).entries] == ["inner/b"]
        assert [entry.key for entry in (await two.range("")).entries] == ["b"]
        assert "/test/inner/b" in [entry.key for entry in (await whole.range("")).entries]
        await two.close()
        await whole.close()


def test_endpoints_and_certificates_must_fit() -> None:
    for endpoint in ("https://127.0.0.1:1", "127.0.0.1:1", "http://"):
        with pytest.raises(ValueError, match="http://host:port"):
            connection.Connection((endpoint,), None, time.monotonic)
    with pytest.raises(ValueError, match="at least one"):
        connection.Connection((), None, time.monotonic)


async def test_9_new_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    server = EtcdServer(tmp_path / "etcd", durable=False, tls=old.issue(tmp_path / "server", "etcd"))
    server.start()
    tls = Tls(*old.issue(tmp_path / "client", "virt-api"), server_name="etcd.test", check_seconds=0.1)
    try:
        async with connected(server.endpoint, tls=tls, timeout_seconds=1.0) as store:
            revision = await store.commit([], [Put("a", b"1")])
            async with store.watch("a", after=revision) as batches:
                server.kill()
                new.issue(tmp_path / "server", "etcd")
                await asyncio.to_thread(server.start)
                with pytest.raises(Unavailable):
                    await store.get("a")
                new.issue(tmp_path / "client", "virt-api")
                async with asyncio.timeout(30):
                    last = await store.commit([], [Put("a", b"2")])
                    batch = await anext(batches)
                assert (batch.revision, len(batch.changes)) == (last, 1)
    finally:
        server.close()


async def test_a_server_or_client_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = Authority(), Authority()
    server = EtcdServer(tmp_path / "etcd", durable=False, tls=ours.issue(tmp_path / "server", "etcd"))
    server.start()
    ca, _, _ = ours.issue(tmp_path / "ours", "virt-api")
    _, cert, key = theirs.issue(tmp_path / "theirs", "virt-api")
    try:
        for tls in (
            Tls(ca, cert, key, server_name="etcd.test"),
            Tls(*theirs.issue(tmp_path / "theirs", "virt-api"), server_name="etcd.test"),
            Tls(*ours.issue(tmp_path / "ours", "virt-api"), server_name="another.test"),
        ):
            async with connected(server.endpoint, tls=tls, timeout_seconds=0.5) as store:
                with pytest.raises(Unavailable):
                    await store.revision()
        async with connected(server.endpoint, tls=Tls(*ours.issue(tmp_path / "ours", "virt-api"), server_name="etcd.test")) as store:
            assert await store.revision() >= 1
    finally:
        server.close()
