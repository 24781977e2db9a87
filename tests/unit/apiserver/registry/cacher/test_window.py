import asyncio
import json

import pytest

from apiserver.apis.meta import errors
from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.changes import Event, EventType, Predicate, Record, event_of
from apiserver.registry.cacher.items import Item, SortedItems
from apiserver.registry.cacher.window import LIMITS, Limits, Watch, Window

PAUSES = Limits(pause_seconds=1, longest_pause_seconds=0.02)


def item(revision: int, *, on: bool = True, key: str = "a") -> Item:
    obj = {"on": on, "metadata": {"resourceVersion": str(revision)}}
    return Item(key, revision, None, json.dumps(obj, separators=(",", ":")).encode())


def record(revision: int, *, key: str = "a") -> Record:
    return Record(key, revision, None, item(revision, key=key))


def window(capacity: int, revisions: range, limits: Limits = LIMITS) -> Window:
    made = Window(capacity, limits)
    made.reset(revisions.start - 1)
    for revision in revisions:
        made.extend([record(revision)], revision)
    return made


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (None, True, EventType.ADDED),
        (None, False, None),
        (False, True, EventType.ADDED),
        (True, True, EventType.MODIFIED),
        (True, False, EventType.DELETED),
        (True, None, EventType.DELETED),
        (False, False, None),
        (False, None, None),
    ],
)
def test_selector_turns_changes_into_added_or_deleted(was: bool | None, now: bool | None, expected: EventType | None) -> None:
    old = None if was is None else item(1, on=was)
    new = None if now is None else item(2, on=now)
    departed = item(2, on=bool(was))
    predicate: Predicate = lambda each: bool(each.object["on"])  # noqa: E731  # a function here would be longer
    event = event_of(Record("a", 2, old, new), predicate)
    if expected is None:
        assert event is None
    else:
        assert event == Event(expected, departed if expected is EventType.DELETED else new, old, 2)


def test_replaced_object_is_not_kept_decoded_after_delivery() -> None:
    old, new = item(1), item(2)
    said, says = old.object, new.object
    made = window(10, range(1, 2))
    assert old.object is said
    made.extend([Record("a", 2, old, new)], 2)
    assert old.object == said
    assert old.object is not said
    assert new.object is says


def test_the_last_state_is_stamped_once_for_all_watches() -> None:
    gone = Record("a", 2, item(1), None)
    first, second = event_of(gone, None), event_of(gone, lambda each: each.key == "a")
    assert first is not None
    assert first is second
    assert first.item == item(2)


def test_frame_is_made_once_and_freed_with_its_window() -> None:
    made: list[Event] = []

    def frame(event: Event) -> bytes:
        made.append(event)
        return b"frame"

    full = window(500, range(11, 12))
    records = full.read(full.position(10))
    assert records is not None
    event = event_of(records[0], None)
    assert event is not None
    assert [event.framed("json", frame) for _ in range(3)] == [b"frame"] * 3
    assert len(made) == 1
    for revision in range(12, 12 + LIMITS.framed):
        full.extend([record(revision)], revision)
    event.framed("json", frame)
    assert len(made) == 2


def test_a_window_reaches_back_exactly_to_its_oldest() -> None:
    full = window(8, range(11, 211))
    assert 8 <= full.end - full.position(full.oldest) <= 8 + LIMITS.dropped
    records = full.read(full.position(full.oldest))
    assert records is not None
    assert [each.revision for each in records] == list(range(full.oldest + 1, 211))
    with pytest.raises(errors.Expired, match=rf"too old resource version: {full.oldest - 1} \({full.oldest}\)"):
        full.position(full.oldest - 1)


def test_changes_of_one_revision_are_never_split() -> None:
    made = Window(4)
    made.reset(1)
    for revision in range(2, 10):
        made.extend([record(revision, key="a"), record(revision, key="b")], revision)
    for after in range(made.oldest, 9):
        records = made.read(made.position(after))
        assert records is not None
        assert [(each.revision, each.key) for each in records] == [(rev, key) for rev in range(after + 1, 10) for key in "ab"]


async def test_watch_reports_a_revision_only_after_its_events() -> None:
    made = window(8, range(11, 11))
    watch = Watch(made, "", 10, None, None)
    made.extend([record(11)], 11)
    made.extend([record(12)], 12)
    assert (await anext(watch)).revision == 11
    assert watch.revision < 12
    assert (await anext(watch)).revision == 12
    assert watch.revision == 12
    assert watch.take() == []
    assert watch.revision == 12


@pytest.mark.parametrize("chunk", [1, 2, 3, 256])
async def test_watch_reports_no_less_than_its_taken_events(chunk: int) -> None:
    """With an older last bookmark, the client would receive a deletion twice."""
    made = window(20, range(11, 11), Limits(chunk=chunk))
    watch = Watch(made, "", 10)
    for revision in range(11, 18):
        made.extend([record(revision)], revision)
    made.extend([], 30)
    told = 10
    while told < 17:
        events = [await anext(watch), *watch.take()]
        assert [event.revision for event in events] == list(range(told + 1, told + 1 + len(events)))
        told += len(events)
        assert watch.revision == (told if told < 17 else 30)


