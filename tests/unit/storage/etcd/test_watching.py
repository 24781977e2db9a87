"""One watch's handling of etcd's messages; ``tests/contracts`` uses a real etcd."""

import asyncio

import pytest

from storage.etcd import watching
from storage.etcd.failures import INVALID_ARGUMENT, OUT_OF_RANGE, translated
from storage.etcd.keys import Keys, end_of
from storage.etcd.rpc import rpc_pb2 as rpc
from storage.etcd.watching import Progress, batches
from storage.grpc.calls import DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE, RpcError
from storage.port import Batch, Change, Compacted, Entry, FutureRevision, StorageError, TooLarge, Unavailable

KEYS = Keys("/p/")


def kv(key: str, revision: int, *, created: int = 5, version: int = 1) -> rpc.KeyValue:
    return rpc.KeyValue(key=b"/p/" + key.encode(), value=b"v", create_revision=created, mod_revision=revision, version=version)


def test_watch_retry_pause_doubles_up_to_its_limit() -> None:
    assert [watching.pause_seconds(failures) for failures in (1, 2, 5)] == [0.04, 0.08, 0.64]
    assert watching.pause_seconds(7) == watching.pause_seconds(5000) == watching.MAX_BACKOFF_SECONDS


def test_events_are_batched_by_revision_and_old_ones_dropped() -> None:
    events = [
        rpc.Event(kv=kv("a", 5)),
        rpc.Event(kv=kv("a", 6, version=2), prev_kv=kv("a", 5)),
        rpc.Event(kv=kv("b", 6, created=6)),
        rpc.Event(type=rpc.Event.DELETE, kv=kv("a", 7, version=0), prev_kv=kv("a", 6)),
    ]
    assert list(batches(events, KEYS, 5)) == [
        Batch(6, (Change("a", Entry("a", b"v", 5, 6), Entry("a", b"v", 5, 5)), Change("b", Entry("b", b"v", 6, 6), None))),
        Batch(7, (Change("a", None, Entry("a", b"v", 5, 6)),)),
    ]


@pytest.mark.parametrize("event", [rpc.Event(kv=kv("a", 6, version=2)), rpc.Event(type=rpc.Event.DELETE, kv=kv("a", 6, version=0))])
def test_change_with_compacted_previous_value_is_no_creation(event: rpc.Event) -> None:
    with pytest.raises(Compacted):
        list(batches([event], KEYS, 5))
    assert list(batches([event], KEYS, 6)) == []


@pytest.mark.parametrize(("prefix", "end"), [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")])
def test_the_end_of_a_prefix_is_the_first_key_after_it(prefix: bytes, end: bytes) -> None:
    assert end_of(prefix) == end


def test_keys_that_are_no_text_survive() -> None:
    assert KEYS.inner(KEYS.outer(b"/p/\xff\x00")) == b"/p/\xff\x00"


async def test_progress_is_requested_once_and_again_on_silence() -> None:
    sent: list[None] = []
    progress = Progress(lambda: sent.append(None), asked=False, again_seconds=0.05)
    assert not sent
    for _ in range(3):
        progress.ask()
    assert len(sent) == 1
    for _ in range(20):  # silence: it asks again, although others keep asking
        progress.ask()
        await asyncio.sleep(0.005)
    assert len(sent) >= 2
    before = len(sent)
    progress.ask()
    progress.answered()
    assert len(sent) == before + 1
    progress.answered()
    assert not progress.is_asked
    await asyncio.sleep(0.1)
    assert len(sent) == before + 1
    progress.ask()
    progress.close()
    await asyncio.sleep(0.1)
    assert len(sent) == before + 2


async def test_unanswered_progress_request_moves_to_the_next_stream() -> None:
    sent: list[None] = []
    progress = Progress(lambda: sent.append(None), asked=True)
    assert len(sent) == 1
    waiting = [progress.is_asked]
    progress.answered()
    waiting.append(progress.is_asked)
    assert waiting == [True, False]


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", Compacted),
        (OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", FutureRevision),
        (INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge),
        (INVALID_ARGUMENT, "etcdserver: too many operations in txn request", TooLarge),
        (RESOURCE_EXHAUSTED, "grpc: received message larger than max (1 vs. 0)", TooLarge),
        (RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Unavailable),
        (UNAVAILABLE, "etcdserver: no leader", Unavailable),
        (DEADLINE_EXCEEDED, "Deadline Exceeded", Unavailable),
        (7, "etcdserver: permission denied", Unavailable),
    ],
)
def test_each_failure_of_etcd_has_one_meaning(code: int, details: str, expected: type[StorageError]) -> None:
    error = translated(RpcError(code, details), "get a")
    assert type(error) is expected
    if expected is not Compacted:
        assert details in str(error)
        assert "get a" in str(error)
