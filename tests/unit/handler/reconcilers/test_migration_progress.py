from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import progress
from handler.reconcilers.migrations import migration_progress as plan
from handler.reconcilers.migrations.migration_progress import Course, Step
from launcher.protocol.messages import MigrationStatus
from tests.unit.handler.reconcilers.builders import NOW, a_migration

MIB = 1 << 20
FIRST = MigrationStatus(
    "mig-1",
    "outgoing",
    "running",
    elapsed_milliseconds=500,
    iteration=1,
    data_total_bytes=256 * MIB,
    data_processed_bytes=100 * MIB,
    data_remaining_bytes=156 * MIB,
    bytes_per_second=50 * MIB,
)
BEHIND = replace(FIRST, iteration=3, dirty_bytes_per_second=80 * MIB)
AHEAD = replace(FIRST, iteration=3, dirty_bytes_per_second=10 * MIB)


def planned(known: MigrationStatus, migration: dict[str, Any] | None = None, course: Course | None = None, *, at: float = 100.0) -> Step:
    return plan.plan(migration or a_migration("Running"), known, course or Course(), at, NOW)


def after(known: MigrationStatus, times: int, migration: dict[str, Any] | None = None, course: Course | None = None) -> Step:
    step, migration = Step(course or Course()), migration or a_migration("Running")
    for number in range(times):
        at = 1000.0 if number == times - 1 else 0.0
        known = replace(
            known,
            elapsed_milliseconds=max(known.elapsed_milliseconds, step.course.elapsed) + 500,
            data_processed_bytes=(step.course.recent[-1][1] if step.course.recent else 0) + known.bytes_per_second // 2,
        )
        step = planned(known, migration, replace(step.course, tried=None if at else 0.0), at=at)
    return step


def test_condition_is_written_with_the_figures() -> None:
    status = after(BEHIND, plan.SAMPLES).status
    assert status is not None
    assert status["progress"]["dirtyBytesPerSecond"] == 80 * MIB


def converging(step: Step) -> tuple[str, str] | None:
    assert step.status is not None
    found = objects.condition(step.status.get("conditions"), progress.CONVERGING)
    return None if found is None else (found["status"], found["reason"])


def test_figures_are_the_launchers_in_status_terms() -> None:
    step = planned(FIRST)
    assert step.status is not None
    assert step.status["progress"] == {
        "totalBytes": 256 * MIB,
        "processedBytes": 100 * MIB,
        "remainingBytes": 156 * MIB,
        "bytesPerSecond": 50 * MIB,
        "dirtyBytesPerSecond": 0,
        "iteration": 1,
        "elapsedMilliseconds": 500,
        "expectedRemainingSeconds": 4,
        "lastUpdateTime": "2026-11-21T08:00:00Z",
    }
    assert {key: value for key, value in step.status.items() if key != "progress"} == a_migration("Running")["status"]


def test_a_launcher_that_knows_memory_alone_is_believed_that() -> None:
    old = MigrationStatus("mig-1", "outgoing", "running", "", 500, 9, 5, 4, 1)
    step = planned(old)
    assert step.status is not None
    found = step.status["progress"]
    assert (found["totalBytes"], found["processedBytes"], found["remainingBytes"]) == (9, 5, 4)
    assert "expectedRemainingSeconds" not in found


@pytest.mark.parametrize(
    ("rate", "dirty", "expected"), [(50 * MIB, 0, 4), (50 * MIB, 49 * MIB, 156), (50 * MIB, 50 * MIB, None), (0, 0, None), (1, 2, None)]
)
def test_an_end_is_expected_where_there_is_one(rate: int, dirty: int, expected: int | None) -> None:
    found = plan.figures(replace(FIRST, bytes_per_second=rate, dirty_bytes_per_second=dirty), NOW)
    assert found.get("expectedRemainingSeconds") == expected


