from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from apiserver.apis.meta.errors import Conflict, InternalError, RequestEntityTooLarge, ServiceUnavailable, Timeout
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.schema import Kind
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import codec
from apiserver.registry.generic.codec import lock_key
from apiserver.registry.generic.strategy import Strategy
from apiserver.registry.generic.transactions import LockTaken, Overtaken, Transactions, Unreadable, reading
from storage.memory import MAX_COMMIT_BYTES
from storage.port import Condition, Delete, Entry, Put, RevisionMismatch, Unavailable
from tests.fakes.storage import UnreliableStorage

ROOT = "/registry"
LEASES = Resource("example.com", "v1", "leases", "Lease")
A, B = (f"{ROOT}/example.com/leases/ns/{name}" for name in "ab")


class Holding(Strategy):
    resource = LEASES
    singular = "lease"
    model = Kind

    def locks(self, obj: Object) -> frozenset[str]:
        return frozenset(each for each in obj["spec"] if "=" not in each)

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        return frozenset((lock, group) for each in obj["spec"] if "=" in each for lock, group in [each.split("=")])


class Wishing(Holding):
    """Objects' locks; those with a question mark are tentative."""

    def locks(self, obj: Object) -> frozenset[str]:
        return frozenset(each.lstrip("?") for each in super().locks(obj))

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        return frozenset((lock.lstrip("?"), group) for lock, group in super().shared_locks(obj))

    def tentative_locks(self, obj: Object) -> frozenset[str]:
        return frozenset(each[1:].partition("=")[0] for each in obj["spec"] if each.startswith("?"))

    def without_lock(self, obj: Object, lock: str) -> Object:
        return {**obj, "spec": [each for each in obj["spec"] if each.partition("=")[0] != f"?{lock}"]}


class Worded(Holding):
    def __init__(self) -> None:
        self.told: list[object] = []

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        self.told.extend((obj["metadata"]["name"], lock, holder, held_by and held_by["metadata"]["name"]))
        return "it is held"


class Interrupted(UnreliableStorage):
    def __init__(self) -> None:
        super().__init__()
        self.first: list[Put | Delete] = []
        self.given_up: list[Delete] = []
        self.commits = 0
        self.read: dict[str, bytes | Unavailable | None] = {}

    async def get(self, key: str) -> Entry | None:
        if key not in self.read:
            return await super().get(key)
        found = self.read[key]
        if isinstance(found, Unavailable):
            raise found
        return Entry(key, found, 1, 1) if found is not None else None

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        self.commits += 1
        if self.first:
            first, self.first = self.first, []
            await super().commit([], first)
        try:
            return await super().commit(conditions, writes)
        except RevisionMismatch as mismatch:
            if not self.given_up:
                raise
            given_up, self.given_up = self.given_up, []
            await super().commit([], given_up)
            raise RevisionMismatch(mismatch.key, None) from None


class World:
    def __init__(self, strategy: Strategy | None = None) -> None:
        self.storage = Interrupted()
        self.transactions = Transactions(self.storage, strategy or Holding(), ROOT)

    async def create(self, key: str, *locks: str, repeatable: bool = True, value: bytes = b"created") -> Item:
        obj = lease(key, *locks)
        revision = await self.transactions.create(key, obj, value, repeatable=repeatable)
        return Item(key, revision, obj, value)

    async def wish(self, key: str, *locks: str) -> Item:
        """Create an object that a Wishing can read back."""
        return await self.create(key, *locks, value=codec.encode(Wishing(), lease(key, *locks)))

    async def replace(self, item: Item, *locks: str, repeatable: bool = True) -> Item:
        obj = lease(item.key, *locks)
        revision = await self.transactions.replace(item, obj, b"replaced", repeatable=repeatable)
        return Item(item.key, revision, obj, b"replaced")

    async def everything(self) -> dict[str, bytes]:
        return {each.key: each.value for each in (await self.storage.range("")).entries}


async def found(world: World, key: str) -> Entry:
    entry = await world.storage.get(key)
    assert entry is not None
    return entry


def lease(key: str, *locks: str) -> Object:
    return {"metadata": {"name": key.rpartition("/")[2], "namespace": "ns"}, "spec": list(locks)}


def key_of(lock: str) -> str:
    return lock_key(ROOT, LEASES, lock)


@pytest.fixture
def world() -> World:
    return World()


