from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apiserver.apis.meta.objects import NamespacedName, Object, key_of, uid_of
from apiserver.client.store import Store

NAMES = st.sampled_from(["a", "b", "c"])


class Following(RuleBasedStateMachine):
    """A server that delivers events late, twice, out of order across objects, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 0
        self.server: dict[str, Object] = {}
        self.undelivered: list[tuple[str, Object]] = []
        self.store = Store(
            {"parity": lambda obj: [str(obj["data"] % 2)], "divisor": lambda obj: [by for by in (2, 3) if obj["data"] % by == 0]}
        )
        self.told: dict[NamespacedName, Object] = {}
        self.store.subscribe(self._hear)

    def _hear(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            assert self.told.pop(key_of(old)) == old
        if new is not None:
            assert old is None or uid_of(old) == uid_of(new)
            self.told[key_of(new)] = new
        self.subscribers_and_indexes_know_what_the_store_knows()

    def _object(self, name: str, uid: str, data: int) -> dict[str, Any]:
        self.revision += 1
        return {"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(self.revision)}, "data": data}

    @rule(name=NAMES, data=st.integers(0, 9))
    def write(self, name: str, data: int) -> None:
        uid = uid_of(self.server[name]) if name in self.server else f"{name}{self.revision}"
        self.server[name] = self._object(name, uid, data)
        self.undelivered.append(("apply", self.server[name]))

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if old := self.server.pop(name, None):
            self.undelivered.append(("delete", self._object(name, uid_of(old), old["data"])))

    @rule(at=st.integers(0, 20), keep=st.booleans())
    def deliver(self, at: int, keep: bool) -> None:
        if self.undelivered:
            position = at % len(self.undelivered)
            what, obj = self.undelivered[position]
            if not keep:
                del self.undelivered[position]
            getattr(self.store, what)(obj)

    @rule()
    def lose(self) -> None:
        self.undelivered.clear()

    @rule()
    def list_again(self) -> None:
        self._replace()
        assert {key_of(each): each for each in self.store.list()} == {("n", name): each for name, each in self.server.items()}

    def _replace(self) -> None:
        for _ in self.store.replace_in_steps(list(self.server.values()), str(self.revision)):
            self.subscribers_and_indexes_know_what_the_store_knows()

    @rule()
    def deliver_everything_in_any_order(self) -> None:
        self._replace()
        for what, obj in reversed(self.undelivered):
            getattr(self.store, what)(obj)
        assert {key_of(each): each for each in self.store.list()} == {("n", name): each for name, each in self.server.items()}

    @invariant()
    def subscribers_and_indexes_know_what_the_store_knows(self) -> None:
        assert self.told == {key_of(each): each for each in self.store.list()}
        for parity in ("0", "1"):
            assert list(self.store.by_index("parity", parity)) == [
                self.told[key] for key in sorted(self.told) if self.told[key]["data"] % 2 == int(parity)
            ]
        for by in (2, 3):
            assert list(self.store.by_index("divisor", by)) == [
                self.told[key] for key in sorted(self.told) if self.told[key]["data"] % by == 0
            ]

    @invariant()
    def nobody_who_was_told_has_failed(self) -> None:
        assert self.store.faults == 0

    @invariant()
    def nothing_is_kept_of_what_is_gone(self) -> None:
        assert all(keys for found in self.store._indexes.values() for keys in found.values())
        assert set(self.store._indexed) == set(self.told)


TestFollowing = Following.TestCase


def test_errors_of_callbacks_and_indexers_affect_one_object_only() -> None:
    def of_colour(obj: Object) -> list[Any]:
        return [obj["spec"]["colour"]]

    heard: list[str] = []

    def picky(_: Object | None, new: Object | None) -> None:
        if new is not None and new["spec"]["colour"] != "red":
            raise ValueError(new["spec"]["colour"])

    store = Store({"colour": of_colour})
    store.subscribe(picky)
    store.subscribe(lambda _, new: heard.append((new or {"metadata": {"name": "gone"}})["metadata"]["name"]))

    def an_object(name: str, spec: Any, version: int = 1) -> Object:
        return {"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}, "spec": spec}

    for name, spec in (("a", {"colour": "red"}), ("b", None), ("c", {"colour": ["red"]}), ("d", {"colour": "red"})):
        store.apply(an_object(name, spec))
    assert heard == ["a", "b", "c", "d"]
    assert [each["metadata"]["name"] for each in store.by_index("colour", "red")] == ["a", "d"]
    assert store.faults >= 4
    store.apply(an_object("b", {"colour": "red"}, 2))
    store.apply(an_object("a", [], 2))
    assert [each["metadata"]["name"] for each in store.by_index("colour", "red")] == ["b", "d"]
    store.delete(an_object("c", None, 3))
    assert heard[-1] == "gone"
    assert len(store) == 3


def numbered(number: int, version: int = 1) -> Object:
    return {"metadata": {"name": f"{number:03}", "namespace": "n", "uid": str(number), "resourceVersion": str(version)}, "data": number}


def test_own_writes_during_a_replacement_stay() -> None:
    store = Store({"all": lambda _: ["all"]})
    for number in range(4):
        store.apply(numbered(number, 5))
    steps = store.replace_in_steps([numbered(0, 10), numbered(1, 10), numbered(2, 10)], "10")
    next(steps)
    store.apply(numbered(1, 12))
    store.apply(numbered(3, 13))
    store.apply(numbered(4, 14))
    store.apply(numbered(5, 9))
    list(steps)
    assert {each["data"]: each["metadata"]["resourceVersion"] for each in store.by_index("all", "all")} == {
        0: "10", 1: "12", 2: "10", 3: "13", 4: "14",
    }  # fmt: skip


def test_a_list_of_a_restored_server_replaces_newer_objects() -> None:
    store = Store({})
    store.apply(numbered(0, 50))
    list(store.replace_in_steps([numbered(0, 7)], "9"))
    assert list(store.list()) == [numbered(0, 7)]


def test_index_limit_returns_the_first_and_reads_no_others() -> None:
    store = Store({"all": lambda _: ["all"]})
    for number in (3, 1, 2, 0):
        store.apply(numbered(number))
    assert [each["data"] for each in store.by_index("all", "all", 2)] == [3, 1]
    assert [each["data"] for each in store.by_index("all", "all")] == [0, 1, 2, 3]
    store.delete(numbered(3, 2))
    assert [each["data"] for each in store.by_index("all", "all", 2)] == [1, 2]


def test_indexers_run_once_for_prepared_and_again_for_changed() -> None:
    asked: list[int] = []

    def parity(obj: Object) -> list[int]:
        asked.append(obj["data"])
        return [obj["data"] % 2]

    store = Store({"parity": parity})
    store.apply(known := numbered(0))
    prepared = [known, numbered(1), numbered(2)]
    asked.clear()
    for each in prepared:
        store.prepare(each)
    assert asked == [1, 2]
    store.apply({**numbered(2), "data": 5})  # our write returned before the others were prepared
    list(store.replace_in_steps([*prepared, numbered(3)], "1"))
    assert asked == [1, 2, 5, 3]
    assert [each["data"] for each in store.by_index("parity", 1)] == [1, 5, 3]
    list(store.replace_in_steps([numbered(2, 2)], "2"))
    assert [each["data"] for each in store.by_index("parity", 0)] == [2]
    assert list(store.by_index("parity", 1)) == []