def test_hostile_figures_are_clamped_to_valid_numbers() -> None:
    least, most = -(2**63), 2**63 - 1
    for number in (least, -1, most):
        found = plan.figures(
            replace(
                FIRST,
                direction="incoming",
                iteration=number,
                elapsed_milliseconds=number,
                downtime_milliseconds=number,
                memory_total_bytes=number,
                memory_processed_bytes=number,
                memory_remaining_bytes=number,
                data_total_bytes=number,
                data_processed_bytes=number,
                data_remaining_bytes=number,
                bytes_per_second=number,
                dirty_bytes_per_second=-number,
            ),
            NOW,
        )
        assert all(0 <= found[each] <= most for each in progress.NUMBERS if each in found)


def test_how_long_the_guest_stood_still_is_the_targets_word() -> None:
    expected = replace(FIRST, downtime_milliseconds=300)
    assert "downtimeMilliseconds" not in plan.figures(expected, NOW)
    told = plan.figures(replace(expected, direction="incoming", state="succeeded"), NOW)
    assert told["downtimeMilliseconds"] == 300
    assert "expectedRemainingSeconds" not in told


def test_unknown_final_figures_keep_the_earlier_ones() -> None:
    assert plan.at_end(None, NOW) == {}
    assert plan.at_end(MigrationStatus("mig-1", "incoming", "succeeded"), NOW) == {}
    assert plan.at_end(replace(FIRST, state="failed"), NOW)["progress"]["remainingBytes"] == 156 * MIB


def test_final_figures_of_disks_come_from_the_source() -> None:
    arrived = MigrationStatus("mig-1", "incoming", "succeeded", data_total_bytes=256 * MIB, data_processed_bytes=100 * MIB)
    before = {"totalBytes": 900 * MIB, "processedBytes": 700 * MIB, "remainingBytes": 200 * MIB}
    found = plan.at_end(arrived, NOW, before)["progress"]
    assert (found["totalBytes"], found["processedBytes"], found["remainingBytes"]) == (900 * MIB, 700 * MIB, 0)
    for less in ({}, None, {"totalBytes": 256 * MIB, "processedBytes": 200 * MIB}):
        found = plan.at_end(arrived, NOW, less)["progress"]
        assert (found["totalBytes"], found["processedBytes"]) == (256 * MIB, 100 * MIB)
    assert plan.at_end(replace(arrived, direction="outgoing"), NOW, before)["progress"]["totalBytes"] == 256 * MIB


def test_equal_figures_are_written_once() -> None:
    written = planned(FIRST).status
    assert written is not None
    again = planned(FIRST, a_migration("Running") | {"status": written}, at=1000.0)
    assert (again.status, again.again) == (None, None)


def test_progress_write_waits_for_its_interval_after_a_failure() -> None:
    first = planned(FIRST, at=100.0)
    newer = replace(FIRST, elapsed_milliseconds=1_000)
    early = planned(newer, course=first.course, at=102.0)
    assert (early.status, early.again) == (None, 3.0)
    assert early.course.tried == 100.0
    late = planned(newer, course=early.course, at=105.0)
    assert late.status is not None
    assert late.course.tried == 105.0


def test_faster_writes_for_some_seconds_prevent_convergence() -> None:
    assert converging(after(BEHIND, plan.SAMPLES - 1)) is None
    step = after(BEHIND, plan.SAMPLES)
    assert converging(step) == ("False", progress.WRITES_FASTER)
    assert step.warning == "the guest writes its memory at 80Mi/s, and 50Mi/s are sent"


def test_writes_at_the_transfer_rate_prevent_convergence() -> None:
    """As QEMU reports endless writes: it counts each page at most once between two transfers."""
    course, migration, step = Course(), a_migration("Running"), None
    for number, moment in enumerate((4, 1, 3, 4, 2, 4, 4, 3, 4, 4, 4, 4), start=1):
        known = replace(
            BEHIND,
            elapsed_milliseconds=500 * number,
            data_processed_bytes=2 * MIB * number,
            dirty_bytes_per_second=4 * MIB - 64,
            bytes_per_second=moment * MIB,
        )
        step = planned(known, migration, replace(course, tried=None), at=1000.0)
        course = step.course
    assert step is not None
    assert converging(step) == ("False", progress.WRITES_FASTER)


