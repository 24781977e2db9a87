import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver.apis.meta import errors
from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.changes import Event, EventBatch, EventType, Record
from apiserver.registry.cacher.items import Item
from apiserver.registry.cacher.window import LIMITS, Limits, Watch, Window


def item(revision: int, key: str = "a") -> Item:
    return Item(key, revision, None, b'{"metadata":{"resourceVersion":"%d"}}' % revision)


def record(revision: int, key: str = "a") -> Record:
    return Record(key, revision, None, item(revision, key))


def window(capacity: int = 500, limits: Limits = LIMITS) -> Window:
    made = Window(capacity, limits)
    made.reset(10)
    return made


class Hearer:
    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.is_full = False
        self.waits = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self._emptied = asyncio.Event()

    @property
    def heard(self) -> list[int]:
        return [event.revision for batch in self.batches for event in batch.events]

    def receive(self, batch: EventBatch) -> bool:
        self.meanwhile()
        self.batches.append(batch)
        self._emptied.clear()
        return not self.is_full

    async def room(self) -> None:
        if self.is_full:
            self.waits += 1
            await self._emptied.wait()

    def empty(self) -> None:
        self.is_full = False
        self._emptied.set()


@asynccontextmanager
async def telling(made: Window, *pairs: tuple[Watch, Hearer]) -> AsyncIterator[list[asyncio.Task[None]]]:
    async with asyncio.TaskGroup() as tasks:
        yield [tasks.create_task(watch.tell(hearer)) for watch, hearer in pairs]
        made.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_changes_are_pushed_to_all_watches_and_encoded_once() -> None:
    made = window()
    pairs = [(Watch(made, "", 10), Hearer()) for _ in range(3)]
    written: list[int] = []

    def write(events: Sequence[Event]) -> str:
        written.append(len(events))
        return "letter"

    async with telling(made, *pairs):
        await settle()
        made.extend([record(11)], 11)
        await asyncio.sleep(0)
        assert [hearer.heard for _, hearer in pairs] == [[11]] * 3
        assert {watch.revision for watch, _ in pairs} == {11}
        assert all(watch.is_idle for watch, _ in pairs), "nobody was woken"
        letters = {hearer.batches[0].written("form", write) for _, hearer in pairs}
        assert (letters, written) == ({"letter"}, [1])
        made.extend([record(12), record(12, "b")], 12)
        made.extend([record(13)], 13)
        await asyncio.sleep(0)
        assert [hearer.heard for _, hearer in pairs] == [[11, 12, 12, 13]] * 3
        assert len(pairs[0][1].batches) == 2, "what came in one turn of the loop was told together"


async def test_watches_with_equal_selection_share_batches() -> None:
    made = window()
    odd, even = (lambda each: bool(each.revision % 2)), (lambda each: not each.revision % 2)
    watches = [Watch(made, "", 10, odd), Watch(made, "", 10, odd), Watch(made, "", 10, even), Watch(made, "a", 10), Watch(made, "b", 10)]
    hearers = [Hearer() for _ in watches]
    async with telling(made, *zip(watches, hearers, strict=True)):
        await settle()
        made.extend([record(11), record(12, "b")], 12)
        await settle()
        assert [hearer.heard for hearer in hearers] == [[11], [11], [12], [11], [12]]
        assert hearers[0].batches[0] is hearers[1].batches[0] is hearers[3].batches[0]
        assert {watch.revision for watch in watches} == {12}


async def test_full_receiver_gets_the_rest_in_order_once_it_has_room() -> None:
    made = window()
    (slow, slow_hearer), (quick, quick_hearer) = pairs = [(Watch(made, "", 10), Hearer()) for _ in range(2)]
    async with telling(made, *pairs):
        await settle()
        slow_hearer.is_full = True
        for revision in range(11, 15):
            made.extend([record(revision)], revision)
            await settle()
        assert (slow_hearer.heard, quick_hearer.heard) == ([11], [11, 12, 13, 14])
        assert (slow.revision, quick.revision, slow_hearer.waits) == (11, 14, 1)
        slow_hearer.empty()
        await settle()
        assert slow_hearer.heard == [11, 12, 13, 14]
        made.extend([record(15)], 15)
        await settle()
        assert slow_hearer.heard == [11, 12, 13, 14, 15]


