from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import departure
from handler.reconcilers.migrations import side_plan as plan
from handler.reconcilers.migrations.side_plan import CONFIRM_SECONDS, Observed
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import EMPTY, NOW, a_migrating, a_migration, a_running, a_vm, an_ended

LOOK_AGAIN = (plan.Requeue(plan.LOOK_AGAIN_SECONDS),)


def rest(migration: dict[str, Any]) -> plan.SourcePlan:
    return LOOK_AGAIN if migration["status"]["phase"] == "Running" else ()


def only(actions: plan.SourcePlan | plan.TargetPlan) -> plan.SourceAction | plan.TargetAction:
    (action,) = actions
    return action


def source(migration: dict[str, Any], launcher: messages.Status | None, *, connected: bool = True, gone: bool = False) -> plan.SourcePlan:
    return plan.plan_source(Observed(migration, launcher, connected, gone, NOW))


def target(
    migration: dict[str, Any], launcher: messages.Status | None, *, relaying: bool = True, connected: bool = True
) -> plan.TargetPlan:
    return plan.plan_target(Observed(migration, launcher, connected, gone=False, now=NOW, relaying=relaying, address="10.0.0.2:8445"))


def test_the_source_writes_running_before_it_begins() -> None:
    assert source(a_migration("TargetReady"), a_running()) == (plan.BeginMigration(),)
    assert source(a_migration("Running"), a_running()) == (plan.MigrateGuest(),)


def test_source_starts_after_the_guests_operations() -> None:
    """The target's launcher would not know of them; one that is under way goes on."""
    waiting = Observed(a_migration("TargetReady"), a_running(), connected=True, gone=False, now=NOW, operating=True)
    assert plan.plan_source(waiting) == ()
    assert plan.plan_source(replace(waiting, migration=a_migration("Running"))) == (plan.MigrateGuest(),)
    cancelled = replace(waiting, migration=a_migration("TargetReady", deleting=True))
    assert plan.plan_source(cancelled) == (plan.EndMigration("Cancelled", "deleted before the migration started"),)


def test_migration_does_not_begin_during_an_import() -> None:
    importing = "disk 'x': its image is being imported"
    seen = Observed(a_migration("TargetReady"), a_running(), connected=True, gone=False, now=NOW, importing=importing)
    assert plan.plan_source(seen) == (plan.EndMigration("Failed", importing),)
    assert plan.plan_source(replace(seen, migration=a_migration("Running"))) == (plan.MigrateGuest(),)
    under_way = replace(seen, migration=a_migration("Running"), launcher=a_migrating("running"))
    assert plan.plan_source(under_way) == LOOK_AGAIN


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "PreparingTarget"])
def test_the_source_does_nothing_before_the_target_is_ready(phase: str) -> None:
    for deleting in (False, True):
        assert source(a_migration(phase, deleting=deleting), a_running()) == ()


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling"])
def test_the_target_does_nothing_before_it_is_its_turn(phase: str) -> None:
    assert target(a_migration(phase), EMPTY) == ()


def test_a_launcher_that_has_said_nothing_yet_is_waited_for() -> None:
    for phase in ("PreparingTarget", "TargetReady", "Running"):
        for connected in (False, True):
            unsaid = a_migration(phase, deleting=True)
            assert source(unsaid, None, connected=connected) == rest(unsaid)
            assert target(a_migration(phase), None, connected=connected) == ()


def test_the_source_leaves_a_migration_that_is_under_way_alone() -> None:
    assert source(a_migration("Running"), a_migrating("running")) == LOOK_AGAIN
    assert source(a_migration("Running", deleting=True), a_migrating("running")) == (plan.AbortMigration(), *LOOK_AGAIN)


@pytest.mark.parametrize("state", ["running", "prepared"])
def test_nothing_is_asked_of_a_source_that_does_not_answer(state: messages.MigrationState) -> None:
    for migration in (a_migration("TargetReady"), a_migration("Running"), a_migration("Running", deleting=True)):
        assert source(migration, a_migrating(state), connected=False) == rest(migration)


