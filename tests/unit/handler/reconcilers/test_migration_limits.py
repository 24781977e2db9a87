from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handler.reconcilers.migrations import migration_limits as limits
from handler.reconcilers.migrations import side_plan as plan
from handler.reconcilers.migrations.migration_limits import STALL_SECONDS
from handler.reconcilers.migrations.side_plan import Observed
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import a_migrating, a_migration

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STAMPS = [
    {"phase": "TargetReady", "time": "2025-12-31T23:00:00.000000Z"},
    {"phase": "Running", "time": "2026-01-01T00:00:00.000000Z"},
]
MOVING = a_migrating("running")
LOOK_AGAIN = (plan.Requeue(plan.LOOK_AGAIN_SECONDS),)
ABORT = (plan.AbortMigration(), *LOOK_AGAIN)
PAUSE = (plan.PauseGuest(), *LOOK_AGAIN)


def moving(*, deleting: bool = False, policy: str = "", **options: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"phaseTransitionTimestamps": STAMPS, "options": {"completionTimeoutSeconds": 150, **options}}
    if policy:
        status["policy"] = policy
    return a_migration("Running", deleting=deleting, **status)


def planned(
    migration: dict[str, Any], seconds: float, launcher: messages.Status = MOVING, *, stalled: float = 0.0, can_pause: bool = True
) -> plan.SourcePlan:
    now = BEGAN + timedelta(seconds=seconds)
    return plan.plan_source(
        Observed(migration, launcher, connected=True, gone=False, now=now, stalled_seconds=stalled, can_pause=can_pause)
    )


def standing_still() -> messages.Status:
    assert MOVING.domain is not None
    return replace(MOVING, domain=replace(MOVING.domain, state="paused", reason="migrating"))


def test_a_migration_has_its_time_and_no_more() -> None:
    assert planned(moving(), 149.9) == LOOK_AGAIN
    assert planned(moving(), 150) == ABORT
    assert planned(moving(), 10_000) == ABORT
    assert planned(moving(completionTimeoutSeconds=10_001), 10_000) == LOOK_AGAIN


@pytest.mark.parametrize("options", [{}, {"completionTimeoutSeconds": None}], ids=["none", "null"])
def test_without_a_time_it_has_all_the_time(options: dict[str, Any]) -> None:
    """The previous version's virt-controller wrote no timeout."""
    migration = a_migration("Running", phaseTransitionTimestamps=STAMPS, options=options)
    assert planned(migration, 1e6) == LOOK_AGAIN
    assert planned(a_migration("Running", phaseTransitionTimestamps=STAMPS), 1e6) == LOOK_AGAIN


def test_time_counts_from_running_on() -> None:
    unbegun = a_migration("TargetReady", phaseTransitionTimestamps=STAMPS[:1], options={"completionTimeoutSeconds": 1})
    assert planned(unbegun, 1e6) == (plan.BeginMigration(),)
    assert planned(a_migration("Running", options={"completionTimeoutSeconds": 1}), 1e6) == LOOK_AGAIN


def test_a_guest_that_may_be_paused_is_and_has_as_long_again() -> None:
    migration = moving(allowPause=True)
    assert planned(migration, 149) == LOOK_AGAIN
    assert planned(migration, 150) == PAUSE
    assert planned(migration, 299, standing_still()) == LOOK_AGAIN
    assert planned(migration, 300, standing_still()) == ABORT
    assert planned(migration, 300) == ABORT
    assert planned(migration, 10_000) == ABORT


def test_a_launcher_that_does_not_know_how_to_pause_is_not_asked() -> None:
    assert planned(moving(allowPause=True), 150, can_pause=False) == ABORT


def test_a_deletion_goes_before_all_of_it() -> None:
    assert planned(moving(deleting=True, allowPause=True), 150) == ABORT
    assert planned(moving(deleting=True), 1) == ABORT


def test_nothing_moves_for_so_long_and_it_ends() -> None:
    assert planned(moving(), 1, stalled=STALL_SECONDS - 0.1) == LOOK_AGAIN
    assert planned(moving(completionTimeoutSeconds=10_000, allowPause=True), 1, stalled=STALL_SECONDS) == ABORT
    assert planned(moving(), 1, stalled=STALL_SECONDS + 100) == ABORT


def cancelled(**figures: Any) -> messages.Status:
    known = messages.MigrationStatus("mig-1", "outgoing", "cancelled", "aborted", **figures)
    return replace(MOVING, migrations=(known,))


MIB = 1 << 20
FIGURES = {
    "elapsed_milliseconds": 150_000,
    "memory_total_bytes": 4096 * MIB,
    "memory_processed_bytes": 1500 * MIB,
    "memory_remaining_bytes": 700 * MIB,
    "iteration": 5,
}