async def test_receiver_full_for_too_long_expires_and_others_go_on() -> None:
    made = window(capacity=8)
    slow, quick = Hearer(), Hearer()
    async with asyncio.TaskGroup() as tasks:
        cut = tasks.create_task(refused(Watch(made, "", 10).tell(slow)))
        told = tasks.create_task(Watch(made, "", 10).tell(quick))
        await settle()
        slow.is_full = True
        for revision in range(11, 80):
            made.extend([record(revision)], revision)
            if revision == 11:
                await settle()
        slow.empty()
        error = await cut
        assert isinstance(error, errors.Expired)
        assert (slow.heard, quick.heard) == ([11], list(range(11, 80)))
        made.close()
        await told


async def refused(telling: object) -> BaseException | None:
    try:
        await telling  # type: ignore[misc]  # a coroutine
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error
    return None


async def test_burst_is_pushed_in_pieces_that_fit_the_receiver() -> None:
    made = window(capacity=1000)
    (_, slow), (_, quick) = pairs = [(Watch(made, "", 10), Hearer()) for _ in range(2)]
    storm = [record(revision) for revision in range(11, 11 + 3 * LIMITS.pushed)]
    async with telling(made, *pairs):
        await settle()
        slow.is_full = True
        made.extend(storm, storm[-1].revision)
        await asyncio.sleep(0)
        assert (len(slow.heard), len(quick.heard)) == (LIMITS.pushed, 3 * LIMITS.pushed)
        await settle()
        slow.empty()
        await settle()
        assert slow.heard == quick.heard == [each.revision for each in storm]


@pytest.mark.parametrize("broken", ["receiver", "predicate", "trigger"])
async def test_errors_of_one_watch_do_not_affect_others(broken: str) -> None:
    made = window()

    def fail(*_: object) -> bool:
        raise ZeroDivisionError(broken)

    hearers = [Hearer() for _ in range(3)]
    if broken == "receiver":
        hearers[1].meanwhile = fail  # type: ignore[assignment]  # it does not return
    predicate = fail if broken != "receiver" else None
    trigger = Trigger("broken", "x", fail) if broken == "trigger" else None  # type: ignore[arg-type]  # it does not return
    watches = [Watch(made, "", 10), Watch(made, "", 10, predicate, trigger=trigger), Watch(made, "", 10)]
    async with asyncio.TaskGroup() as tasks:
        results = [tasks.create_task(refused(watch.tell(hearer))) for watch, hearer in zip(watches, hearers, strict=True)]
        await settle()
        for revision in (11, 12):
            made.extend([record(revision)], revision)
            await settle()
        assert [hearer.heard for hearer in hearers] == [[11, 12], [], [11, 12]]
        assert isinstance(results[1].result(), ZeroDivisionError)
        made.close()
    assert [results[0].result(), results[2].result()] == [None, None]


async def test_change_made_by_a_receiver_is_delivered_in_order() -> None:
    made = window()
    pairs = [(Watch(made, "", 10), Hearer()) for _ in range(3)]

    def write() -> None:
        if made.revision < 14:
            made.extend([record(made.revision + 1)], made.revision + 1)

    pairs[1][1].meanwhile = write
    async with telling(made, *pairs):
        await settle()
        made.extend([record(11)], 11)
        await settle()
        assert [hearer.heard for _, hearer in pairs] == [[11, 12, 13, 14]] * 3


async def test_bookmarks_come_between_and_say_what_was_pushed() -> None:
    made = window()
    watch, hearer = Watch(made, "", 10, bookmark_seconds=0.05), Hearer()
    async with telling(made, (watch, hearer)):
        await settle()
        made.extend([record(11)], 11)
        await settle()
        made.extend([], 13)
        async with asyncio.timeout(30):
            while len(hearer.batches) < 2:
                await asyncio.sleep(0.005)
        made.extend([record(14)], 14)
        await settle()
        kinds = [(event.type, event.revision) for each in hearer.batches for event in each.events]
        assert kinds[:3] == [(EventType.ADDED, 11), (EventType.BOOKMARK, 13), (EventType.ADDED, 14)]


async def test_cancelled_watch_knows_its_revision_and_receives_no_more() -> None:
    made = window()
    (watch, hearer), other = pairs = [(Watch(made, "", 10), Hearer()) for _ in range(2)]
    async with telling(made, *pairs) as tasks:
        await settle()
        made.extend([record(11)], 11)
        await settle()
        made.extend([record(12)], 12)
        tasks[0].cancel()  # pending events are delivered before its task runs
        await settle()
        made.extend([record(13)], 13)
        await settle()
        assert (hearer.heard, watch.revision, watch.is_idle) == ([11, 12], 12, False)
        assert other[1].heard == [11, 12, 13]
    assert tasks[0].cancelled()


