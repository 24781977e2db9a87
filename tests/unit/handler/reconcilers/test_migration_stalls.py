from __future__ import annotations

import pytest

from handler.reconcilers.migrations.migration_stalls import Stalls
from launcher.protocol import messages


def known(state: messages.MigrationState = "running", memory: int = 0, data: int = 0) -> messages.MigrationStatus:
    return messages.MigrationStatus("m", "outgoing", state, memory_processed_bytes=memory, data_processed_bytes=data)


def test_the_time_counts_from_the_last_byte_that_was_seen_to_move() -> None:
    stalls = Stalls()
    assert stalls.seconds("m", known(memory=1), 100.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 130.0) == 30.0
    assert stalls.seconds("m", known(memory=2), 140.0) == 0.0
    assert stalls.seconds("m", known(memory=2), 145.0) == 5.0


def test_nothing_has_moved_from_the_first_look_on_if_nothing_ever_does() -> None:
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


def test_a_count_that_begins_anew_is_no_standstill() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=5), 100.0)
    assert stalls.seconds("m", known(memory=1), 200.0) == 0.0


def test_each_attempt_has_its_own_time() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m-2", known(memory=1), 150.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 160.0) == 60.0


@pytest.mark.parametrize("said", [None, known("failed", memory=1), known("succeeded", memory=1)])
def test_it_begins_anew_once_nobody_could_tell_or_it_was_over(said: messages.MigrationStatus | None) -> None:
    """A launcher that was away reports nothing about the time in between."""
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m", said, 200.0) == 0.0
    assert stalls.seconds("m", known(memory=1), 300.0) == 0.0


def test_one_that_was_cancelled_for_it_still_says_for_how_long() -> None:
    """The cause of its end uses this."""
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    assert stalls.seconds("m", known("cancelled", memory=2), 250.0) == 150.0
    assert stalls.seconds("m", known("cancelled", memory=2), 251.0) == 151.0


def test_one_that_was_cancelled_before_anybody_looked_has_not_stalled() -> None:
    stalls = Stalls()
    assert stalls.seconds("m", known("cancelled", memory=2), 250.0) == 0.0
    assert stalls.seconds("m", known("cancelled", memory=2), 300.0) == 0.0


def test_one_that_is_forgotten_begins_anew() -> None:
    stalls = Stalls()
    stalls.seconds("m", known(memory=1), 100.0)
    stalls.forget("m")
    assert stalls.seconds("m", known(memory=1), 200.0) == 0.0
