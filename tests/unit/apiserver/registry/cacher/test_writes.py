from __future__ import annotations

from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.writes import MAX_WRITES, Write, Writes
from storage.port import Entry


def begun(writes: Writes, key: str = "k", value: bytes = b"v") -> Write:
    return writes.begin(key, value, lambda revision: Item(key, revision, {"at": revision}, value))


def test_write_has_one_item_in_either_order_of_event_and_reply() -> None:
    writes = Writes()
    write = begun(writes)
    told = writes.find(Entry("k", b"v", 7, 7))
    assert told is not None
    assert told is write.at(7)
    write = begun(writes)
    acknowledged = write.at(8)
    assert writes.find(Entry("k", b"v", 7, 8)) is acknowledged
    assert writes.find(Entry("k", b"v", 7, 8)) is None


def test_writes_of_other_servers_are_not_taken_for_ours() -> None:
    writes = Writes()
    write = begun(writes)
    assert writes.find(Entry("k", b"another", 6, 6)) is None
    assert writes.find(Entry("another", b"v", 6, 6)) is None
    told = writes.find(Entry("k", b"v", 6, 7))
    assert told is not None
    assert told.revision == 7
    assert write.at(9).revision == 9
    assert told.object == {"at": 7}


def test_stale_encoding_is_decoded_again() -> None:
    writes = Writes()
    begun(writes)
    assert writes.find(Entry("k", b"v", 6, 6, stale=True)) is None


def test_failed_and_oldest_writes_are_forgotten() -> None:
    writes = Writes()
    first, second = begun(writes), begun(writes, value=b"w")
    writes.forget(first)
    assert writes.find(Entry("k", b"w", 6, 6)) is second.at(6)
    begun(writes)
    for number in range(MAX_WRITES):
        begun(writes, f"k{number}")
    assert writes.find(Entry("k", b"v", 6, 6)) is None
    assert writes.find(Entry("k0", b"v", 6, 6)) is not None
