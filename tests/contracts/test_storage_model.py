"""Promises 1, 2, 4 to 7 of ``storage.port`` as a state machine, compared with a dictionary."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from storage.etcd.store import EtcdStorage, Settings
from storage.memory import MemoryStorage
from storage.port import Batch, Change, Compacted, Condition, Delete, Entry, FutureRevision, Put, RevisionMismatch, Storage
from tests.fakes.etcd_server import EtcdServer

KEYS = ("a", "a/1", "a/2", "b/1", "b/2", "ä")
PREFIXES = ("", "a", "a/", "b/", "c")
T = TypeVar("T")
keys = st.sampled_from(KEYS)
values = st.binary(max_size=6)
writes = st.dictionaries(keys, st.none() | values, min_size=1, max_size=3)


class StorageMachine(RuleBasedStateMachine):
    make_store: Callable[[], Storage]

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.store = self.runner.run(self._make())
        self.history: list[tuple[int, dict[str, Entry]]] = [(self.run(self.store.revision()), {})]
        self.batches: list[Batch] = []
        self.compacted = 0

    async def _make(self) -> Storage:
        return type(self).make_store()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.runner.close()

    @property
    def now(self) -> dict[str, Entry]:
        return self.history[-1][1]

    @rule(writes=writes, stale=st.none() | keys, guarded=st.lists(keys, max_size=2))
    def commit(self, writes: dict[str, bytes | None], stale: str | None, guarded: list[str]) -> None:
        conditions = [Condition(key, self.now[key].mod_revision if key in self.now else 0) for key in guarded]
        if stale is not None:
            conditions.append(Condition(stale, self.now[stale].mod_revision + 1 if stale in self.now else self.history[0][0]))
        operations = [Delete(key) if value is None else Put(key, value) for key, value in writes.items()]
        if stale is not None:
            with pytest.raises(RevisionMismatch) as caught:
                self.run(self.store.commit(conditions, operations))
            assert (caught.value.key, caught.value.actual) == (stale, self.now.get(stale))
            return
        revision = self.run(self.store.commit(conditions, operations))
        self._commit(writes, revision)

    def _commit(self, writes: dict[str, bytes | None], revision: int) -> None:
        state, changes = dict(self.now), []
        for key, value in writes.items():
            previous = state.pop(key, None)
            if value is not None:
                state[key] = Entry(key, value, previous.create_revision if previous else revision, revision)
            if previous or value is not None:
                changes.append(Change(key, state.get(key), previous))
        if changes:
            assert revision > self.history[-1][0]
            self.history.append((revision, state))
            self.batches.append(Batch(revision, tuple(changes)))
        else:
            assert revision == self.history[-1][0]

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES), start=st.sampled_from(("", *KEYS)), limit=st.integers(0, 4))
    def range(self, data: st.DataObject, prefix: str, start: str, limit: int) -> None:
        revision, state = data.draw(st.sampled_from(self.history))
        if revision < self.compacted:
            with pytest.raises(Compacted):
                self.run(self.store.range(prefix, start=start, limit=limit, revision=revision))
            return
        page = self.run(self.store.range(prefix, start=start, limit=limit, revision=revision))
        expected = [state[key] for key in sorted(state) if key.startswith(prefix) and key >= start]
        assert list(page.entries) == (expected[:limit] if limit else expected)
        assert (page.count, page.revision) == (len(expected), revision)
        assert page.more == (len(page.entries) < len(expected))

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES))
    def watch(self, data: st.DataObject, prefix: str) -> None:
        after, _ = data.draw(st.sampled_from(self.history))
        if after < self.compacted:
            with pytest.raises(Compacted):
                self.run(self._collect(prefix, after))
            return
        found = self.run(self._collect(prefix, after))
        expected = []
        for batch in self.batches:
            changes = [change for change in batch.changes if change.key.startswith(prefix)]
            if changes and batch.revision > after:
                expected.append((batch.revision, sorted(changes, key=lambda change: change.key)))
        # The order within one revision is unspecified.
        assert [(b.revision, sorted(b.changes, key=lambda change: change.key)) for b in found if b.changes] == expected
        assert all(first.revision <= second.revision for first, second in itertools.pairwise(found))

    async def _collect(self, prefix: str, after: int) -> list[Batch]:
        found = []
        async with self.store.watch(prefix, after=after) as batches, asyncio.timeout(10):
            await self.store.request_progress()
            async for batch in batches:
                found.append(batch)
                if batch.revision >= self.history[-1][0]:
                    return found
        return found

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        revision, _ = data.draw(st.sampled_from(self.history))
        self.run(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @rule()
    def look_into_the_future(self) -> None:
        with pytest.raises(FutureRevision):
            self.run(self.store.range("", revision=self.history[-1][0] + 1))

    @invariant()
    def reads_show_the_present(self) -> None:
        if hasattr(self, "store"):
            assert {entry.key: entry for entry in self.run(self.store.range("")).entries} == self.now
            assert self.run(self.store.get("a")) == self.now.get("a")
            assert self.run(self.store.revision()) == self.history[-1][0]


def check(make_store: Callable[[], Storage], examples: int, *, shrink: bool) -> None:
    machine = type("Machine", (StorageMachine,), {"make_store": staticmethod(make_store)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        ),
    )


def test_memory_behaves_like_a_dictionary_with_history() -> None:
    check(MemoryStorage, 40, shrink=True)


def test_etcd_behaves_like_a_dictionary_with_history(etcd_server: EtcdServer) -> None:
    numbers = itertools.count()
    check(
        lambda: EtcdStorage(Settings((etcd_server.endpoint,), prefix=f"/model{next(numbers)}/")), 5, shrink=False
    )  # a hanging failure would be repeated endlessly