async def test_an_object_and_its_locks_come_change_and_go_together(world: World) -> None:
    item = await world.create(A, "x/1", "x/2")
    assert await world.everything() == {A: b"created", key_of("x/1"): A.encode(), key_of("x/2"): A.encode()}

    item = await world.replace(item, "x/2", "x/3")
    assert await world.everything() == {A: b"replaced", key_of("x/2"): A.encode(), key_of("x/3"): A.encode()}

    revision = await world.transactions.remove(item)
    assert revision > item.revision
    assert await world.everything() == {}


async def test_update_with_unchanged_locks_writes_the_object_alone(world: World) -> None:
    item = await world.create(A, "x/1")
    lock = await world.storage.get(key_of("x/1"))

    await world.replace(item, "x/1")

    assert await world.storage.get(key_of("x/1")) == lock


async def test_a_removal_takes_only_what_was_read(world: World) -> None:
    """A finalizer or lock written between read and removal must not be lost."""
    old = await world.create(A, "x/1")
    newer = await world.replace(old, "x/1")

    with pytest.raises(Overtaken) as caught:
        await world.transactions.remove(old)

    assert caught.value.current == Entry(A, b"replaced", old.revision, newer.revision)
    assert await world.everything() == {A: b"replaced", key_of("x/1"): A.encode()}


async def test_removed_or_recreated_objects_are_not_removed_again(world: World) -> None:
    old = await world.create(A)
    await world.transactions.remove(old)
    with pytest.raises(Overtaken) as caught:
        await world.transactions.remove(old)
    assert caught.value.current is None

    await world.create(A)
    with pytest.raises(Overtaken):
        await world.transactions.remove(old)
    assert await world.everything() == {A: b"created"}


async def test_a_replacement_takes_the_place_only_of_what_was_read(world: World) -> None:
    old = await world.create(A, "x/1")
    newer = await world.replace(old, "x/1")

    with pytest.raises(Overtaken) as caught:
        await world.replace(old, "x/2")
    assert caught.value.current is not None
    assert caught.value.current.mod_revision == newer.revision

    await world.transactions.remove(newer)
    with pytest.raises(Overtaken) as caught:
        await world.replace(newer)
    assert caught.value.current is None
    assert await world.everything() == {}


async def test_a_key_is_taken_once(world: World) -> None:
    item = await world.create(A)
    with pytest.raises(Overtaken) as caught:
        await world.create(A, "x/1")
    assert caught.value.current == Entry(A, b"created", item.revision, item.revision)
    assert await world.everything() == {A: b"created"}


@pytest.mark.parametrize(("holds", "wants"), [(A, B), (B, A)], ids=["a holds it", "b holds it"])
async def test_a_lock_that_is_held_is_a_conflict_that_names_its_holder(world: World, holds: str, wants: str) -> None:
    holder = await world.create(holds, "x/1")
    other = await world.create(wants)
    for attempt in (lambda: world.replace(other, "x/1"), lambda: world.transactions.check_locks(wants, None, lease(wants, "x/1"))):
        with pytest.raises(Conflict) as caught:
            await attempt()
        refused = f'Operation cannot be fulfilled on leases.example.com "{wants[-1]}": x/1 is already held by ns/{holds[-1]}'
        assert str(caught.value) == refused
    assert await world.everything() == {A: b"created", B: b"created", key_of("x/1"): holds.encode()}

    await world.transactions.remove(holder)
    await world.transactions.check_locks(wants, None, lease(wants, "x/1"))
    await world.replace(other, "x/1")


async def test_locks_conflict_when_group_key_sorts_before_claims() -> None:
    """The store distinguishes a held lock from a changed object by the key."""
    early = Resource("a.example.com", "v1", "leases", "Lease")
    strategy = Holding()
    strategy.resource = early
    transactions = Transactions(Interrupted(), strategy, ROOT)
    a, b = (f"{ROOT}/a.example.com/leases/ns/{name}" for name in "ab")
    assert a < lock_key(ROOT, early, "x/1")

    await transactions.create(a, lease(a, "x/1"), b"created", repeatable=True)

    with pytest.raises(LockTaken, match="x/1 is already held by ns/a"):
        await transactions.create(b, lease(b, "x/1"), b"created", repeatable=True)
    with pytest.raises(Overtaken):
        await transactions.create(a, lease(a), b"created", repeatable=True)