@pytest.mark.parametrize(("dirty", "expected"), [(40 * MIB, "False"), (40 * MIB - 1, None)])
def test_a_guest_that_keeps_up_to_a_share_does_not_converge(dirty: int, expected: str | None) -> None:
    step = after(replace(BEHIND, dirty_bytes_per_second=dirty), plan.SAMPLES)
    assert (converging(step) or (None,))[0] == expected


@pytest.mark.parametrize("odd", [{"elapsed_milliseconds": -5}, {"data_processed_bytes": 0}, {"data_processed_bytes": -(2**70)}])
def test_figures_that_go_back_leave_the_launchers_own_rate(odd: dict[str, Any]) -> None:
    course = after(AHEAD, plan.SAMPLES).course
    assert planned(replace(AHEAD, **odd), course=course).course.row == -plan.SAMPLES - 1


def test_slower_sample_resets_the_convergence_count() -> None:
    course = after(BEHIND, plan.SAMPLES - 1).course
    course = after(AHEAD, 1, course=course).course
    assert converging(after(BEHIND, plan.SAMPLES - 1, course=course)) is None
    assert converging(after(BEHIND, plan.SAMPLES, course=course)) is not None


def test_the_same_figures_seen_again_count_once() -> None:
    course = Course()
    for _ in range(3 * plan.SAMPLES):
        course = planned(BEHIND, course=course, at=0.0).course
    assert course.row == 1


def test_rates_of_the_first_iteration_say_nothing_of_the_guest() -> None:
    first = replace(BEHIND, iteration=1)
    assert converging(after(first, 2 * plan.SAMPLES)) is None


def test_migration_without_rates_is_not_called_too_fast() -> None:
    still = replace(BEHIND, bytes_per_second=0, dirty_bytes_per_second=0)
    assert converging(after(still, 2 * plan.SAMPLES)) is None


@pytest.mark.parametrize(("processed", "expected"), [(plan.OFTEN * 256 * MIB - 1, None), (plan.OFTEN * 256 * MIB, "False")])
def test_memory_sent_several_times_prevents_convergence(processed: int, expected: str | None) -> None:
    step = planned(replace(AHEAD, data_processed_bytes=processed))
    assert (converging(step) or (None,))[0] == expected
    assert ("3 times the guest's memory was sent" in step.warning) is (expected is not None)


def test_repeated_memory_is_reported_despite_large_disks() -> None:
    disks = replace(AHEAD, data_total_bytes=900 << 30, memory_total_bytes=MIB, memory_processed_bytes=plan.OFTEN * MIB)
    assert (converging(planned(disks)) or (None,))[0] == "False"
    assert converging(planned(replace(disks, memory_processed_bytes=plan.OFTEN * MIB - 1))) is None


def test_convergence_is_reported_once_and_withdrawn() -> None:
    said = after(BEHIND, plan.SAMPLES).status
    assert said is not None
    migration = a_migration("Running") | {"status": said}
    more = after(BEHIND, 2 * plan.SAMPLES, migration)
    assert more.status is not None
    assert more.status["conditions"] == said["conditions"]
    assert more.warning == ""
    assert converging(after(AHEAD, plan.SAMPLES - 1, migration)) == ("False", progress.WRITES_FASTER)
    better = after(AHEAD, plan.SAMPLES, migration)
    assert converging(better) == ("True", progress.CATCHES_UP)
    assert better.warning == ""


def test_of_one_of_which_it_was_never_said_nothing_is_taken_back() -> None:
    assert converging(after(AHEAD, 2 * plan.SAMPLES)) is None


def test_a_condition_keeps_those_of_others() -> None:
    released = {"type": "Released", "status": "True"}
    step = after(BEHIND, plan.SAMPLES, a_migration("Running", conditions=[released]))
    assert step.status is not None
    assert [each["type"] for each in step.status["conditions"]] == ["Released", progress.CONVERGING]


def test_a_condition_is_said_although_the_figures_are_as_before() -> None:
    known = replace(BEHIND, elapsed_milliseconds=900)
    migration = a_migration("Running", progress=plan.figures(known, NOW - timedelta(seconds=9)))
    step = planned(known, migration, Course(row=plan.SAMPLES - 1))
    assert step.status is not None
    assert converging(step) == ("False", progress.WRITES_FASTER)
