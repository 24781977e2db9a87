from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import migration_attempts
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.v1alpha1 import status_validation

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = "0a1b2c3d-0000-4000-8000-000000000000"


def a_migration(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "m", "uid": UID}, "status": {"targetNode": "n2", "targetPod": "p2", **status}}


def test_each_attempt_has_its_own_migration_uid() -> None:
    """The first has the Migration's uid, which older versions expect."""
    assert migration_attempts.uid_of(a_migration()) == UID
    found = [migration_attempts.uid_of(a_migration(attempt=each)) for each in range(1, migration_attempts.MAX_ATTEMPTS + 1)]
    assert found == [UID, f"{UID}-2", f"{UID}-3"]
    assert not any(forms.uid_errors(each) for each in found)


@pytest.mark.parametrize("stored", [float("nan"), "../../x", "2", [2], {"name": "x"}, None, True, 2.5], ids=repr)
def test_malformed_attempt_number_counts_as_no_attempt(stored: object) -> None:
    assert migration_attempts.number_of(a_migration(attempt=stored)) == 0
    assert migration_attempts.uid_of(a_migration(attempt=stored)) == UID


def test_a_failure_is_the_present_attempts() -> None:
    first = a_migration(attempt=1)
    assert migration_attempts.failure_of(first) is None
    failed = migration_attempts.failed(first, migration_attempts.CONNECTION_BROKEN, "broke", NOW)
    entry = {
        "number": 1,
        "reason": "ConnectionBroken",
        "message": "broke",
        "endTime": "2026-01-01T00:00:00Z",
        "targetNode": "n2",
        "targetPod": "p2",
    }
    assert failed == [entry]
    over, second = a_migration(attempt=1, attempts=failed), a_migration(attempt=2, attempts=failed)
    assert migration_attempts.failure_of(over) == entry
    assert migration_attempts.is_reported(over)
    assert migration_attempts.failure_of(second) is None
    assert not migration_attempts.is_reported(second)
    del second["status"]["targetNode"]
    later = migration_attempts.failed(second, migration_attempts.TARGET_POD_ENDED, "ended", NOW)
    assert [each["number"] for each in later] == [1, 2]
    assert "targetNode" not in later[1]
    assert not migration_attempts.is_reported(a_migration(attempt=2, attempts=later))
    assert not status_validation.validate_migration_status({"status": {"attempt": 2, "attempts": later}}, {})


def test_later_report_of_an_attempt_replaces_the_earlier_one() -> None:
    provisional = migration_attempts.failed(a_migration(attempt=1), migration_attempts.TARGET_POD_ENDED, "ended", NOW)
    told = migration_attempts.failed(a_migration(attempt=1, attempts=provisional), migration_attempts.CONNECTION_BROKEN, "broke", NOW)
    assert [(each["number"], each["reason"]) for each in told] == [(1, "ConnectionBroken")]


def test_migration_without_attempts_has_no_failure() -> None:
    entry = {"number": 0, "reason": "ConnectionBroken"}
    assert migration_attempts.failure_of(a_migration(attempts=[entry])) is None
    assert not migration_attempts.is_reported(a_migration())


@pytest.mark.parametrize(
    ("status", "path"),
    [
        ({"attempt": 0}, "status.attempt"),
        ({"attempt": 4}, "status.attempt"),
        ({"attempts": [{"number": 0}]}, "status.attempts[0].number"),
        ({"attempts": [{"number": 4}]}, "status.attempts[0].number"),
        ({"attempts": [{"number": 1}, {"number": 1}]}, "status.attempts[1].number"),
        ({"attempts": [{"number": 2}, {"number": 1}]}, "status.attempts[1].number"),
        ({"attempts": [{"number": 1, "reason": "Bored"}]}, "status.attempts[0].reason"),
        ({"attempts": [{"number": 1, "message": "a\x1b[2J"}]}, "status.attempts[0].message"),
        ({"attempts": [{"number": 1, "targetNode": "N_2"}]}, "status.attempts[0].targetNode"),
        ({"attempts": [{"number": 1, "targetPod": "P_2"}]}, "status.attempts[0].targetPod"),
        ({"attempts": [{"number": 1, "endTime": f"2026-01-01T00:00:00.{40 * '0'}Z"}]}, "status.attempts[0].endTime"),
        ({"attempts": [{"number": each} for each in (1, 2, 3, 3)]}, "status.attempts"),
    ],
)
def test_stored_migration_attempts_are_bounded(status: dict[str, Any], path: str) -> None:
    assert path in {each.path for each in status_validation.validate_migration_status({"status": status}, {})}
