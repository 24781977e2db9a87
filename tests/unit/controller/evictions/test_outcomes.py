"""The record of evacuations survives their Migrations, for an hour, for a limited number of VMs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from controller.evictions.outcomes import MAX_ENDS, MAX_MESSAGE, Ended, History, Outcomes
from controller.reconcilers.actions import WriteStatus
from controller.reconcilers.migrations import ended_drains
from tests.unit.controller.evictions.test_eviction_plan import NOW, a_running_vm, evacuation
from tests.unit.controller.reconcilers.builders import a_vm


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(clock: Clock) -> Outcomes:
    return Outcomes(clock)


def deleting(migration: dict[str, Any]) -> dict[str, Any]:
    return {**migration, "metadata": {**migration["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def test_failure_counts_from_now_and_later_changes_add_nothing(known: Outcomes, clock: Clock) -> None:
    running, failed = evacuation(phase="Running"), evacuation(endTime="2020-01-01T00:00:00Z", message="no\nnode")
    known.note(None, running)
    known.note(running, {**running, "metadata": {**running["metadata"], "annotations": {}}})
    assert known.of(a_running_vm()) == History()
    known.note(running, failed)
    expected = History((Ended("1", NOW, "no | node"),))
    assert known.of(a_running_vm()) == expected
    clock.at += timedelta(seconds=9)
    known.note(failed, deleting(failed))
    known.note(deleting(failed), None)
    assert known.of(a_running_vm()) == expected


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Running"])
def test_deleted_unfinished_migration_counts_as_cancelled(known: Outcomes, phase: str) -> None:
    known.note(evacuation(phase=phase), None)
    assert known.of(a_running_vm()) == History((Ended("1", NOW, "it was deleted", is_cancelled=True),))


def test_migration_ended_with_its_drain_causes_no_pause(known: Outcomes) -> None:
    (write, _) = ended_drains.end(evacuation(phase="Pending"), NOW)
    assert isinstance(write, WriteStatus)
    known.note(evacuation(phase="Pending"), {**evacuation(), "status": write.status})
    assert known.of(a_running_vm()) == History()
    known.note(evacuation(2, phase="Pending"), evacuation(2))
    assert len(known.of(a_running_vm()).in_vain) == 1


@pytest.mark.parametrize("phase", ["Failed", "Cancelled"])
def test_migration_ending_under_deletion_counts_as_cancelled(known: Outcomes, phase: str) -> None:
    ended = deleting(evacuation(phase=phase, message="why"))
    known.note(deleting(evacuation(phase="Running")), ended)
    known.note(ended, None)
    assert known.of(a_running_vm()) == History((Ended("1", NOW, "why", is_cancelled=True),))


def test_known_end_counts_from_its_time_but_not_in_the_future(known: Outcomes) -> None:
    for number, end in enumerate(("2026-01-01T00:00:30Z", "2026-01-01T00:00:10Z", "2027-01-01T00:00:00Z", "never", None), 1):
        known.note(None, evacuation(number, endTime=end))
    ends = [(each.name, each.at) for each in known.of(a_running_vm()).in_vain]
    assert ends[:2] == [("2", NOW - timedelta(seconds=50)), ("1", NOW - timedelta(seconds=30))]
    assert ends[2:] == [("3", NOW), ("4", NOW), ("5", NOW)]


def test_successful_move_resets_the_history(known: Outcomes, clock: Clock) -> None:
    known.note(evacuation(phase="Running"), evacuation())
    clock.at += timedelta(seconds=60)
    running, moved = evacuation(2, phase="Running"), evacuation(2, phase="Succeeded")
    known.note(running, moved)
    assert known.of(a_running_vm()) == History((), clock.at)
    known.note(moved, None)
    clock.at += timedelta(seconds=60)
    known.note(evacuation(3, phase="Running"), evacuation(3))
    assert known.of(a_running_vm()) == History((Ended("3", clock.at),), clock.at - timedelta(seconds=60))
    known.note(None, evacuation(4, phase="Succeeded", endTime="2025-12-31T23:59:00Z"))
    assert known.of(a_running_vm()).moved == clock.at - timedelta(seconds=60), "an older one is not the last"


def test_migrations_that_people_make_are_nothing(known: Outcomes) -> None:
    for phase in ("Failed", "Cancelled", "Succeeded", "Running"):
        theirs = evacuation(phase=phase)
        theirs["metadata"]["labels"] = {}
        known.note(None, theirs)
        known.note(theirs, None)
    assert (known.of(a_running_vm()), len(known)) == (History(), 0)


def test_an_hour_later_nothing_is_known(known: Outcomes, clock: Clock) -> None:
    known.note(evacuation(phase="Running"), evacuation())
    known.note(evacuation(2, phase="Running"), evacuation(2, phase="Succeeded"))
    clock.at += timedelta(hours=1)
    assert known.of(a_running_vm()).moved is not None
    clock.at += timedelta(seconds=1)
    assert known.of(a_running_vm()) == History()
    assert len(known) == 1
    other = evacuation()
    other["spec"]["selector"]["name"] = "other"
    known.note(evacuation(phase="Running"), other)
    assert len(known) == 1


def test_a_machine_has_no_pauses_of_an_earlier_one_of_its_name(known: Outcomes) -> None:
    known.note(None, evacuation(endTime="2026-01-01T00:00:10Z"))
    for made, count in (("2025-01-01T00:00:00Z", 1), ("2026-01-01T00:00:11Z", 0)):
        vm = a_running_vm()
        vm["metadata"]["creationTimestamp"] = made
        assert len(known.of(vm).in_vain) == count
    other = a_vm()
    other["metadata"]["namespace"] = "others"
    assert known.of(other) == History()


def test_memory_is_bounded(clock: Clock) -> None:
    known = Outcomes(clock, limit=3)
    for number in range(MAX_ENDS + 3):
        known.note(evacuation(number, phase="Running"), evacuation(number, message="x" * 5000))
    ends = known.of(a_running_vm()).in_vain
    assert [each.name for each in ends] == [str(number) for number in range(3, MAX_ENDS + 3)]
    assert {len(each.why) for each in ends} == {MAX_MESSAGE}

    for name in "abc":
        other = evacuation(endTime=times.to_rfc3339(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)))
        other["spec"]["selector"]["name"] = name
        known.note(None, other)
    assert len(known) == 3
    assert known.of(a_running_vm()) == History(), "the one that ended first"


def test_an_end_counts_for_an_hour_and_not_for_a_moment_less(known: Outcomes, clock: Clock) -> None:
    known.note(evacuation(phase="Running"), evacuation())
    clock.at += timedelta(hours=1)
    other = evacuation(2)
    known.note(None, {**other, "metadata": {**other["metadata"], "namespace": "others"}})
    assert [each.name for each in known.of(a_running_vm()).in_vain] == ["1"]
    clock.at += timedelta(microseconds=1)
    assert known.of(a_running_vm()) == History()