@pytest.mark.parametrize(
    ("old", "new", "holder", "refused"),
    [
        ((), ("x/1",), B, True),
        ((), ("x/1",), A, False),
        ((), ("x/1",), None, False),
        (("x/1",), ("x/1",), A, False),
        (("x/1",), ("x/1",), B, False),
        (("x/1",), (), B, False),
        (("x/1",), ("x/2",), B, False),
    ],
    ids=["taken", "its own", "free", "kept", "kept, though another's", "given up, though another's", "changed, though another's"],
)
async def test_dry_run_refuses_exactly_what_the_write_refuses(
    world: World, old: tuple[str, ...], new: tuple[str, ...], holder: str | None, *, refused: bool
) -> None:
    """Locks that the object already holds never conflict, even if storage names another holder."""
    stored = await world.create(A)
    item = Item(A, stored.revision, lease(A, *old), b"created")
    if holder is not None:
        await world.storage.commit([], [Put(B, b"there"), Put(key_of("x/1"), holder.encode())])
    for attempt in (lambda: world.transactions.check_locks(A, item.object, lease(A, *new)), lambda: world.replace(item, *new)):
        if refused:
            with pytest.raises(LockTaken, match="x/1 is already held by ns/b"):
                await attempt()
        else:
            await attempt()


async def test_ones_own_locks_are_in_nobodys_way(world: World) -> None:
    old = await world.create(A, "x/1")
    await world.transactions.check_locks(A, old.object, lease(A, "x/1"))
    await world.transactions.check_locks(A, None, lease(A, "x/1"))


async def test_unrecorded_lock_of_the_object_itself_is_taken_over(world: World) -> None:
    await world.create(A, "x/1")
    entry = await world.storage.get(A)
    assert entry is not None
    unaware = Item(A, entry.mod_revision, lease(A), b"created")

    await world.replace(unaware, "x/1")

    assert await world.everything() == {A: b"replaced", key_of("x/1"): A.encode()}


@pytest.mark.parametrize(
    ("change", "gets_it"),
    [(Put(key_of("x/1"), B.encode()), False), (Put(key_of("x/1"), A.encode()), True), (Delete(key_of("x/1")), True)],
    ids=["another's", "written again", "gone"],
)
async def test_a_leftover_lock_taken_meanwhile_stays_with_its_taker(world: World, change: Put | Delete, *, gets_it: bool) -> None:
    old = await world.create(A)
    await world.create(B)
    await world.storage.commit([], [Put(key_of("x/1"), A.encode())])
    commit, changes = world.storage.commit, [change]

    async def and_then_it_changes(conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        try:
            return await commit(conditions, writes)
        except RevisionMismatch:
            if changes:
                await commit([], [changes.pop()])
            raise

    world.storage.commit = and_then_it_changes  # type: ignore[method-assign]  # the store of this test alone
    if gets_it:
        await world.replace(old, "x/1")
    else:
        with pytest.raises(LockTaken, match="x/1 is already held by ns/b"):
            await world.replace(old, "x/1")
    assert (await found(world, key_of("x/1"))).value == (A if gets_it else B).encode()


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (b'{"metadata":{"name":"a"},"apiVersion":"example.com/v1","kind":"Lease","spec":["x/1"]}', "a"),
        (b"created", None),
        (None, None),
        (Unavailable("down"), None),
    ],
    ids=["readable", "unreadable", "gone", "storage away"],
)
async def test_lock_holder_is_passed_to_the_refusals_wording(stored: bytes | Unavailable | None, found: str | None) -> None:
    world = World(strategy := Worded())
    await world.create(A, "x/1")
    world.storage.read = {A: stored}
    with pytest.raises(LockTaken) as caught:
        await world.create(B, "x/1")
    assert strategy.told == ["b", "x/1", "ns/a", found]
    assert (caught.value.why, caught.value.details.name) == ("it is held", "b")
    assert str(caught.value) == 'Operation cannot be fulfilled on leases.example.com "b": it is held'


async def test_refusal_names_new_objects_as_given_and_old_as_stored(world: World) -> None:
    await world.create(A, "x/1")
    new = lease(B, "x/1")
    new["metadata"]["generateName"] = "b-"
    with pytest.raises(LockTaken, match='"b-": '):
        await world.transactions.create(B, new, b"created", repeatable=False)
    with pytest.raises(LockTaken, match='"b-": '):
        await world.transactions.check_locks(B, None, new)
    old = await world.create(B)
    with pytest.raises(LockTaken, match='"b": '):
        await world.transactions.replace(old, new, b"replaced", repeatable=True)
    with pytest.raises(LockTaken, match='"b": '):
        await world.transactions.check_locks(B, old.object, new)


