"""Features beyond the port; ``tests/contracts`` tests the port's promises."""

import pytest

from storage.memory import MemoryStorage
from storage.port import Compacted, Put


async def test_bounded_history_drops_the_oldest_and_keeps_values() -> None:
    store = MemoryStorage(keep_revisions=10)
    first = await store.commit([], [Put("first", b"")])
    for number in range(100):
        last = await store.commit([], [Put("a", str(number).encode())])
        page = await store.range("", revision=max(first, last - 10))
        assert page.entries[-1].key == "first"
    with pytest.raises(Compacted):
        await store.range("", revision=first)
    assert len(store._log) <= 21
    assert [entry.key for entry in (await store.range("")).entries] == ["a", "first"]
