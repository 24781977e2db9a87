from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import phases
from controller.reconcilers.migrations import migration_retries
from controller.reconcilers.migrations.migration_retries import END_SECONDS, GRACE_SECONDS, AwaitEnd, GiveUp, step
from controller.reconcilers.settings import Times
from tests.unit.controller.reconcilers.builders import a_migration, a_pod

BACK_OFF = Times().back_off
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return times.to_rfc3339(NOW - timedelta(seconds=seconds))


def failed(number: int, **said: Any) -> dict[str, Any]:
    return a_migration(phase=phases.RUNNING, attempt=number, attempts=[{"number": number, **said}])


def a_target(*, asked: float | None, grace: Any = None) -> dict[str, Any]:
    pod = a_pod(migration="migration-uid", node="node2", deleting=asked is not None)
    if asked is not None:
        pod["metadata"] |= {"deletionTimestamp": ago(asked), "deletionGracePeriodSeconds": grace}
    return pod


def between(number: int | None, since: float, phase: str = phases.PENDING) -> dict[str, Any]:
    stamps = [{"phase": phases.RUNNING, "time": ago(500)}, {"phase": phases.PENDING, "time": ago(since)}]
    counted: dict[str, Any] = {} if number is None else {"attempt": number}
    return a_migration(phase=phase, phaseTransitionTimestamps=stamps, **counted)


def test_a_failure_of_which_nothing_is_said_is_one() -> None:
    assert step(failed(3), None, NOW, BACK_OFF) == GiveUp("Failed", "no reason given; this was the last of 3 attempts")


def test_a_number_that_no_attempt_has_is_followed_by_none() -> None:
    assert isinstance(step(failed(4), None, NOW, BACK_OFF), GiveUp)


@pytest.mark.parametrize(
    ("target", "seconds", "is_to_delete"),
    [
        (a_target(asked=None), GRACE_SECONDS + END_SECONDS, True),
        (a_target(asked=1000, grace=120), GRACE_SECONDS + END_SECONDS, True),
        (a_target(asked=END_SECONDS - 1, grace=GRACE_SECONDS), 1, False),
        (a_target(asked=END_SECONDS - 1, grace=GRACE_SECONDS - 1), 1, False),
        (a_target(asked=END_SECONDS - 1), 1, False),
    ],
    ids=["nobody deleted it", "with more time than it needs", "it ends", "with less time", "nobody says with how much"],
)
def test_the_target_of_a_failed_attempt_has_so_long_to_end(target: dict[str, Any], seconds: int, *, is_to_delete: bool) -> None:
    waits = step(failed(1), target, NOW, BACK_OFF)
    assert isinstance(waits, AwaitEnd)
    assert (waits.seconds, waits.to_delete) == (float(seconds), target if is_to_delete else None)


@pytest.mark.parametrize("asked", [END_SECONDS, END_SECONDS + 1000])
def test_a_target_that_did_not_end_in_that_time_never_does(asked: float) -> None:
    given_up = step(failed(1), a_target(asked=asked, grace=GRACE_SECONDS), NOW, BACK_OFF)
    assert isinstance(given_up, GiveUp)
    assert given_up.reason == "TargetPodNotEnded"


@pytest.mark.parametrize("number", [None, 0, 1])
def test_before_the_first_attempt_there_was_none(number: int | None) -> None:
    assert migration_retries.retried_at(between(number, 1)) is None
    assert migration_retries.back_off_left(between(number, 1), NOW, BACK_OFF) == 0.0


@pytest.mark.parametrize(("number", "back_off"), [(2, BACK_OFF[0]), (3, BACK_OFF[1]), (4, BACK_OFF[1])])
def test_each_attempt_waits_longer_than_the_one_before(number: int, back_off: int) -> None:
    assert migration_retries.back_off_left(between(number, 1), NOW, BACK_OFF) == back_off - 1.0
    assert migration_retries.back_off_left(between(number, 1000), NOW, BACK_OFF) == 0.0


def test_scheduled_attempt_has_no_back_off_left() -> None:
    assert migration_retries.back_off_left(between(2, 1, phases.SCHEDULING), NOW, BACK_OFF) == 0.0


@pytest.mark.parametrize(("moment", "left"), [("9999-12-31T23:59:59Z", BACK_OFF[0]), ("0001-01-01T00:00:00Z", 0.0)])
def test_no_moment_is_too_far_away_to_count_a_pause_from(moment: str, left: float) -> None:
    stamps = [{"phase": phases.PENDING, "time": moment}]
    migration = a_migration(phase=phases.PENDING, attempt=2, phaseTransitionTimestamps=stamps)
    assert migration_retries.back_off_left(migration, NOW, BACK_OFF) == left