async def test_a_lock_that_is_given_up_in_this_moment_is_taken(world: World) -> None:
    holder, other = await world.create(A, "x/1"), await world.create(B)
    before = world.storage.commits
    world.storage.given_up = [Delete(holder.key), Delete(key_of("x/1"))]
    await world.replace(other, "x/1")
    assert world.storage.commits == before + 2
    assert await world.everything() == {B: b"replaced", key_of("x/1"): B.encode()}


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("x/1", "x/1", False),
        ("x/1", "x/1=reads", False),
        ("x/1=reads", "x/1", False),
        ("x/1=reads", "x/1=reads", True),
        ("x/1=reads", "x/1=shares", False),
        ("x/1=shares", "x/1=reads", False),
        ("x/1=reads", "x/10", True),
        ("x/1=reads", "x/1-0=shares", True),
        ("x/1=reads", "x/1=reads0", False),
    ],
)
async def test_lock_is_shared_within_its_group_only(world: World, first: str, second: str, *, together: bool) -> None:
    holder, other = await world.create(A, first), await world.create(B)
    for attempt in (lambda: world.transactions.check_locks(B, other.object, lease(B, second)), lambda: world.replace(other, second)):
        if together:
            await attempt()
        else:
            with pytest.raises(LockTaken, match="x/1 is already held by ns/a"):
                await attempt()
    if not together:
        await world.transactions.remove(holder)
        await world.replace(other, second)
        await world.transactions.remove(Item(B, (await found(world, B)).mod_revision, lease(B, second), b""))
        assert await world.everything() == {}


async def test_of_several_who_share_a_lock_the_last_one_gives_it_up(world: World) -> None:
    readers = [await world.create(key, "x/1=reads") for key in (A, f"{A}2", f"{A}3")]
    other = await world.create(B)
    for reader in readers:
        with pytest.raises(LockTaken):
            await world.replace(other, "x/1")
        await world.transactions.remove(reader)
    await world.replace(other, "x/1")
    assert await world.everything() == {B: b"replaced", key_of("x/1"): B.encode()}


async def test_only_recently_written_objects_skip_the_lock_read(world: World) -> None:
    world.transactions = Transactions(world.storage, Holding(), ROOT, max_complete=2)
    items = {lock: await world.create(f"{A}{number}", lock) for number, lock in enumerate(("x/0", "x/1", "x/2"))}
    items["x/0"] = await world.replace(items["x/0"], "x/0")
    await world.storage.commit([], [Delete(key_of(lock)) for lock in items])
    for lock in ("x/2", "x/0", "x/1"):
        await world.replace(items[lock], lock)
    assert {key_of(lock) for lock in items} & {*await world.everything()} == {key_of("x/1")}


async def test_concurrent_lock_requests_have_a_single_winner(world: World) -> None:
    for wanted in (("x/1", "x/1"), ("x/1", "x/1=reads"), ("x/1=reads", "x/1=shares")):
        items = [await world.create(A), await world.create(B)]
        refused: list[str] = []

        async def attempt(item: Item, lock: str, refused: list[str] = refused) -> None:
            try:
                await world.replace(item, lock)
            except LockTaken:
                refused.append(item.key)

        async with asyncio.TaskGroup() as tasks:
            for item, lock in zip(items, wanted, strict=True):
                tasks.create_task(attempt(item, lock))
        assert len(refused) == 1
        await world.storage.commit([], [Delete(key) for key in await world.everything()])


@pytest.mark.parametrize("left", ["x/1", "x/1=reads"])
@pytest.mark.parametrize("wanted", ["x/1", "x/1=shares"])
@pytest.mark.parametrize("stored", [b'{"metadata":{"name":"a"},"apiVersion":"example.com/v1","kind":"Lease","spec":["x/2"]}', None])
async def test_lock_abandoned_by_an_older_version_is_taken(world: World, left: str, wanted: str, stored: bytes | None) -> None:
    await world.create(A, left)
    await world.storage.commit([], [Put(A, stored) if stored is not None else Delete(A)])
    await world.transactions.check_locks(B, None, lease(B, wanted))
    await world.create(B, wanted)
    kept = await world.everything()
    assert B.encode() in kept.values()
    assert [key for key, value in kept.items() if value == A.encode()] == []


