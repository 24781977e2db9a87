from __future__ import annotations

import pytest

from handler.reconcilers.migrations.migration_stalls import Stalls
from launcher.protocol import messages


def known(state: messages.MigrationState = "running", memory: int = 0, data: int = 0) -> messages.MigrationStatus:
    return messages.MigrationStatus("m", "outgoing", state, memory_processed_bytes=memory, data_processed_bytes=data)


def test_stall_time_counts_from_the_last_moved_byte() -> None:
    stalls = Stalls()
    assert stalls.seconds("m", known(memory=1), 100.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 130.0) == 30.0
    assert stalls.seconds("m", known(memory=2), 140.0) == 0.0
    assert stalls.seconds("m", known(memory=2), 145.0) == 5.0


def test_stall_time_starts_at_the_first_look() -> None:
    stalls = Stalls()
    assert stalls.seconds("m", known(), 100.0) == 0.0
    assert stalls.seconds("m", known(), 250.0) == 150.0


def test_copied_disks_move_too_while_the_memory_waits() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1, data=1), 100.0)
    assert stalls.seconds("m", known(memory=1, data=2), 200.0) == 0.0


def test_a_launcher_that_tells_of_memory_alone_is_believed() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m", known(memory=2), 200.0) == 0.0


def test_restarted_counter_is_no_stall() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=5), 100.0)
    assert stalls.seconds("m", known(memory=1), 200.0) == 0.0


def test_each_attempt_has_its_own_time() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m-2", known(memory=1), 150.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 160.0) == 60.0


@pytest.mark.parametrize("said", [None, known("failed", memory=1), known("succeeded", memory=1)])
def test_stall_time_resets_after_unknown_or_ended_status(said: messages.MigrationStatus | None) -> None:
    """A launcher that was away reports nothing about the time in between."""
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m", said, 200.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 300.0) == 0.0


def test_migration_cancelled_for_a_stall_keeps_its_duration() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m", known("cancelled", memory=2), 250.0) == 150.0
    assert stalls.seconds("m", known("cancelled", memory=2), 251.0) == 151.0


def test_migration_cancelled_before_a_look_has_not_stalled() -> None:
    stalls = Stalls()
    assert stalls.seconds("m", known("cancelled", memory=2), 250.0) == 0.0
    assert stalls.seconds("m", known("cancelled", memory=2), 300.0) == 0.0


def test_forgotten_migration_restarts_its_stall_time() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    stalls.forget("m")
    assert stalls.seconds("m", known(memory=1), 200.0) == 0.0