@pytest.mark.parametrize(
    ("state", "deleting", "phase"),
    [
        ("failed", False, "Failed"),
        ("failed", True, "Failed"),
        ("cancelled", True, "Cancelled"),
        ("cancelled", False, "Failed"),
    ],
)
def test_the_source_says_that_the_guest_stayed(state: messages.MigrationState, deleting: bool, phase: str) -> None:
    for before in ("TargetReady", "Running"):
        (action,) = source(a_migration(before, deleting=deleting), a_migrating(state), connected=False)
        assert isinstance(action, plan.EndMigration)
        assert action.phase == phase


@pytest.mark.parametrize("state", ["failed", "cancelled"])
@pytest.mark.parametrize("deleting", [False, True])
def test_only_of_a_guest_that_goes_on_is_said_that_it_stays(state: messages.MigrationState, *, deleting: bool) -> None:
    launcher, migration = a_migrating(state), a_migration("Running", deleting=deleting)
    here = Observed(migration, launcher, connected=True, gone=False, now=NOW)
    for seen, stays in (
        (here, True),
        (replace(here, stop="restart was requested"), False),
        (replace(here, launcher=replace(launcher, stopping=True)), False),
        (replace(here, launcher=replace(launcher, ending=messages.Ending("destroyed", "")), gone=True), False),
    ):
        action = only(plan.plan_source(seen))
        assert isinstance(action, plan.EndMigration)
        assert action.stays is stays


def test_deleted_migration_that_never_began_is_cancelled() -> None:
    (action,) = source(a_migration("TargetReady", deleting=True), a_running())

    assert isinstance(action, plan.EndMigration)
    assert action.phase == "Cancelled"


@pytest.mark.parametrize("phase", ["TargetReady", "Running"])
@pytest.mark.parametrize(
    ("launcher", "connected", "gone"),
    [
        (an_ended("shutdown"), False, True),
        (an_ended("shutdown"), True, False),  # it reports this before it exits: no guest is left to move
        (a_running(), False, True),  # it could not report; only this plan ends the Migration
    ],
)
def test_guest_ending_before_the_move_fails_the_migration(phase: str, launcher: messages.Status, connected: bool, gone: bool) -> None:
    (action,) = source(a_migration(phase), launcher, connected=connected, gone=gone)

    assert isinstance(action, plan.EndMigration)
    assert (action.phase, action.stays) == ("Failed", False)


@pytest.mark.parametrize("deleting", [False, True])
def test_only_the_target_reports_arrival_and_after_release(deleting: bool) -> None:
    for phase in ("TargetReady", "Running"):
        migration = a_migration(phase, deleting=deleting, targetAddress="10.0.0.2:8445")
        assert source(migration, a_migrating("succeeded")) == (plan.RequestRelease(),)
        told = Observed(migration, a_migrating("succeeded"), connected=False, gone=True, now=NOW, released=True)
        assert plan.plan_source(told) == rest(migration)
        assert target(migration, a_migrating("arrived", "incoming")) == ()
        assert target(migration, a_migrating("succeeded", "incoming"), connected=False) == (plan.TakeOverMachine(),)


def test_arrived_guest_is_released_when_the_migration_says_so() -> None:
    migration = a_migration("Running", targetAddress="10.0.0.2:8445")
    migration["status"] = departure.released(migration, departure.BY_POD, "", NOW)
    assert target(migration, a_migrating("arrived", "incoming")) == (plan.ReleaseGuest(),)
    assert target(migration, a_migrating("arrived", "incoming"), connected=False) == ()
    assert target(migration, a_migrating("running", "incoming")) == ()
    assert source(migration, a_migrating("succeeded")) == (plan.RequestRelease(),)