@pytest.mark.parametrize("left", ["x/1", "x/1=reads"])
async def test_lock_is_not_taken_when_its_holder_reclaims_it(world: World, left: str) -> None:
    holder = await world.create(A, left)
    locks = await world.everything()
    await world.storage.commit([], [Delete(A)])
    get = world.storage.get

    async def and_then_it_is_back(key: str) -> Entry | None:
        seen = await get(key)
        if key == A and seen is None:
            await world.storage.commit([], [Put(A, locks[A])])
        return seen

    world.storage.get = and_then_it_is_back  # type: ignore[method-assign]  # the store of this test alone
    with pytest.raises(LockTaken):
        await world.create(B, "x/1")
    assert await world.everything() == locks
    assert holder.key == A


@pytest.fixture
def wishing() -> World:
    return World(Wishing())


async def test_tentative_lock_is_taken_kept_and_released(wishing: World) -> None:
    item = await wishing.wish(A, "?x/1", "?x/2=reads")
    assert {*await wishing.everything()} == {A, key_of("x/1"), key_of("x/2/reads/ns/a")}
    item = await wishing.replace(item, "x/1", "?x/2=reads")
    assert {*await wishing.everything()} == {A, key_of("x/1"), key_of("x/2/reads/ns/a")}
    item = await wishing.replace(item, "x/1")
    assert {*await wishing.everything()} == {A, key_of("x/1")}
    await wishing.transactions.remove(item)
    assert await wishing.everything() == {}


@pytest.mark.parametrize("held", ["x/1", "?x/1", "x/1=reads", "?x/1=reads"])
@pytest.mark.parametrize("wanted", ["x/1", "?x/1", "x/1=shares", "?x/1=shares"])
async def test_only_a_needed_lock_ends_a_tentative_one(wishing: World, held: str, wanted: str) -> None:
    await wishing.wish(A, held, "x/2")
    before, gets_it = await wishing.everything(), held.startswith("?") and not wanted.startswith("?")
    if not gets_it:
        for attempt in (lambda: wishing.transactions.check_locks(B, None, lease(B, wanted)), lambda: wishing.wish(B, wanted)):
            with pytest.raises(LockTaken, match="x/1 is already held by ns/a") as caught:
                await attempt()
            assert caught.value.lock == "x/1"
        assert await wishing.everything() == before
        return
    await wishing.transactions.check_locks(B, None, lease(B, wanted))
    assert await wishing.everything() == before
    await wishing.wish(B, wanted)
    after = await wishing.everything()
    assert codec.decode(Wishing(), await found(wishing, A)).object["spec"] == ["x/2"]
    assert [key for key in after if after[key] == A.encode()] == [key_of("x/2")]


@pytest.mark.parametrize("new", [(), ("x/1",), None], ids=["released", "needed", "removed"])
@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_tentative_lock_of_another_holder_is_not_touched(
    wishing: World, caplog: pytest.LogCaptureFixture, new: tuple[str, ...] | None, *, is_at_once: bool, is_restarted: bool
) -> None:
    item = await wishing.wish(A, "?x/1")
    if is_restarted:
        wishing.transactions = Transactions(wishing.storage, Wishing(), ROOT)
    other = [Put(B, codec.encode(Wishing(), lease(B, "x/1"))), Put(key_of("x/1"), B.encode())]
    if is_at_once:
        wishing.storage.first = [*other]
    else:
        await wishing.storage.commit([], other)
    refusal = Overtaken if is_at_once else LockTaken
    if is_at_once or new == ("x/1",):
        with pytest.raises(refusal) as caught:
            await (wishing.transactions.remove(item) if new is None else wishing.replace(item, *new))
        assert getattr(caught.value, "current", None) == (await found(wishing, A) if is_at_once else None)
    else:
        await (wishing.transactions.remove(item) if new is None else wishing.replace(item, *new))
    assert (await found(wishing, key_of("x/1"))).value == B.encode()
    assert not caplog.records


@pytest.mark.parametrize("old", ["?x/1", "x/1"])
async def test_lock_that_stays_or_becomes_tentative_is_not_checked(wishing: World, old: str) -> None:
    item = await wishing.wish(A, old)
    before, wishing.storage.first = wishing.storage.commits, [Put(key_of("x/1"), B.encode())]
    await wishing.replace(item, "?x/1")
    assert wishing.storage.commits == before + 1
    assert (await found(wishing, key_of("x/1"))).value == B.encode()