async def test_watch_cancelled_while_full_knows_its_revision() -> None:
    made = window()
    watch, hearer = Watch(made, "", 10), Hearer()
    async with telling(made, (watch, hearer)) as tasks:
        await settle()
        hearer.is_full = True
        for revision in (11, 12):
            made.extend([record(revision)], revision)
            await settle()
        tasks[0].cancel()
        await settle()
        assert (hearer.heard, watch.revision) == ([11], 11)


async def test_window_reset_delivers_known_changes_and_expires_watches() -> None:
    made = window()
    hearer = Hearer()
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(refused(Watch(made, "", 10).tell(hearer)))
        await settle()
        made.extend([record(11)], 11)
        made.reset(20)
        assert isinstance(await ended, errors.Expired)
    assert hearer.heard == [11]


async def test_window_reset_at_same_revision_disturbs_no_watch() -> None:
    made = window()
    hearer = Hearer()
    async with telling(made, (Watch(made, "", 10), hearer)):
        await settle()
        made.extend([record(11)], 11)
        made.reset(11)
        await settle()
        made.extend([record(12)], 12)
        await settle()
        assert hearer.heard == [11, 12]


async def test_many_receivers_are_told_in_batches_and_share_them() -> None:
    made = window(limits=Limits(pause_seconds=1, longest_pause_seconds=0.02))
    pairs = [(Watch(made, "", 10), Hearer()) for _ in range(LIMITS.few + 1)]
    async with telling(made, *pairs):
        await settle()
        for revision in range(11, 15):
            made.extend([record(revision)], revision)
            await settle()
        assert [hearer.heard for _, hearer in pairs] == [[11]] * len(pairs)
        assert {watch.revision for watch, _ in pairs} == {11}, "nobody claims what was not told"
        async with asyncio.timeout(30):
            while pairs[-1][1].heard != [11, 12, 13, 14]:
                await asyncio.sleep(0.001)
        assert len({id(hearer.batches[1]) for _, hearer in pairs}) == 1


KEYS = ("a/1", "a/2", "b/1")
actions = st.one_of(
    st.tuples(st.just("change"), st.lists(st.sampled_from(KEYS), min_size=0, max_size=3, unique=True)),
    st.tuples(st.just("change"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=1)),
    st.tuples(st.just("fill"), st.integers(0, 4)),
    st.tuples(st.just("empty"), st.integers(0, 4)),
    st.tuples(st.just("run"), st.none()),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=st.lists(actions, max_size=60), pushed=st.sampled_from((1, 2, 64)), pause=st.sampled_from((0.0, 1e-4)))
def test_every_receiver_gets_each_of_its_changes_once_in_order(script: list[tuple[str, object]], pushed: int, pause: float) -> None:
    asyncio.run(play(script, Limits(chunk=3, pushed=pushed, pause_seconds=pause, few=1)))


async def play(script: list[tuple[str, object]], limits: Limits) -> None:
    made = window(limits=limits)
    wishes: list[tuple[str, str, Callable[[Item], bool] | None]] = [
        ("", "", None), ("a/", "", None), ("", "a/1", None), ("", "", lambda each: each.key == "b/1"), ("", "", None)
    ]  # fmt: skip
    pairs = [(Watch(made, prefix, 10, predicate, key=key), Hearer()) for prefix, key, predicate in wishes]
    present: dict[str, Item] = {}
    happened: list[tuple[int, str]] = []
    async with telling(made, *pairs):
        for action, argument in script:
            match action, argument:
                case "change", list():
                    revision = made.revision + 1
                    records = [Record(key, revision, present.get(key), item(revision, key)) for key in argument]
                    present |= {each.key: item(revision, each.key) for each in records}
                    happened += [(revision, key) for key in argument]
                    made.extend(records, revision)
                case "fill", int():
                    pairs[argument][1].is_full = True
                case "empty", int():
                    pairs[argument][1].empty()
                case _:
                    await settle()
            for watch, hearer in pairs:
                assert watch.revision <= made.revision
                assert not hearer.heard or watch.revision >= hearer.heard[-1] - 1
        for _, hearer in pairs:
            hearer.empty()
        async with asyncio.timeout(30):
            while any(watch.revision < made.revision for watch, _ in pairs):
                await asyncio.sleep(0)
    for (prefix, key, predicate), (_, hearer) in zip(wishes, pairs, strict=True):
        heard = [(each.revision, each.item.key) for batch in hearer.batches for each in batch.events if each.item is not None]
        assert heard == [
            (revision, name)
            for revision, name in happened
            if name.startswith(prefix) and key in {"", name} and (predicate is None or predicate(item(revision, name)))
        ]