@pytest.mark.parametrize(
    ("migration", "seconds", "words"),
    [
        (
            moving(),
            151,
            "timed out: the migration did not complete within 150 s (completionTimeoutPerGiB of the cluster's default): 1.46Gi sent, "
            "10Mi a second, 700Mi of 4Gi remaining; the guest writes memory as fast as the migration sends it; try a "
            "MigrationPolicy with allowPause, allowAutoConverge or a longer completionTimeoutPerGiB",
        ),
        (
            moving(policy="slow", allowPause=True),
            301,
            "timed out: the migration did not complete within 150 s (completionTimeoutPerGiB of MigrationPolicy slow), and the same time "
            "again while paused (allowPause of MigrationPolicy slow): 1.46Gi sent, 10Mi a second, 700Mi of 4Gi "
            "remaining; try a MigrationPolicy with a longer completionTimeoutPerGiB",
        ),
        (moving(), 10, "aborted"),
    ],
)
def test_the_migration_says_that_it_timed_out_and_what_may_help(migration: dict[str, Any], seconds: float, words: str) -> None:
    """virt-handler may have restarted since it requested the end."""
    assert planned(migration, seconds, cancelled(**FIGURES)) == (plan.EndMigration("Failed", words),)


def test_progress_message_includes_copied_disks() -> None:
    copying = cancelled(
        elapsed_milliseconds=10_000, data_total_bytes=900 * MIB, data_processed_bytes=300 * MIB, data_remaining_bytes=600 * MIB
    )
    (action,) = planned(moving(), 151, copying)
    assert isinstance(action, plan.EndMigration)
    assert ": 300Mi sent, 30Mi a second, 600Mi of 900Mi remaining;" in action.message


def test_abort_without_figures_uses_the_last_written_ones() -> None:
    figures = {"totalBytes": 900, "processedBytes": 300, "remainingBytes": 600}
    migration = moving()
    migration["status"]["progress"] = {
        **{field: number * MIB for field, number in figures.items()},
        "elapsedMilliseconds": 10_000,
        "iteration": 2,
        "lastUpdateTime": "2026-11-21T08:00:00Z",
    }
    (action,) = planned(migration, 151, cancelled())
    assert isinstance(action, plan.EndMigration)
    assert (
        ": 300Mi sent, 30Mi a second, 600Mi of 900Mi remaining; the guest writes memory as fast as the migration sends it;"
        in action.message
    )


def test_figures_of_a_hostile_launcher_break_nothing() -> None:
    wild = cancelled(elapsed_milliseconds=-5, memory_total_bytes=-1, memory_processed_bytes=-1, memory_remaining_bytes=-(1 << 62))
    (action,) = planned(moving(), 151, wild)
    assert isinstance(action, plan.EndMigration)
    assert "cluster's default): try a MigrationPolicy" in action.message


def test_a_migration_in_which_nothing_moved_says_so() -> None:
    (action,) = planned(moving(), 20, cancelled(), stalled=STALL_SECONDS)
    assert isinstance(action, plan.EndMigration)
    assert action.message == "timed out: no guest memory was transferred for 150 s"


def test_deletion_and_stop_take_precedence_over_a_timeout() -> None:
    assert planned(moving(deleting=True), 1e4, cancelled()) == (plan.EndMigration("Cancelled", "deleted during the migration"),)
    (action,) = planned(moving(), 1e4, replace(cancelled(), stopping=True))
    assert isinstance(action, plan.EndMigration)
    assert action.message == "the virtual machine was stopped during the migration: its pod was deleted"


def test_a_launcher_is_told_what_the_migration_says() -> None:
    options: dict[str, Any] = {
        "bandwidth": "5Mi",
        "maxDowntimeMilliseconds": 700,
        "parallelConnections": 3,
        "allowAutoConverge": True,
        "allowPause": True,
    }
    assert limits.request(moving(**options)) == messages.Migrate(
        "mig-1", 5 * MIB, 700, 3, auto_converge=True, relays_disks=True, relays_made_disks=True
    )
    assert limits.request(moving(bandwidth=0, allowAutoConverge=False)) == messages.Migrate(
        "mig-1", relays_disks=True, relays_made_disks=True
    )
    assert limits.request(a_migration("Running")) == messages.Migrate("mig-1", relays_disks=True, relays_made_disks=True)


@pytest.mark.parametrize("said", [0, -1, "150"])
def test_a_time_that_is_none_is_all_the_time(said: object) -> None:
    assert planned(moving(completionTimeoutSeconds=said), 1e6) == LOOK_AGAIN


def test_a_second_is_a_time() -> None:
    assert planned(moving(completionTimeoutSeconds=1), 0.9) == LOOK_AGAIN
    assert planned(moving(completionTimeoutSeconds=1), 1) == ABORT