async def test_missing_tentative_lock_is_taken_when_needed(wishing: World) -> None:
    item = await wishing.wish(A, "?x/1")
    await wishing.storage.commit([], [Delete(key_of("x/1"))])
    wishing.transactions = Transactions(wishing.storage, Wishing(), ROOT)
    await wishing.replace(item, "x/1")
    assert (await found(wishing, key_of("x/1"))).value == A.encode()


@pytest.mark.parametrize("group", ["example.com", "a.example.com"])
async def test_needed_lock_that_goes_at_once_overtakes_the_write(group: str) -> None:
    storage, strategy, key = Interrupted(), Wishing(), f"{ROOT}/{group}/leases/ns/a"
    strategy.resource = Resource(group, "v1", "leases", "Lease")
    transactions, obj = Transactions(storage, strategy, ROOT), lease(key, "?x/1")
    item = Item(key, await transactions.create(key, obj, b"created", repeatable=True), obj, b"created")
    storage.first = [Delete(lock_key(ROOT, strategy.resource, "x/1"))]
    with pytest.raises(Overtaken) as caught:
        await transactions.replace(item, lease(key, "x/1"), b"replaced", repeatable=True)
    assert caught.value.current == Entry(key, b"created", item.revision, item.revision)


async def test_tentative_lock_becomes_a_shared_one(wishing: World) -> None:
    await wishing.replace(await wishing.wish(A, "?x/1"), "x/1=reads")
    assert {*await wishing.everything()} == {A, key_of("x/1/reads/ns/a")}


@pytest.mark.parametrize("taken", ["x/0", "x/2"])
async def test_lock_taken_next_to_a_kept_one_is_named(wishing: World, taken: str) -> None:
    item = await wishing.wish(A, "?x/1")
    await wishing.wish(B, taken)
    with pytest.raises(LockTaken) as caught:
        await wishing.replace(item, "x/1", taken)
    assert caught.value.lock == taken


async def test_missing_lock_is_taken_once_its_holder_is_gone(world: World) -> None:
    """An older version wrote the object without its lock."""
    stored, other = await world.create(A), await world.create(B, "x/1")
    item = await world.replace(Item(A, stored.revision, lease(A, "x/1"), b"created"), "x/1")
    assert (await found(world, key_of("x/1"))).value == B.encode()
    await world.transactions.remove(other)
    item = await world.replace(item, "x/1")
    assert (await found(world, key_of("x/1"))).value == A.encode()
    await world.storage.commit([], [Delete(key_of("x/1"))])
    world.transactions = Transactions(world.storage, Holding(), ROOT)
    await world.replace(item)
    assert await world.everything() == {A: b"replaced"}


