from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places import names
from controller.reconcilers.actions import AddOwner, DeleteObject, Requeue
from controller.reconcilers.migrations.migration_history import NEEDED_SECONDS, adopt, clean_up, owner_uid
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_vm

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def an_owner(uid: str = UID, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": "testvm", "uid": uid, **rest}


def over(
    number: int, *, phase: str = "Succeeded", owners: Any = (), evicted: bool = False, ago: float = 7200, **status: Any
) -> dict[str, Any]:
    made = a_migration(phase=phase, endTime=times.to_rfc3339(NOW - timedelta(seconds=ago)), **status)
    del made["metadata"]["finalizers"]
    created = times.to_rfc3339(NOW - timedelta(days=1) + timedelta(seconds=number))
    made["metadata"] |= {"name": f"move-{number}", "uid": f"move-{number}", "creationTimestamp": created}
    made["metadata"]["ownerReferences"] = list(owners) or [an_owner()]
    if evicted:
        made["metadata"]["labels"] = {evictions.POD_LABEL: "some-pod"}
    return made


def deleted(found: list[dict[str, Any]], kept: int = 2) -> list[str]:
    return [each["metadata"]["name"] for each in found if clean_up(each, found, kept, NOW) == (DeleteObject(),)]


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling"])
def test_the_machine_becomes_an_owner_of_its_migration(phase: str) -> None:
    assert adopt(a_migration(phase=phase), a_vm()) == (AddOwner(an_owner()),)


def test_owner_of_another_kind_is_kept() -> None:
    migration = a_migration()
    migration["metadata"]["ownerReferences"] = [an_owner("job", kind="Job"), an_owner("other", name="other")]
    assert adopt(migration, a_vm()) == (AddOwner(an_owner()),)


@pytest.mark.parametrize("bogus", [an_owner("made-up"), an_owner("")], ids=["of nobody", "without a uid"])
def test_machine_owns_a_migration_once_it_is_first_reference(bogus: dict[str, Any]) -> None:
    migration = a_migration()
    migration["metadata"]["ownerReferences"] = [bogus, an_owner()]
    assert adopt(migration, a_vm()) == (AddOwner(an_owner()),)
    migration["metadata"]["ownerReferences"] = [an_owner(), bogus]
    assert (owner_uid(migration), adopt(migration, a_vm())) == (UID, ())


def test_owners_of_another_api_group_are_no_machines() -> None:
    migration = a_migration()
    migration["metadata"]["ownerReferences"] = [an_owner("other", apiVersion="example.com/v1"), an_owner("another", apiVersion=None)]
    assert owner_uid(migration) == ""
    migration["metadata"]["ownerReferences"].append(an_owner(apiVersion="kubevirt.io/v1"))
    assert (owner_uid(migration), adopt(migration, a_vm())) == (UID, ())


@pytest.mark.parametrize(
    ("migration", "vm"),
    [
        (over(1, phase="Pending"), a_vm()),
        (a_migration(), None),
        (a_migration(), a_vm(deleting=True)),
        (a_migration(deleting=True), a_vm()),
        (a_migration(phase="PreparingTarget"), a_vm()),
        (a_migration(phase="Running"), a_vm()),
        (a_migration(phase="Failed"), a_vm()),
        (a_migration(), {**a_vm(), "metadata": {**a_vm()["metadata"], "name": "another"}}),
        (a_migration(), {**a_vm(), "metadata": {**a_vm()["metadata"], "uid": ""}}),
    ],
    ids=["it is", "no machine", "that goes", "cancelled", "handler's", "running", "over", "another machine", "nobody"],
)
def test_only_a_live_machine_adopts_its_unfinished_migration(migration: dict[str, Any], vm: dict[str, Any] | None) -> None:
    assert adopt(migration, vm) == ()


def test_the_newest_of_a_machine_are_kept_however_they_ended() -> None:
    found = [over(1), over(2, phase="Failed"), over(3), over(4, phase="Cancelled")]
    assert deleted(found) == ["move-1", "move-2"]
    assert deleted(found, kept=1) == ["move-1", "move-2", "move-3"]
    assert deleted(found, kept=4) == []


def test_migrations_of_one_second_are_ordered_by_their_end() -> None:
    first, second, third = over(1, ago=30), over(1, ago=20), over(1, ago=20)
    second["metadata"]["name"], third["metadata"]["name"] = "b", "a"
    assert deleted([first, second, third], kept=1) == ["move-1", "a"]


def test_unfinished_ones_are_neither_deleted_nor_counted() -> None:
    found = [over(1), over(2), *(over(number, phase="Running") for number in (3, 4, 5)), over(6, phase="")]
    assert deleted(found, kept=1) == ["move-1"]


def test_migration_that_still_holds_a_pod_is_counted_and_kept() -> None:
    held, newer = over(2), over(3)
    held["metadata"]["finalizers"] = [names.MIGRATION_FINALIZER]
    assert clean_up(held, [held, newer], 1, NOW) == ()
    assert deleted([over(1), held], kept=1) == ["move-1"]


def test_migration_under_deletion_is_not_deleted_again() -> None:
    going = over(1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert clean_up(going, [going, over(2)], 1, NOW) == ()


def test_machines_do_not_mix_under_one_name() -> None:
    earlier = [over(number, owners=[an_owner("earlier")]) for number in (1, 2, 3)]
    orphans = [over(number, owners=[an_owner(kind="Job")]) for number in (4, 5, 6)]
    assert deleted([*earlier, *orphans, *(over(number) for number in (7, 8, 9))]) == ["move-1", "move-4", "move-7"]


def test_eviction_migrations_are_kept_while_their_ends_count() -> None:
    recent, newer = over(1, evicted=True, ago=NEEDED_SECONDS - 1), [over(2), over(3)]
    assert clean_up(recent, [recent, *newer], 2, NOW) == (Requeue(1.0),)
    past = over(1, evicted=True, ago=NEEDED_SECONDS)
    assert clean_up(past, [past, *newer], 2, NOW) == (DeleteObject(),)
    assert clean_up(recent, [recent, newer[0]], 2, NOW) == ()


def test_migration_without_end_time_counts_from_creation() -> None:
    old, newer = over(1, evicted=True), over(2)
    del old["status"]["endTime"]
    assert clean_up(old, [old, newer], 1, NOW) == (DeleteObject(),)
    old["metadata"]["creationTimestamp"] = times.to_rfc3339(NOW - timedelta(seconds=NEEDED_SECONDS - 5))
    newer["metadata"]["creationTimestamp"] = times.to_rfc3339(NOW)
    assert clean_up(old, [old, newer], 1, NOW) == (Requeue(5.0),)


@pytest.mark.parametrize("wrong", [None, 5, "x", {"a": 1}, [None, 5, "x", {"kind": "VirtualMachine", "name": "testvm"}]])
def test_malformed_owners_of_others_are_ignored(wrong: Any) -> None:
    other, own = over(2), over(1)
    other["metadata"] |= {"ownerReferences": wrong, "creationTimestamp": wrong}
    other["status"]["endTime"] = wrong
    assert clean_up(own, [own, other], 1, NOW) == ()
