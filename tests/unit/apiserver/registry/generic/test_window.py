import pytest

from apiserver.apis.meta import errors
from apiserver.registry.generic.items import Item, SortedItems
from apiserver.registry.generic.window import Event, EventType, Predicate, Record, Watch, Window, event_of


def item(revision: int, *, on: bool = True, key: str = "a") -> Item:
    return Item(key, revision, {"on": on}, b"")


def record(revision: int, *, key: str = "a") -> Record:
    return Record(key, revision, None, item(revision, key=key), lambda: None)


def window(capacity: int, revisions: range) -> Window:
    made = Window(capacity)
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
def test_what_a_selector_makes_of_a_change(was: bool | None, now: bool | None, expected: EventType | None) -> None:
    old = None if was is None else item(1, on=was)
    new = None if now is None else item(2, on=now)
    departed = item(2, on=bool(was))
    predicate: Predicate = lambda each: bool(each.object["on"])  # noqa: E731  # a function here would be longer
    event = event_of(Record("a", 2, old, new, lambda: departed), predicate)
    if expected is None:
        assert event is None
    else:
        assert event == Event(expected, departed if expected is EventType.DELETED else new, old, 2)


def test_the_last_state_is_stamped_once_and_only_when_somebody_asks() -> None:
    calls: list[int] = []

    def restamp() -> Item:
        calls.append(1)
        return item(2)

    gone = Record("a", 2, item(1), None, restamp)
    assert calls == []
    first, second = event_of(gone, None), event_of(gone, None)
    assert first is not None
    assert second is not None
    assert first.item is second.item
    assert calls == [1]


def test_a_window_reaches_back_exactly_to_its_oldest() -> None:
    full = window(8, range(11, 41))
    assert 8 <= full.end - full.position(full.oldest) <= 10
    records = full.read(full.position(full.oldest))
    assert records is not None
    assert [each.revision for each in records] == list(range(full.oldest + 1, 41))
    with pytest.raises(errors.Expired, match=rf"too old resource version: {full.oldest - 1} \({full.oldest}\)"):
        full.position(full.oldest - 1)


def test_changes_of_one_revision_are_never_split_by_the_windows_end() -> None:
    made = Window(4)
    made.reset(1)
    for revision in range(2, 10):
        made.extend([record(revision, key="a"), record(revision, key="b")], revision)
    for after in range(made.oldest, 9):
        records = made.read(made.position(after))
        assert records is not None
        assert [(each.revision, each.key) for each in records] == [(rev, key) for rev in range(after + 1, 10) for key in "ab"]


async def test_a_watch_does_not_claim_a_revision_whose_events_it_has_not_handed_out() -> None:
    made = window(8, range(11, 11))
    watch = Watch(made, "", 10, None, None)
    made.extend([record(11)], 11)
    made.extend([record(12)], 12)
    assert (await anext(watch)).revision == 11
    assert watch.revision < 12
    assert (await anext(watch)).revision == 12
    assert watch.take() == []
    assert watch.revision == 12


def test_items_are_kept_in_the_order_of_keys() -> None:
    items = SortedItems([item(1, key="b"), item(2, key="a")])
    items.put(item(3, key="aa"))
    items.put(item(4, key="b"))
    items.remove("absent")
    assert [(each.key, each.revision) for each in items.slice("")[0]] == [("a", 2), ("aa", 3), ("b", 4)]
    items.remove("aa")
    assert items.get("aa") is None
    assert ([each.key for each in items.slice("", start="a\0")[0]], len(items)) == (["b"], 2)