async def test_abandoned_lock_stays_when_storage_cannot_remove_it(world: World) -> None:
    await world.storage.commit([], [Put(key_of("x/1"), A.encode())])
    commit, outages = world.storage.commit, [Unavailable("down")]

    async def not_at_first(conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        if writes == [Delete(key_of("x/1"))] and outages:
            raise outages.pop()
        return await commit(conditions, writes)

    world.storage.commit = not_at_first  # type: ignore[method-assign]  # the store of this test alone
    with pytest.raises(LockTaken, match="x/1 is already held by ns/a"):
        await world.create(B, "x/1")
    await world.create(B, "x/1")


async def test_a_tentative_lock_of_the_largest_object_is_ended(wishing: World) -> None:
    item = await wishing.wish(A, "?x/1")
    room = MAX_COMMIT_BYTES - len(A) - len(codec.encode(Wishing(), lease(A, "?x/1", "")))
    obj = lease(A, "?x/1", "?" + "y" * (room - 1))
    await wishing.storage.commit([], [Put(A, value := codec.encode(Wishing(), obj))])
    assert len(A) + len(value) == MAX_COMMIT_BYTES
    await wishing.wish(B, "x/1")
    assert ((await found(wishing, A)).value, (await found(wishing, key_of("x/1"))).value) == (value, B.encode())
    item = Item(A, (await found(wishing, A)).mod_revision, item.object, value)
    await wishing.transactions.remove(item)
    assert {*await wishing.everything()} == {B, key_of("x/1")}


async def test_lock_stays_with_a_holder_whose_locks_are_unreadable(world: World) -> None:
    await world.create(A, "x/1")
    await world.storage.commit([], [Put(A, b'{"metadata":{"name":"a"},"apiVersion":"example.com/v1","kind":"Lease","spec":5}')])
    with pytest.raises(LockTaken, match="x/1 is already held by ns/a"):
        await world.create(B, "x/1")


@pytest.mark.parametrize(("becomes", "gets_it"), [("?x/1", True), ("x/1", False)])
async def test_tentative_holder_that_changes_at_once_is_read_again(wishing: World, becomes: str, *, gets_it: bool) -> None:
    await wishing.wish(A, "?x/1")
    get, changes = wishing.storage.get, [Put(A, codec.encode(Wishing(), lease(A, becomes, "x/2")))]

    async def and_then_it_changes(key: str) -> Entry | None:
        seen = await get(key)
        if key == A and changes:
            await wishing.storage.commit([], [changes.pop()])
        return seen

    wishing.storage.get = and_then_it_changes  # type: ignore[method-assign]  # the store of this test alone
    if gets_it:
        await wishing.wish(B, "x/1")
    else:
        with pytest.raises(LockTaken):
            await wishing.wish(B, "x/1")
    assert codec.decode(Wishing(), await found(wishing, A)).object["spec"] == (["x/2"] if gets_it else ["x/1", "x/2"])


async def test_undecodable_object_is_removed_only_as_read(world: World) -> None:
    await world.storage.commit([], [Put(A, b"{")])
    seen = await world.storage.get(A)
    assert seen is not None
    world.storage.first = [Put(A, b"{}")]
    with pytest.raises(Conflict, match="was written at the same time; read it again"):
        await world.transactions.remove_unread(seen)
    assert await world.everything() == {A: b"{}"}

    seen = await world.storage.get(A)
    assert seen is not None
    await world.transactions.remove_unread(seen)
    assert await world.everything() == {}


@pytest.mark.parametrize(("repeatable", "after"), [(True, 1), (False, 0)])
async def test_write_of_unknown_outcome_says_if_it_is_repeatable(world: World, *, repeatable: bool, after: int) -> None:
    item = await world.create(A)
    world.storage.is_out = True
    for attempt in (world.create(B, repeatable=repeatable), world.replace(item, repeatable=repeatable)):
        with pytest.raises(Timeout) as caught:
            await attempt
        assert "etcd did not respond; the write may have succeeded" in str(caught.value)
        assert caught.value.details.retry_after_seconds == after
        assert "the store is out" not in str(caught.value)  # it may contain addresses
    with pytest.raises(Timeout) as caught:
        await world.transactions.remove(item)
    assert caught.value.details.retry_after_seconds == 1
    assert 'write leases.example.com "a" in namespace "ns"' in str(caught.value)


async def test_reads_without_storage_may_be_repeated(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.storage.is_out = True
    for attempt, what in (
        (world.transactions.check_locks(B, None, lease(B, "x/1")), "read a lock"),
        (world.transactions.remove_unread(Entry(A, b"{", 1, 1)), "deleting an object that cannot be decoded"),
    ):
        with pytest.raises(ServiceUnavailable, match=f"{what}: storage is not available") as caught:
            await attempt
        assert caught.value.details.retry_after_seconds == 1
    assert [vars(each)["error"] for each in caplog.records] == ["the store is out"] * 2
    with pytest.raises(ServiceUnavailable, match="look: storage is not available"), reading("look"):
        raise Unavailable("away")


async def test_an_object_that_storage_does_not_take_is_too_large(world: World) -> None:
    with pytest.raises(RequestEntityTooLarge, match=r'leases\.example\.com "a" in namespace "ns" is too large for storage'):
        await world.transactions.create(A, lease(A), b"x" * (MAX_COMMIT_BYTES + 1), repeatable=True)
    assert await world.everything() == {}


def test_undecodable_object_is_named_with_its_remedy() -> None:
    entry = Entry(A, b"{", 1, 1)
    error = Unreadable(LEASES, entry, ValueError("x" * 1000))
    assert isinstance(error, InternalError)
    assert error.entry is entry
    assert str(error).startswith(
        f'leases.example.com "a" is stored, but cannot be decoded: ValueError: {"x" * 256}; restore it in the storage'
    )