def test_missing_arrived_guest_is_released_to_end_its_pod() -> None:
    migration = a_migration("Running", targetAddress="10.0.0.2:8445")
    assert target(migration, a_migrating("failed", "incoming")) == ()
    migration["status"] = departure.released(migration, departure.BY_POD, "", NOW)
    assert target(migration, a_migrating("failed", "incoming")) == (plan.ReleaseGuest(),)
    assert target(migration, a_migrating("cancelled", "incoming")) == ()
    assert target(migration, a_migrating("failed", "incoming"), connected=False) == ()


def test_restarted_target_accepts_relays_for_an_arrived_guest() -> None:
    assert target(a_migration("Running"), a_migrating("arrived", "incoming"), relaying=False) == (plan.AcceptRelays(),)


def test_the_target_is_prepared_then_expected_then_offered() -> None:
    migration, prepared = a_migration("PreparingTarget"), a_migrating("prepared", "incoming")

    assert target(migration, EMPTY, relaying=False) == (plan.PrepareTarget(),)
    assert target(migration, prepared, relaying=False) == (plan.AcceptRelays(),)
    assert target(migration, prepared) == (plan.OfferAddress("10.0.0.2:8445"),)
    assert target(a_migration("TargetReady", targetAddress="10.0.0.2:8445"), prepared) == ()


def test_target_with_known_address_becomes_ready_too() -> None:
    migration = a_migration("PreparingTarget", targetAddress="10.0.0.2:8445")
    assert target(migration, a_migrating("prepared", "incoming")) == (plan.OfferAddress("10.0.0.2:8445"),)


@pytest.mark.parametrize("phase", ["PreparingTarget", "TargetReady"])
def test_ended_target_launcher_is_neither_prepared_nor_offered(phase: str) -> None:
    """virt-controller sees the pod's end and ends the Migration."""
    prepared = a_migrating("prepared", "incoming").migrations
    for migrations in ((), prepared):
        for relaying in (False, True):
            ended = an_ended("start-failed")
            assert target(a_migration(phase), replace(ended, migrations=migrations), relaying=relaying) == ()


def test_restarted_target_accepts_relays_at_a_new_address() -> None:
    ready, prepared = a_migration("TargetReady", targetAddress="10.0.0.1:8445"), a_migrating("prepared", "incoming")

    assert target(ready, prepared, relaying=False) == (plan.AcceptRelays(),)
    assert target(ready, prepared) == (plan.OfferAddress("10.0.0.2:8445"),)
    assert target(a_migration("TargetReady", deleting=True, targetAddress="10.0.0.1:8445"), prepared) == ()


def test_target_without_guest_leaves_the_result_to_the_source() -> None:
    for state in ("failed", "cancelled"):
        assert target(a_migration("Running"), a_migrating(state, "incoming")) == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_a_final_phase_closes_both_sides(phase: str) -> None:
    over = a_migration(phase, endTime=times.to_rfc3339(NOW))
    for state in ("succeeded", "failed", "cancelled"):
        if (state, phase) != ("succeeded", "Succeeded"):
            assert source(over, a_migrating(state)) == (plan.ForgetMigration(),)
        assert source(over, a_migrating(state), connected=False) == (plan.ForgetMigration(),)
    for connected in (False, True):
        assert source(over, None, connected=connected) == (plan.ForgetMigration(),)
    assert target(over, a_migrating("prepared", "incoming")) == (plan.ForgetMigration(),)


