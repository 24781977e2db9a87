import asyncio
import base64
import logging

import pytest

from storage.encryption.ciphers import AesGcm, Chain, Identity
from storage.encryption.store import EncryptedStorage
from storage.memory import MemoryStorage
from storage.port import Compacted, Condition, Delete, Put, RevisionMismatch

OLD, NEW = AesGcm("1", bytes(range(32))), AesGcm("2", bytes(range(1, 33)))


def over(inner: MemoryStorage, *providers: AesGcm | Identity) -> EncryptedStorage:
    chain = Chain(providers)
    return EncryptedStorage(inner, lambda _: chain)


async def test_nothing_readable_reaches_the_storage() -> None:
    inner = MemoryStorage()
    await over(inner, OLD).commit([], [Put("a", b"the secret")])
    entry = await inner.get("a")
    assert entry is not None
    assert entry.value.startswith(b"k8s:enc:aesgcm:v1:1:")
    assert b"secret" not in entry.value


async def test_value_of_an_older_key_is_stale_until_rewritten() -> None:
    inner = MemoryStorage()
    await over(inner, OLD).commit([], [Put("a", b"value")])
    store = over(inner, NEW, OLD)
    entry = await store.get("a")
    assert entry is not None
    assert (entry.value, entry.stale) == (b"value", True)
    with pytest.raises(RevisionMismatch) as caught:
        await store.commit([Condition("a", 0)], [Put("a", b"x")])
    assert caught.value.actual is not None
    assert (caught.value.actual.value, caught.value.actual.stale) == (b"value", True)
    await store.commit([Condition("a", entry.mod_revision)], [Put("a", entry.value)])
    again = (await over(inner, NEW).range("")).entries
    assert [(each.value, each.stale) for each in again] == [(b"value", False)]


async def test_undecryptable_value_is_returned_as_stored(caplog: pytest.LogCaptureFixture) -> None:
    inner = MemoryStorage()
    await over(inner, OLD).commit([], [Put("bad", b"value")])
    store = over(inner, NEW)
    await store.commit([], [Put("good", b"value")])
    with caplog.at_level(logging.WARNING):
        values = {entry.key: entry.value for entry in (await store.range("")).entries}
    assert values["good"] == b"value"
    assert values["bad"].startswith(b"k8s:enc:")
    assert store.undecryptable == 1
    assert "Cannot decrypt" in caplog.text
    assert base64.b64encode(bytes(range(32))).decode() not in caplog.text
    await store.commit([], [Delete("bad")])
    assert [entry.key for entry in (await store.range("")).entries] == ["good"]


async def test_watches_end_when_keys_for_undecryptable_values_arrive() -> None:
    inner = MemoryStorage()
    await over(inner, OLD).commit([], [Put("a", b"1")])
    store = over(inner, NEW)
    async with asyncio.timeout(30), store.watch("", after=1) as batches:
        first = await anext(batches)
        assert first.changes[0].entry is not None
        assert first.changes[0].entry.value.startswith(b"k8s:enc:")
        await store.commit([], [Put("a", b"2")])
        second = (await anext(batches)).changes[0]
        assert second.entry is not None
        assert second.entry.value == b"2"
        both = Chain((NEW, OLD))
        asyncio.get_running_loop().call_later(0.01, store.use, lambda _: both)
        with pytest.raises(Compacted):
            await anext(batches)
    entry = await store.get("a")
    assert entry is not None
    assert not entry.stale


async def test_new_keys_disturb_no_watch_that_could_read_everything() -> None:
    store = over(MemoryStorage(), OLD)
    async with asyncio.timeout(30), store.watch("", after=1) as batches:
        await store.commit([], [Put("a", b"1")])
        assert (await anext(batches)).changes
        both = Chain((NEW, OLD))
        store.use(lambda _: both)
        await store.commit([], [Put("a", b"2")])
        change = (await anext(batches)).changes[0]
    assert change.entry is not None
    assert change.previous is not None
    assert (change.entry.value, change.entry.stale, change.previous.value) == (b"2", False, b"1")