def test_time_counts_from_the_present_attempt() -> None:
    migration = moving()
    migration["status"]["phaseTransitionTimestamps"] = [{"phase": "Running", "time": "2025-12-31T23:00:00.000000Z"}, *STAMPS]
    assert planned(migration, 149.9) == LOOK_AGAIN


def test_a_launcher_without_a_guest_is_not_asked_to_pause_it() -> None:
    guestless = replace(MOVING, domain=None)
    assert limits.verdict_of(moving(allowPause=True), guestless, BEGAN + timedelta(seconds=150), 0.0, can_pause=True) == "go on"


def caused(migration: dict[str, Any], seconds: float, *, stalled: float = 0.0, **figures: Any) -> str:
    known = messages.MigrationStatus("mig-1", "outgoing", "cancelled", "aborted", **{**FIGURES, **figures})
    return limits.cause(migration, known, BEGAN + timedelta(seconds=seconds), stalled)


def test_limit_is_the_cause_from_the_moment_it_is_reached() -> None:
    assert caused(moving(), 149.9) == ""
    assert caused(moving(), 150).startswith("timed out: the migration did not complete within 150 s")
    assert caused(a_migration("Running", phaseTransitionTimestamps=STAMPS), 1e6) == ""
    assert caused(moving(), 10, stalled=STALL_SECONDS - 0.1) == ""
    stuck = "timed out: no guest memory was transferred for 150 s; 1.46Gi sent, 10Mi a second, 700Mi of 4Gi remaining"
    assert caused(moving(), 10, stalled=STALL_SECONDS) == caused(moving(), 10, stalled=STALL_SECONDS + 100) == stuck


def test_that_a_guest_was_paused_is_said_of_one_that_was() -> None:
    assert "paused" not in caused(moving(allowPause=True), 299)
    assert "and the same time again while paused" in caused(moving(allowPause=True), 300)
    assert "paused" not in caused(moving(), 1000)


@pytest.mark.parametrize(("iteration", "is_said"), [(0, False), (1, False), (2, True)])
def test_memory_that_is_sent_again_is_a_hurdle(iteration: int, *, is_said: bool) -> None:
    assert ("; the guest writes memory as fast as the migration sends it" in caused(moving(), 151, iteration=iteration)) is is_said


def test_rate_is_omitted_within_the_first_second() -> None:
    assert ": 1.46Gi sent, 700Mi of 4Gi remaining;" in caused(moving(), 151, elapsed_milliseconds=999)
    assert ": 1.46Gi sent, 1.46Gi a second, 700Mi of 4Gi remaining;" in caused(moving(), 151, elapsed_milliseconds=1000)
    assert ": 900Mi sent, 600Mi a second," in caused(moving(), 151, elapsed_milliseconds=1500, memory_processed_bytes=900 * MIB)


def test_known_total_is_used_though_nothing_was_sent() -> None:
    assert ": 0 sent, 0 a second, 0 of 4Gi remaining;" in caused(moving(), 151, memory_processed_bytes=0, memory_remaining_bytes=0)


def test_of_figures_that_were_written_in_part_the_rest_is_none() -> None:
    migration = moving()
    migration["status"]["progress"] = {"totalBytes": 900 * MIB}
    (action,) = planned(migration, 151, cancelled())
    assert isinstance(action, plan.EndMigration)
    assert ": 0 sent, 0 of 900Mi remaining;" in action.message


def test_message_without_figures_has_none() -> None:
    (action,) = planned(moving(), 151, cancelled())
    assert isinstance(action, plan.EndMigration)
    assert "): try a MigrationPolicy" in action.message


@pytest.mark.parametrize(("bandwidth", "is_said"), [("10Mi", True), ("13Mi", True), ("14Mi", False), ("0", False), (None, False)])
def test_a_bandwidth_that_bounds_the_rate_is_named(bandwidth: str | None, *, is_said: bool) -> None:
    said = caused(moving(bandwidth=bandwidth), 151)
    assert (f"; the limit is {bandwidth} per second (bandwidth); the guest writes" in said) is is_said
    assert ("a MigrationPolicy with a higher bandwidth, allowPause, allowAutoConverge or a longer" in said) is is_said
    assert "bandwidth" not in caused(moving(bandwidth=bandwidth), 151, elapsed_milliseconds=999)


@pytest.mark.parametrize(("sent", "is_said"), [(749, False), (750, True)])
def test_three_quarters_of_the_bandwidth_is_its_limit(sent: int, *, is_said: bool) -> None:
    said = caused(moving(bandwidth="1000"), 151, elapsed_milliseconds=1000, memory_processed_bytes=sent)
    assert ("(bandwidth)" in said) is is_said


def test_bandwidth_limit_is_named_for_a_paused_guest() -> None:
    said = caused(moving(bandwidth="10Mi", allowPause=True), 301)
    assert said.endswith("per second (bandwidth); try a MigrationPolicy with a higher bandwidth or a longer completionTimeoutPerGiB")