ADDRESSES = ("10.244.1.7", "fd00:10::7")


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_connections_are_forwarded_while_the_former_pod_exists(phase: str) -> None:
    migration = a_migration(phase, targetPodIPs=list(ADDRESSES))
    left = Observed(migration, a_migrating("succeeded"), connected=True, gone=False, now=NOW, released=True)
    afterwards = (plan.CloseRelays(),) if phase == "Succeeded" else LOOK_AGAIN
    assert plan.plan_source(left) == (plan.ForwardConnections(ADDRESSES),)
    assert plan.plan_source(replace(left, forwarded=True)) == afterwards
    assert plan.plan_source(replace(left, migration=a_migration(phase))) == afterwards  # an older virt-controller did not name the target
    assert plan.plan_source(replace(left, migration=a_migration(phase, targetPodIPs=[]))) == afterwards
    assert plan.plan_source(replace(left, launcher=a_migrating("succeeded", "incoming"))) != (plan.ForwardConnections(ADDRESSES),)
    assert plan.plan_source(replace(left, connected=False)) == ((plan.ForgetMigration(),) if phase == "Succeeded" else LOOK_AGAIN)


def test_nothing_is_forwarded_before_the_guest_left_and_may_run() -> None:
    for phase in ("TargetReady", "Running"):
        migration = a_migration(phase, targetPodIPs=list(ADDRESSES))
        assert source(migration, a_migrating("succeeded")) == (plan.RequestRelease(),)
        assert source(migration, a_migrating("running")) == (LOOK_AGAIN if phase == "Running" else (plan.BeginMigration(),))
    for phase in ("Failed", "Cancelled"):
        assert source(a_migration(phase, targetPodIPs=list(ADDRESSES)), a_migrating("succeeded")) == (plan.ForgetMigration(),)


def test_figures_are_written_after_virt_controllers_success() -> None:
    took = replace(a_migrating("succeeded", "incoming").migrations[0], downtime_milliseconds=1)
    there = a_running(migrations=(took,))
    assert target(a_migration("Succeeded"), there) == (plan.WriteFigures(), plan.ForgetMigration())
    assert target(a_migration("Succeeded", progress={"totalBytes": 1}), there) == (plan.WriteFigures(), plan.ForgetMigration())
    assert target(a_migration("Succeeded", progress={"downtimeMilliseconds": 1}), there) == (plan.ForgetMigration(),)
    for other in (
        replace(took, downtime_milliseconds=0),
        replace(took, downtime_milliseconds=-1),
        replace(took, direction="outgoing"),
        replace(took, state="failed"),
        replace(took, uid="mig-2"),
    ):
        assert target(a_migration("Succeeded"), a_running(migrations=(other,))) == (plan.ForgetMigration(),)
    assert target(a_migration("Succeeded"), None) == (plan.ForgetMigration(),)
    for phase in ("Failed", "Cancelled"):
        assert target(a_migration(phase), there) == (plan.ForgetMigration(),)


@pytest.mark.parametrize("status", [{"podUID": "../x"}, {"podUID": ""}, {"podUID": ["pod-1"]}, {"podName": "p2"}, {"podName": "o"}])
def test_a_source_that_its_machine_does_not_name_is_none(status: dict[str, Any]) -> None:
    assert plan.source_pod(a_vm("Running"), a_migration("Running")) == "pod-1"
    assert plan.source_pod(a_vm("Running", **status), a_migration("Running")) == ""
    assert plan.source_pod(None, a_migration("Running")) == ""


def test_relays_stay_until_the_sources_libvirt_knows_the_outcome() -> None:
    for phase in ("Succeeded", "Failed", "Cancelled"):
        over = a_migration(phase, endTime=times.to_rfc3339(NOW))
        at_it = Observed(over, a_migrating("running"), connected=True, gone=False, now=NOW + timedelta(seconds=CONFIRM_SECONDS - 1))
        assert plan.plan_source(at_it) == (plan.Requeue(1.0),)
        assert plan.plan_source(replace(at_it, connected=False)) == (plan.ForgetMigration(),)


def test_relays_end_though_a_launcher_claims_to_migrate_forever() -> None:
    over = a_migration("Failed", endTime=times.to_rfc3339(NOW))
    late = Observed(over, a_migrating("running"), connected=True, gone=False, now=NOW + timedelta(seconds=CONFIRM_SECONDS))
    for seen in (late, replace(late, now=late.now + timedelta(hours=1)), replace(late, migration=a_migration("Failed", endTime="soon"))):
        assert plan.plan_source(seen) == (plan.ForgetMigration(),)


