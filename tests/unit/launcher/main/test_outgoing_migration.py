from __future__ import annotations

import dataclasses

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import HypervisorError, MigrationAborted, MigrationFailed, Observation, Unavailable
from launcher.main.lifecycle import outgoing_migration
from launcher.main.lifecycle.outgoing_migration import Finding
from launcher.protocol import messages

RUNNING = Observation("guest", "u", "qemu", State.RUNNING, "booted")
HELD = dataclasses.replace(RUNNING, state=State.PAUSED, reason="migrating")
PAUSED = dataclasses.replace(RUNNING, state=State.PAUSED, reason="user")
GONE = dataclasses.replace(RUNNING, state=State.SHUTOFF, reason="migrated")
OFF = dataclasses.replace(RUNNING, state=State.SHUTOFF, reason="shutdown")


@pytest.mark.parametrize(
    ("seen", "returned", "job", "expected"),
    [
        (None, True, False, Finding.LEFT),
        (None, False, False, Finding.LEFT),
        (GONE, False, False, Finding.LEFT),
        (OFF, True, False, Finding.LEFT),
        (OFF, False, False, Finding.STAYED),
        (HELD, True, False, Finding.REMAINS),
        (RUNNING, True, True, Finding.REMAINS),
        (RUNNING, False, True, Finding.JOB_RUNS),
        (HELD, False, True, Finding.JOB_RUNS),
        (HELD, False, False, Finding.HELD),
        (PAUSED, False, False, Finding.STAYED),
        (RUNNING, False, False, Finding.STAYED),
    ],
)
def test_look_after_the_migration_call_gives_its_outcome(seen: Observation | None, *, returned: bool, job: bool, expected: Finding) -> None:
    assert outgoing_migration.finding(seen, returned=returned, job=job) is expected


@pytest.mark.parametrize(
    ("error", "left", "abort_asked", "state", "message"),
    [
        (None, True, False, "succeeded", ""),
        (Unavailable("the connection broke"), True, True, "succeeded", ""),
        (MigrationAborted("aborted"), False, False, "cancelled", "aborted"),
        (MigrationFailed("no answer"), False, True, "cancelled", "no answer"),
        (MigrationFailed("no answer"), False, False, "failed", "no answer"),
        (None, False, False, "failed", ""),
    ],
)
def test_how_a_migration_ended(
    error: HypervisorError | None, *, left: bool, abort_asked: bool, state: messages.MigrationState, message: str
) -> None:
    assert outgoing_migration.outcome(error, left=left, abort_asked=abort_asked) == (state, message)