async def test_change_wakes_only_the_watches_it_concerns() -> None:
    made = window(8, range(11, 11))
    on = Trigger("on", "True", lambda each: str(each.object["on"]))
    watches = {
        "all": Watch(made, "", 10),
        "space": Watch(made, "a/", 10),
        "other": Watch(made, "b/", 10),
        "one": Watch(made, "a/", 10, key="a/1"),
        "two": Watch(made, "a/", 10, key="a/10"),
        "on": Watch(made, "a/", 10, lambda each: bool(each.object["on"]), trigger=on),
    }
    heard: list[str] = []

    async def listen(name: str, watch: Watch) -> None:
        while True:
            event = await anext(watch)
            heard.append(f"{name} {event.type.value} {event.revision}")

    async with asyncio.TaskGroup() as tasks:
        listening = [tasks.create_task(listen(*each)) for each in watches.items()]
        await asyncio.sleep(0)
        off = item(11, on=False, key="a/1")
        made.extend([Record("a/1", 11, None, off)], 11)
        await asyncio.sleep(0)
        woken = {name for name, watch in watches.items() if not watch.is_idle}
        assert woken == {"all", "space", "one"}
        await asyncio.sleep(0)
        made.extend([Record("a/1", 12, off, item(12, key="a/1"))], 12)
        made.extend([], 15)
        await asyncio.sleep(0)
        assert not watches["on"].is_idle
        assert [watches["other"].revision, watches["on"].revision] == [15, 11]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert {watch.revision for watch in watches.values()} == {15}
        for each in listening:
            each.cancel()
    assert sorted(heard) == [
        "all ADDED 11", "all MODIFIED 12", "on ADDED 12", "one ADDED 11", "one MODIFIED 12", "space ADDED 11", "space MODIFIED 12"
    ]  # fmt: skip


async def test_sleeping_watch_misses_nothing_while_the_window_moves() -> None:
    made = window(4, range(11, 11))
    watch = Watch(made, "quiet/", 10)
    reading = asyncio.ensure_future(anext(watch))  # noqa: TID251  # it is awaited below
    await asyncio.sleep(0)
    for revision in range(11, 60):
        made.extend([record(revision, key="loud/a")], revision)
    made.extend([record(60, key="quiet/a")], 60)
    for revision in range(61, 64):
        made.extend([record(revision, key="loud/a")], revision)
    assert (await reading).revision == 60


def test_a_window_can_be_made_to_reach_further_back() -> None:
    full = window(20, range(11, 15))
    assert full.room == 16
    full.prepend([record(5), record(9)], 4)
    records = full.read(full.position(4))
    assert records is not None
    assert [each.revision for each in records] == [5, 9, 11, 12, 13, 14]
    with pytest.raises(errors.Expired, match=r"too old resource version: 3 \(4\)"):
        full.position(3)


def test_items_are_kept_in_the_order_of_keys() -> None:
    items = SortedItems([item(1, key="b"), item(2, key="a")])
    items.put(item(3, key="aa"))
    items.put(item(4, key="b"))
    items.remove("absent")
    assert [(each.key, each.revision) for each in items.slice("")[0]] == [("a", 2), ("aa", 3), ("b", 4)]
    items.remove("aa")
    assert items.get("aa") is None
    assert ([each.key for each in items.slice("", start="a\0")[0]], len(items)) == (["b"], 2)


async def read_on(watch: Watch, read: list[list[int]]) -> None:
    while batch := await watch.batch():
        read.append([each.revision for each in batch])


async def test_delivery_to_many_watches_pauses_and_batches_the_rest() -> None:
    made = window(500, range(11, 11), PAUSES)
    watches = [Watch(made, "", 10) for _ in range(LIMITS.few + 1)]
    read: list[list[list[int]]] = [[] for _ in watches]
    async with asyncio.TaskGroup() as tasks:
        for watch, each in zip(watches, read, strict=True):
            tasks.create_task(read_on(watch, each))
        await asyncio.sleep(0)
        for revision in range(11, 15):
            made.extend([record(revision)], revision)
            await asyncio.sleep(0)
        assert read == [[[11]]] * len(watches), "one change is told at once"
        assert {watch.revision for watch in watches} == {11}, "nobody claims what was not told"
        async with asyncio.timeout(30):
            while read != [[[11], [12, 13, 14]]] * len(watches):
                await asyncio.sleep(0.001)
        made.close()


async def test_a_watch_that_begins_in_a_pause_reads_each_change_once() -> None:
    made = window(500, range(11, 11), PAUSES)
    early = [Watch(made, "", 10) for _ in range(LIMITS.few + 1)]
    read: list[list[int]] = []
    async with asyncio.TaskGroup() as tasks:
        for watch in early:
            tasks.create_task(read_on(watch, []))
        await asyncio.sleep(0)
        made.extend([record(11)], 11)
        await asyncio.sleep(0)
        made.extend([record(12)], 12)
        late = Watch(made, "", 10)
        tasks.create_task(read_on(late, read))
        await asyncio.sleep(0)
        assert late.revision == 11, "it waits with the others for the end of the pause"
        made.extend([record(13)], 13)
        assert late.revision == 11
        await asyncio.sleep(0.05)
        made.close()
    assert read == [[11], [12, 13]]


async def test_window_reset_during_a_pause_delivers_the_rest_first() -> None:
    made = window(500, range(11, 11), Limits(pause_seconds=60, longest_pause_seconds=60))
    watches = [Watch(made, "", 10) for _ in range(LIMITS.few + 1)]

    async def read_to_the_gap(watch: Watch) -> None:
        assert [each.revision for each in await watch.batch()] == [11]
        assert [each.revision for each in await watch.batch()] == [12]
        with pytest.raises(errors.Expired):
            await watch.batch()

    async with asyncio.TaskGroup() as tasks:
        for watch in watches:
            tasks.create_task(read_to_the_gap(watch))
        await asyncio.sleep(0)
        made.extend([record(11)], 11)
        await asyncio.sleep(0.01)
        made.extend([record(12)], 12)
        made.reset(20)