def test_a_migration_to_be_deleted_is_not_prepared() -> None:
    assert target(a_migration("PreparingTarget", deleting=True), EMPTY) == ()


STATES: list[messages.MigrationState | None] = [None, "running", "succeeded", "failed", "cancelled"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("phase", ["TargetReady", "Running"])
def test_at_most_one_side_writes_an_end(phase: str, deleting: bool, state: messages.MigrationState | None) -> None:
    here = a_running() if state is None else a_migrating(state)
    there = a_migrating("succeeded" if state == "succeeded" else "prepared", "incoming")
    ends = [
        action
        for action in (*source(a_migration(phase, deleting=deleting), here), *target(a_migration(phase, deleting=deleting), there))
        if isinstance(action, plan.EndMigration | plan.TakeOverMachine)
    ]
    assert len(ends) <= 1
    if state in ("succeeded", "failed", "cancelled"):
        assert len(ends) == 1
        assert isinstance(ends[0], plan.TakeOverMachine) is (state == "succeeded")


def test_final_figures_of_a_launcher_are_awaited_for_a_while() -> None:
    here = replace(a_migrating("succeeded", "incoming").migrations[0], downtime_milliseconds=0)

    def of(launcher: messages.Status | None, *, ended: timedelta = timedelta(), gone: bool = False) -> plan.TargetPlan:
        migration = a_migration("Succeeded", endTime=times.to_rfc3339(NOW + ended))
        return plan.plan_target(Observed(migration, launcher, connected=True, gone=gone, now=NOW))

    assert of(a_running(migrations=(here,))) == (plan.CloseRelays(), *LOOK_AGAIN)
    assert of(None) == (plan.CloseRelays(), *LOOK_AGAIN)
    assert of(None, gone=True) == (plan.ForgetMigration(),)
    assert of(a_running(migrations=(replace(here, elapsed_milliseconds=1),))) == (plan.ForgetMigration(),)
    for seconds in (-plan.MEASURE_SECONDS, plan.MEASURE_SECONDS):
        assert of(a_running(migrations=(here,)), ended=timedelta(seconds=seconds)) == (plan.ForgetMigration(),)


BROKE = {"number": 1, "reason": "ConnectionBroken", "message": "broke"}


def a_broken(uid: str = "mig-1") -> messages.Status:
    return a_running(migrations=(messages.MigrationStatus(uid, "outgoing", "failed", "client socket is closed"),))


def test_broken_connection_fails_the_attempt_if_counted() -> None:
    (action,) = source(a_migration("Running", attempt=1), a_broken(), connected=False)
    assert isinstance(action, plan.FailAttempt)
    assert action.message.startswith("lost the connection to the target")
    for migration in (
        a_migration("Running"),
        a_migration("Running", attempt=-1),
        a_migration("Running", attempt=1, deleting=True),
        a_migration("TargetReady", attempt=1),
    ):
        assert isinstance(only(source(migration, a_broken())), plan.EndMigration)
    refused = a_running(migrations=(messages.MigrationStatus("mig-1", "outgoing", "failed", "no such CPU"),))
    assert source(a_migration("Running", attempt=1), refused) == (plan.EndMigration("Failed", "no such CPU"),)


def test_source_confirms_the_end_of_a_target_pod() -> None:
    ended = {**BROKE, "reason": "TargetPodEnded"}
    assert isinstance(only(source(a_migration("Running", attempt=1, attempts=[ended]), a_broken())), plan.FailAttempt)
    assert source(a_migration("Running", attempt=1, attempts=[ended]), a_migrating("running")) == LOOK_AGAIN


def test_an_attempt_that_failed_is_over_for_both_sides() -> None:
    """They forget its relays and its target: a guest that arrived there is never released."""
    migration = a_migration("Running", attempt=1, attempts=[BROKE])
    assert source(migration, a_broken()) == (plan.ForgetMigration(), *LOOK_AGAIN)
    for state in ("prepared", "running", "arrived", "succeeded", "failed"):
        assert target(migration, a_migrating(state, "incoming")) == (plan.ForgetMigration(),)
    migration["status"] = departure.released(migration, departure.BY_HANDLER, "", NOW)
    assert target(migration, a_migrating("arrived", "incoming")) == (plan.ForgetMigration(),)


@pytest.mark.parametrize("phase", ["PreparingTarget", "TargetReady"])
def test_nothing_begins_once_the_target_pod_is_known_to_end(phase: str) -> None:
    migration = a_migration(phase, attempt=1, attempts=[{**BROKE, "reason": "TargetPodDeleted"}])
    assert source(migration, a_running()) == ()
    assert target(migration, EMPTY) == ()


def test_a_second_attempt_begins_whatever_became_of_the_first() -> None:
    ready = a_migration("TargetReady", attempt=2, attempts=[BROKE], targetAddress="10.0.0.2:8445")
    running = a_migration("Running", attempt=2, attempts=[BROKE], targetAddress="10.0.0.2:8445")
    assert source(ready, a_broken()) == (plan.BeginMigration(),)
    assert source(running, a_broken()) == (plan.MigrateGuest(),)
    assert source(running, a_migrating("succeeded", uid="mig-1-2")) == (plan.RequestRelease(),)
    assert isinstance(only(source(running, a_broken("mig-1-2"))), plan.FailAttempt)
    assert target(a_migration("PreparingTarget", attempt=2, attempts=[BROKE]), EMPTY) == (plan.PrepareTarget(),)
    assert target(running, a_migrating("arrived", "incoming", "mig-1-2"), relaying=False) == (plan.AcceptRelays(),)
    assert target(running, a_migrating("succeeded", "incoming", "mig-1-2")) == (plan.TakeOverMachine(),)


def test_nothing_starts_while_virt_handler_is_ending() -> None:
    def leaves(migration: dict[str, Any], launcher: messages.Status) -> plan.SourcePlan:
        return plan.plan_source(Observed(migration, launcher, connected=True, gone=False, now=NOW, ending=True))

    def comes(migration: dict[str, Any], launcher: messages.Status, *, relaying: bool = True) -> plan.TargetPlan:
        seen = Observed(migration, launcher, connected=True, gone=False, now=NOW, ending=True, relaying=relaying)
        return plan.plan_target(replace(seen, address="10.0.0.2:8445"))

    prepared = a_migrating("prepared", "incoming")
    assert leaves(a_migration("TargetReady"), a_running()) == ()
    assert comes(a_migration("PreparingTarget"), prepared) == ()
    assert leaves(a_migration("Running"), a_running()) == (plan.MigrateGuest(),)
    assert leaves(a_migration("Running"), a_migrating("succeeded")) == (plan.RequestRelease(),)
    assert comes(a_migration("Running"), a_migrating("arrived", "incoming"), relaying=False) == (plan.AcceptRelays(),)
    assert comes(a_migration("Running"), prepared) == (plan.OfferAddress("10.0.0.2:8445"),)
    assert comes(a_migration("Running"), a_migrating("succeeded", "incoming")) == (plan.TakeOverMachine(),)


def test_virt_handler_does_not_end_in_the_middle_of_what_moves() -> None:
    assert plan.is_under_way(a_migration("Running"))
    assert plan.is_under_way(a_migration("Running", attempt=2, attempts=[BROKE]))
    assert not plan.is_under_way(a_migration("Running", attempt=1, attempts=[BROKE]))
    for phase in ("", "Pending", "Scheduling", "PreparingTarget", "TargetReady", "Succeeded", "Failed", "Cancelled"):
        assert not plan.is_under_way(a_migration(phase))
