from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import dig, name_of, uid_of
from controller.reconcilers.upgrades.workload_update_memory import REMEMBERED, Memory
from controller.reconcilers.upgrades.workload_update_plan import LONGEST_PAUSE_SECONDS
from tests.unit.controller.reconcilers.upgrades.test_workload_update_plan import NOW, World


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(clock: Clock) -> Memory:
    return Memory(clock)


def made(world: World, machine: str, phase: str, created: float = 10_000, *, ours: bool = True, **status: Any) -> dict[str, Any]:
    world.migrate(machine, phase, created, ours=ours, **status)
    found: dict[str, Any] = world.migrations.pop()
    found["metadata"]["uid"] = f"uid-{machine}-{created:g}"
    return found


def moved(world: World, memory: Memory) -> list[str]:
    world.migrations = list(memory.with_forgotten(world.migrations))
    return world.moved()


def test_deleted_failed_migration_still_causes_a_pause(memory: Memory) -> None:
    world = World()
    world.put("a")
    failed = made(world, "a", "Failed", endTime=times.to_rfc3339(NOW - timedelta(seconds=30)))
    memory.note(None, made(world, "a", "Running"))
    memory.note(None, failed)
    memory.note(failed, None)
    assert moved(world, memory) == []
    assert [dig(each, "status", "phase") for each in world.migrations] == ["Failed"]


def test_migration_deleted_before_its_end_counts_as_cancelled(memory: Memory, clock: Clock) -> None:
    world = World()
    world.put("a")
    running = made(world, "a", "Running")
    memory.note(None, running)
    memory.note(running, None)
    assert moved(world, memory) == []
    (cancelled,) = world.migrations
    assert (cancelled["status"]["phase"], cancelled["status"]["endTime"]) == ("Cancelled", times.to_rfc3339(clock.at))
    cancelled["status"]["endTime"] = times.to_rfc3339(NOW - timedelta(seconds=LONGEST_PAUSE_SECONDS))
    assert world.moved() == ["a"]


def test_those_that_were_deleted_count_as_a_batch_too(memory: Memory) -> None:
    world = World(size=1)
    world.put("a")
    gone = made(world, "other", "Failed", created=5)
    memory.note(None, gone)
    memory.note(gone, None)
    assert moved(world, memory) == []


def test_removed_owner_does_not_hide_a_failed_migration(memory: Memory) -> None:
    world = World()
    world.put("a")
    failed = made(world, "a", "Failed", endTime=times.to_rfc3339(NOW))
    memory.note(None, failed)
    spoiled = {**failed, "metadata": {**failed["metadata"], "ownerReferences": []}}
    memory.note(failed, spoiled)
    world.migrations = [spoiled]
    assert moved(world, memory) == []
    assert spoiled["metadata"]["ownerReferences"] == [], "the informer's own copy is not touched"


def test_a_guest_that_was_moved_in_vain_is_not_moved_again(memory: Memory) -> None:
    world = World()
    world.put("a")
    done = made(world, "a", "Succeeded", targetPod="pod-of-a")
    memory.note(None, done)
    memory.note(done, None)
    assert moved(world, memory) == []


def test_present_migrations_are_returned_once_unchanged(memory: Memory) -> None:
    world = World()
    ours, theirs = made(world, "a", "Running"), made(world, "b", "Running", ours=False)
    for each in (ours, theirs, {**ours, "metadata": {**ours["metadata"], "uid": "x"}, "status": 7}):
        memory.note(None, each)
    assert len(memory) == 1
    assert memory.with_forgotten([ours, theirs]) == (ours, theirs)
    assert memory.with_forgotten([]) == (), "one that is not over was not deleted: it is read in a moment"


def test_forgotten_migrations_are_kept_for_a_day_and_limited(clock: Clock) -> None:
    memory, world = Memory(clock, limit=2), World()
    for number in range(3):
        memory.note(None, made(world, "a", "Failed", created=number))
    memory.note(None, made(world, "b", "Failed"))
    assert [uid_of(each) for each in memory.with_forgotten([])] == ["uid-a-2", "uid-b-10000"]
    clock.at += REMEMBERED + timedelta(seconds=1)
    memory.note(None, made(world, "c", "Failed"))
    assert [name_of(each) for each in memory.with_forgotten([])] == ["m0"]


def test_least_recently_changed_migration_is_forgotten_first(clock: Clock) -> None:
    memory, world = Memory(clock, limit=2), World()
    running = made(world, "a", "Running")
    memory.note(None, running)
    memory.note(None, made(world, "b", "Failed"))
    memory.note(running, made(world, "a", "Failed"))
    memory.note(None, made(world, "c", "Failed"))
    assert [uid_of(each) for each in memory.with_forgotten([])] == ["uid-a-10000", "uid-c-10000"]
