"""The promises of ``storage.port``, by number, for every implementation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from storage.port import (
    Batch,
    Change,
    Compacted,
    Condition,
    Delete,
    Entry,
    FutureRevision,
    Put,
    RevisionMismatch,
    Storage,
    TooLarge,
    Unavailable,
)


async def put(store: Storage, key: str, value: bytes = b"v") -> int:
    return await store.commit([], [Put(key, value)])


async def collect(batches: AsyncIterator[Batch], until: int) -> list[Batch]:
    found = []
    async with asyncio.timeout(10):
        async for batch in batches:
            found.append(batch)
            if batch.revision >= until:
                break
    return found


def changes(batches: list[Batch]) -> list[Change]:
    return [change for batch in batches for change in batch.changes]


# 1: linearizable


async def test_1_a_key_is_read_as_it_was_committed(store: Storage) -> None:
    created = await put(store, "a", b"1")
    assert await store.get("a") == Entry("a", b"1", created, created)
    changed = await put(store, "a", b"2")
    assert await store.get("a") == Entry("a", b"2", created, changed)
    assert await store.get("b") is None


async def test_1_every_acknowledged_commit_is_seen_by_the_next_read(store: Storage) -> None:
    for number in range(50):
        revision = await put(store, "a", str(number).encode())
        entry, page, now = await store.get("a"), await store.range("a"), await store.revision()
        assert entry is not None
        assert (entry.value, entry.mod_revision) == (str(number).encode(), revision)
        assert page.entries == (entry,)
        assert now >= revision
        assert page.revision >= revision


async def test_1_a_value_may_be_empty_or_any_bytes(store: Storage) -> None:
    for value in (b"", bytes(range(256))):
        await put(store, "a", value)
        entry = await store.get("a")
        assert entry is not None
        assert entry.value == value


# 2: atomic


async def test_2_all_writes_of_a_commit_share_one_revision(store: Storage) -> None:
    await put(store, "gone")
    revision = await store.commit([], [Put("a", b"1"), Put("b", b"2"), Delete("gone")])
    page = await store.range("")
    assert [(entry.key, entry.mod_revision) for entry in page.entries] == [("a", revision), ("b", revision)]
    assert page.revision == revision


async def test_2_nothing_is_written_when_one_condition_does_not_hold(store: Storage) -> None:
    first = await put(store, "a", b"1")
    second = await put(store, "b", b"2")
    with pytest.raises(RevisionMismatch) as caught:
        await store.commit([Condition("a", first), Condition("b", first)], [Put("a", b"x"), Put("c", b"x")])
    assert caught.value.key == "b"
    assert caught.value.actual == Entry("b", b"2", second, second)
    assert [entry.value for entry in (await store.range("")).entries] == [b"1", b"2"]


async def test_2_a_condition_of_zero_means_that_the_key_is_absent(store: Storage) -> None:
    revision = await store.commit([Condition("a", 0)], [Put("a", b"1")])
    with pytest.raises(RevisionMismatch) as caught:
        await store.commit([Condition("a", 0)], [Put("a", b"2")])
    assert caught.value.actual == Entry("a", b"1", revision, revision)
    await store.commit([Condition("a", revision)], [Delete("a")])
    with pytest.raises(RevisionMismatch) as caught:
        await store.commit([Condition("a", revision)], [Put("a", b"3")])
    assert caught.value.actual is None
    assert await store.get("a") is None


async def test_2_a_condition_may_be_on_a_key_that_is_not_written(store: Storage) -> None:
    lock = await put(store, "lock")
    await store.commit([Condition("lock", lock)], [Put("a", b"1")])
    await put(store, "lock")
    with pytest.raises(RevisionMismatch):
        await store.commit([Condition("lock", lock)], [Put("a", b"2")])


async def test_2_a_condition_may_be_that_a_range_is_empty(store: Storage) -> None:
    empty = Condition("a/", 0, end="a0")
    await store.commit([empty], [Put("a", b"before"), Put("a0", b"after")])
    first = await store.commit([empty], [Put("a/1", b"in")])
    await store.commit([Condition("a/", 0, end="a/1"), Condition("a/10", 0, end="a0")], [Put("a/2", b"in, too"), Put("b", b"x")])
    with pytest.raises(RevisionMismatch) as caught:
        await store.commit([Condition("b0", 0), empty], [Put("c", b"x")])
    assert (caught.value.key, caught.value.actual) == ("a/", Entry("a/1", b"in", first, first))
    assert await store.get("c") is None
    await store.commit([], [Delete("a/1"), Delete("a/2")])
    await store.commit([empty], [Put("c", b"x")])


async def test_2_concurrent_commits_on_a_revision_have_one_winner(store: Storage) -> None:
    revision = await put(store, "a")
    won: list[int] = []

    async def attempt(number: int) -> None:
        with suppress(RevisionMismatch):
            won.append(await store.commit([Condition("a", revision)], [Put("a", str(number).encode())]))

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(attempt(number))
    assert len(won) == 1
    entry = await store.get("a")
    assert entry is not None
    assert entry.mod_revision == won[0]


async def test_2_a_key_deleted_and_made_again_is_a_new_key(store: Storage) -> None:
    await put(store, "a")
    await store.commit([], [Delete("a")])
    revision = await put(store, "a")
    entry = await store.get("a")
    assert entry is not None
    assert entry.create_revision == revision


async def test_2_a_commit_that_changes_nothing_makes_no_revision(store: Storage) -> None:
    revision = await put(store, "a")
    assert await store.commit([], [Delete("absent")]) == revision
    assert await store.commit([Condition("a", revision)], []) == revision
    assert await store.revision() == revision
    with pytest.raises(RevisionMismatch):
        await store.commit([Condition("a", revision + 1)], [])


async def test_2_a_key_written_twice_in_a_commit_is_refused(store: Storage) -> None:
    for other in (Put("a", b"2"), Delete("a")):
        with pytest.raises(ValueError, match="twice"):
            await store.commit([], [Put("a", b"1"), other])
    assert await store.get("a") is None


async def test_2_what_is_too_large_is_refused_whole(store: Storage) -> None:
    with pytest.raises(TooLarge):
        await put(store, "a", bytes(2 * 1024 * 1024))
    with pytest.raises(TooLarge):
        await store.commit([], [Put(f"a{number}", b"") for number in range(129)])
    assert (await store.range("a")).entries == ()
    await store.commit([], [Put(f"a{number}", b"") for number in range(128)])
    await put(store, "a", bytes(1024 * 1024))
    assert (await store.range("a")).count == 129


# 4: monotonic


async def test_4_revisions_grow_and_are_never_shared(store: Storage) -> None:
    revisions: list[int] = [await store.revision()]
    assert revisions[0] >= 1

    async def write(key: str) -> None:
        revisions.extend([await put(store, key) for _ in range(10)])

    async with asyncio.TaskGroup() as tasks:
        for key in "abc":
            tasks.create_task(write(key))
    assert len(set(revisions)) == 31
    assert await put(store, "d") > max(revisions)


# 5: repeatable


async def test_5_keys_come_in_order_and_only_those_of_the_prefix(store: Storage) -> None:
    for key in ("p/b", "p/a", "q", "p/ä", "p0", "p", "p/a/x"):
        await put(store, key)
    page = await store.range("p/")
    assert [entry.key for entry in page.entries] == ["p/a", "p/a/x", "p/b", "p/ä"]
    assert (page.count, page.more) == (4, False)
    assert (await store.range("nothing")).entries == ()


async def test_5_pages_of_one_revision_are_one_picture(store: Storage) -> None:
    for number in range(7):
        await put(store, f"k{number}")
    first = await store.range("k", limit=3)
    assert ([entry.key for entry in first.entries], first.more, first.count) == (["k0", "k1", "k2"], True, 7)
    await store.commit([], [Put("k35", b""), Delete("k5"), Put("k6", b"new")])
    second = await store.range("k", start="k2\0", limit=3, revision=first.revision)
    assert ([entry.key for entry in second.entries], second.more, second.count) == (["k3", "k4", "k5"], True, 4)
    third = await store.range("k", start="k5\0", limit=3, revision=first.revision)
    assert [(entry.key, entry.value) for entry in third.entries] == [("k6", b"v")]
    assert (third.more, third.count, third.revision) == (False, 1, first.revision)


async def test_5_a_start_outside_the_prefix_is_bounded_by_it(store: Storage) -> None:
    for key in ("a", "p/1", "p/2", "z"):
        await put(store, key)
    assert [entry.key for entry in (await store.range("p/", start="a")).entries] == ["p/1", "p/2"]
    assert (await store.range("p/", start="q")).entries == ()


async def test_5_a_range_without_limit_is_whole_however_large(store: Storage) -> None:
    for part in range(12):
        await store.commit([], [Put(f"k{part:02}/{number:03}", bytes(64)) for number in range(100)])
    page = await store.range("k")
    assert (len(page.entries), page.count, page.more) == (1200, 1200, False)
    assert [entry.key for entry in page.entries] == sorted(entry.key for entry in page.entries)
    assert len((await store.range("k", limit=1100)).entries) == 1100


async def test_5_range_in_several_answers_is_one_snapshot(store: Storage) -> None:
    await store.commit([], [Put("k/first", b"0"), Put("k/last", b"0")])
    for part in range(10):
        await store.commit([], [Put(f"k/{part}/{number:03}", b"") for number in range(120)])
    over = False

    async def write() -> None:
        number = 0
        while not over:
            number += 1
            await store.commit([], [Put("k/0", str(number).encode()), Put("k/last", str(number).encode())])

    await store.commit([], [Put("k/0", b"0")])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        for _ in range(8):
            page = await store.range("k/")
            values = {entry.key: entry.value for entry in page.entries}
            assert values["k/0"] == values["k/last"]
            assert page.count == len(page.entries) == 1203
        over = True


async def test_5_a_range_at_a_revision_that_is_not_reached_is_refused(store: Storage) -> None:
    revision = await put(store, "a")
    with pytest.raises(FutureRevision):
        await store.range("a", revision=revision + 1000)
    with pytest.raises(FutureRevision):
        await store.compact(revision + 1000)


# 6: complete


async def test_6_a_watch_yields_every_change_from_any_revision_on(store: Storage) -> None:
    before = await store.revision()
    first = await put(store, "p/a", b"1")
    second = await put(store, "p/a", b"2")
    await put(store, "other")
    third = await store.commit([], [Delete("p/a")])
    one, two = Entry("p/a", b"1", first, first), Entry("p/a", b"2", first, second)
    expected = [Change("p/a", one, None), Change("p/a", two, one), Change("p/a", None, two)]
    for skip, after in enumerate((before, first, second)):
        async with store.watch("p/", after=after) as batches:
            found = await collect(batches, third)
        assert changes(found) == expected[skip:]
        assert [batch.revision for batch in found if batch.changes] == [first, second, third][skip:]


async def test_6_a_watch_goes_on_with_changes_that_come_later(store: Storage) -> None:
    async with store.watch("p/", after=await store.revision()) as batches:
        for number in range(20):
            revision = await put(store, f"p/{number % 3}", str(number).encode())
            found = await collect(batches, revision)
            assert [change.entry.value for change in changes(found) if change.entry] == [str(number).encode()]


async def test_6_all_changes_of_a_revision_come_in_one_batch(store: Storage) -> None:
    before = await store.revision()
    large = bytes(20_000)
    revision = await store.commit([], [Put(f"p/{number:02}", large) for number in range(70)])
    last = await put(store, "p/last", large)
    async with store.watch("p/", after=before) as batches:
        found = await collect(batches, last)
    holding = [batch for batch in found if any(c.entry and c.entry.mod_revision == revision for c in batch.changes)]
    assert len(holding) == 1
    assert [c.key for c in holding[0].changes if c.key != "p/last"] == [f"p/{number:02}" for number in range(70)]


async def test_6_revision_larger_than_a_message_is_one_batch(store: Storage) -> None:
    large = bytes(20_000)
    before = await store.commit([], [Put(f"p/{number:02}", large) for number in range(70)])
    revision = await store.commit([], [Put(f"p/{number:02}", large[1:]) for number in range(70)])
    async with store.watch("p/", after=before) as batches:
        found = [batch for batch in await collect(batches, revision) if batch.changes]
    assert [(batch.revision, len(batch.changes)) for batch in found] == [(revision, 70)]


async def test_6_a_watch_larger_than_a_message_is_complete(store: Storage) -> None:
    before = await store.revision()
    last = 0
    for number in range(12):
        last = await put(store, f"p/{number}", bytes([number]) * 1_000_000)
    async with store.watch("p/", after=before) as batches:
        found = changes(await collect(batches, last))
    assert [change.entry.value[:1] for change in found if change.entry] == [bytes([number]) for number in range(12)]


async def test_6_a_watch_of_the_future_begins_there(store: Storage) -> None:
    now = last = await store.revision()
    async with store.watch("p/", after=now + 2) as batches:
        for number in range(4):
            last = await put(store, "p/a", str(number).encode())
        found = changes(await collect(batches, last))
    assert [change.entry.value for change in found if change.entry] == [b"2", b"3"]


async def test_6_progress_reaches_the_stores_revision_without_changes(store: Storage) -> None:
    async with store.watch("p/", after=await store.revision()) as batches:
        for _ in range(3):
            now = await put(store, "elsewhere")
            await store.request_progress()
            found = await collect(batches, now)
            assert changes(found) == []
            assert found[-1].revision >= now


async def test_6_progress_never_overtakes_changes(store: Storage) -> None:
    wrote: dict[int, str] = {}

    async def write() -> None:
        for number in range(60):
            wrote[await put(store, f"{'p' if number % 2 else 'elsewhere'}/{number}")] = f"{number}"
            await store.request_progress()

    before = await store.revision()
    async with store.watch("p/", after=before) as batches, asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        seen: list[int] = []
        complete = before
        async with asyncio.timeout(10):
            async for batch in batches:
                assert batch.revision >= complete
                for change in batch.changes:
                    assert change.entry is not None
                    assert complete < change.entry.mod_revision <= batch.revision
                    seen.append(change.entry.mod_revision)
                complete = batch.revision
                if len(seen) == 30:
                    break
    assert seen == [revision for revision, number in wrote.items() if int(number) % 2]


async def test_6_watches_do_not_share_what_they_yield(store: Storage) -> None:
    before = await store.revision()
    async with store.watch("p/", after=before) as first, store.watch("", after=before) as second:
        await put(store, "q")
        last = await put(store, "p/a")
        assert [change.key for change in changes(await collect(first, last))] == ["p/a"]
        assert [change.key for change in changes(await collect(second, last))] == ["q", "p/a"]


# 7: honest


async def test_7_what_is_compacted_is_refused_and_the_rest_is_there(store: Storage) -> None:
    revisions = [await put(store, "p/a", str(number).encode()) for number in range(5)]
    await store.compact(revisions[2])
    with pytest.raises(Compacted):
        await store.range("p/", revision=revisions[1])
    with pytest.raises(Compacted):
        await store.range("p/", start="q", revision=revisions[1])
    assert [entry.value for entry in (await store.range("p/", revision=revisions[2])).entries] == [b"2"]
    with pytest.raises(Compacted):
        async with store.watch("p/", after=revisions[1]) as batches:
            await collect(batches, revisions[4])
    async with store.watch("p/", after=revisions[2]) as batches:
        found = changes(await collect(batches, revisions[4]))
    assert [(change.previous and change.previous.value, change.entry and change.entry.value) for change in found] == [
        (b"2", b"3"),
        (b"3", b"4"),
    ]


async def test_6_watch_without_previous_values_has_all_the_rest(store: Storage) -> None:
    begin = await put(store, "p/a", b"1")
    await put(store, "p/a", b"2")
    await put(store, "p/b", b"3")
    last = await store.commit([], [Delete("p/a")])
    async with store.watch("p/", after=begin, previous=False) as batches:
        found = changes(await collect(batches, last))
    assert [(change.key, change.entry and change.entry.value, change.previous) for change in found] == [
        ("p/a", b"2", None),
        ("p/b", b"3", None),
        ("p/a", None, None),
    ]


async def test_7_key_deleted_at_the_compacted_revision_is_absent(store: Storage) -> None:
    await put(store, "p/a")
    deleted = await store.commit([], [Delete("p/a")])
    last = await put(store, "p/b")
    await store.compact(deleted)
    assert (await store.range("p/", revision=deleted)).entries == ()
    async with store.watch("p/", after=deleted) as batches:
        assert [change.key for change in changes(await collect(batches, last))] == ["p/b"]


async def test_7_compaction_does_not_disturb_watches_that_are_past_it(store: Storage) -> None:
    async with store.watch("p/", after=await store.revision()) as batches:
        revision = await put(store, "p/a", b"1")
        assert len(changes(await collect(batches, revision))) == 1
        elsewhere = await put(store, "elsewhere")
        await store.request_progress()
        await collect(batches, elsewhere)
        await store.compact(elsewhere)
        last = await put(store, "p/a", b"2")
        assert [change.previous and change.previous.value for change in changes(await collect(batches, last))] == [b"1"]


async def test_7_watch_that_missed_changes_delivers_or_reports_it(store: Storage) -> None:
    async with store.watch("p/", after=await store.revision()) as batches:
        await store.compact(await put(store, "p/a"))
        last = await put(store, "elsewhere")
        await store.compact(last)
        await store.request_progress()
        with suppress(Compacted):
            assert [change.key for change in changes(await collect(batches, last))] == ["p/a"]


async def test_7_compaction_can_be_repeated(store: Storage) -> None:
    first = await put(store, "a")
    second = await put(store, "a")
    await store.compact(second)
    await store.compact(second)
    await store.compact(first)
    assert (await store.get("a")) is not None
    assert await store.revision() == second


# 8: cancellable


async def test_8_cancelled_calls_leave_the_store_usable(store: Storage) -> None:
    for _ in range(10):
        for call in (put(store, "a"), store.get("a"), store.range("a"), store.revision()):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await call
    revision = await put(store, "a", b"after")
    entry = await store.get("a")
    assert entry is not None
    assert (entry.value, entry.mod_revision) == (b"after", revision)


async def test_8_a_cancelled_watch_ends_and_the_next_one_works(store: Storage) -> None:
    before = await store.revision()
    for _ in range(5):
        async with store.watch("p/", after=before) as batches:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(batches)
            with pytest.raises(StopAsyncIteration):
                await anext(batches)
    revision = await put(store, "p/a")
    async with store.watch("p/", after=before) as batches:
        assert len(changes(await collect(batches, revision))) == 1


async def test_8_leaving_a_watch_that_was_never_read_is_fine(store: Storage) -> None:
    async with store.watch("p/", after=1):
        await put(store, "p/a")
    assert await store.get("p/a") is not None


async def test_8_an_error_in_the_body_of_a_watch_comes_out_as_it_is(store: Storage) -> None:
    with pytest.raises(LookupError):
        async with store.watch("p/", after=await store.revision()):
            raise LookupError


# 9: closing


async def test_9_a_closed_store_answers_unavailable(store: Storage) -> None:
    async with store.watch("p/", after=await store.revision()) as batches:
        await store.close()
        with pytest.raises(Unavailable):
            await collect(batches, 10**9)
    for call in (put(store, "a"), store.get("a"), store.range("a"), store.revision(), store.compact(1), store.request_progress()):
        with pytest.raises(Unavailable):
            await call
    await store.close()
