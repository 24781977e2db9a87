"""What is done about a guest, state by state, and that doing it gets somewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt import phases
from handler.reconcilers import guest_plan, guest_status
from handler.reconcilers.guest_plan import Call, Finish, Observed, Report, Start, Wait, plan
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import EMPTY, NOW, a_migrating, a_request, a_running, a_vm, an_ended


def observed(vm: dict[str, Any], launcher: messages.Status | None, *, connected: bool = True, gone: bool = False) -> Observed:
    return Observed(vm=vm, launcher=launcher, connected=connected, gone=gone)


def test_a_scheduled_machine_is_started_once_its_launcher_answers() -> None:
    assert plan(observed(a_vm(), None, connected=False)) == Wait()
    assert plan(observed(a_vm(), EMPTY)) == Start(paused=False)
    assert plan(observed(a_vm(), a_running())) == Report()


def test_a_machine_that_shall_be_off_is_never_started() -> None:
    for vm in (a_vm(request=a_request("Stop")), a_vm(deleting=True), a_vm(request=a_request("Restart", 2))):
        action = plan(observed(vm, EMPTY))
        assert isinstance(action, Finish)
        assert action.end.result == "Stopped"


def test_a_domain_that_ran_is_not_started_again_in_its_pod() -> None:
    assert plan(observed(a_vm("Running"), replace(EMPTY, started=True))) == Wait()


@pytest.mark.parametrize(
    "vm", [a_vm("Running", request=a_request("Stop")), a_vm("Running", deleting=True), a_vm("Running", request=a_request("Restart", 2))]
)
def test_a_running_guest_that_shall_be_off_is_asked_to_shut_down_once(vm: dict[str, Any]) -> None:
    assert plan(observed(vm, a_running())) == Call(messages.Shutdown(30.0))
    assert plan(observed(vm, a_running(stopping=True))) == Report()
    vm["status"]["phase"] = "Stopping"
    assert plan(observed(vm, a_running("shutdown", "user", stopping=True))) == Wait()


def test_pause_and_unpause_follow_the_last_verb() -> None:
    paused, running = a_running("paused", "user"), a_running()

    assert plan(observed(a_vm("Running", request=a_request("Pause")), running)) == Call(messages.Suspend())
    assert plan(observed(a_vm("Running", request=a_request("Pause")), paused)) == Report()
    assert plan(observed(a_vm("Running", request=a_request("Unpause")), paused)) == Call(messages.Resume())
    assert plan(observed(a_vm("Running"), a_running("paused", "I/O error"))) == Report()


def test_a_guest_that_libvirt_still_starts_is_not_resumed() -> None:
    """It was, and the machine had an Event that its guest was unpaused, before it was started."""
    starting = a_running("paused", "starting up", started=False)

    assert plan(observed(a_vm(), starting)) == Wait()
    assert plan(observed(a_vm(), replace(starting, started=True))) == Call(messages.Resume())
    assert plan(observed(a_vm(request=a_request("Stop")), starting)) == Call(messages.Shutdown(30.0))


def test_what_libvirt_pauses_during_a_migration_is_left_alone_and_not_reported() -> None:
    moving = replace(a_migrating("running"), domain=messages.DomainStatus("d", "u", "qemu", "paused", "migrating"))

    assert plan(observed(a_vm("Running"), moving)) == Wait()


def test_a_guest_that_moved_away_is_no_longer_reported_from_here() -> None:
    assert plan(observed(a_vm("Running"), an_ended("migrated"))) == Wait()
    assert plan(observed(a_vm("Running"), a_migrating("succeeded"), gone=True)) == Wait()


@pytest.mark.parametrize("connected", [False, True])
def test_the_end_of_a_launcher_whose_guest_was_leaving_is_not_guessed(connected: bool) -> None:
    """The guest may run on at the target already: an end written here would have another one started beside it."""
    leaving: tuple[messages.MigrationState, ...] = ("running", "succeeded")
    staying: tuple[messages.MigrationState, ...] = ("prepared", "failed", "cancelled")
    coming: tuple[messages.MigrationState, ...] = ("running", "arrived")
    for vm in (a_vm("Running"), a_vm("Stopping"), a_vm("Running", deleting=True), a_vm("Unknown")):
        for state in leaving:
            assert plan(observed(vm, a_migrating(state), connected=connected, gone=True)) == Wait()
        for state in staying:
            assert isinstance(plan(observed(vm, a_migrating(state), connected=connected, gone=True)), Finish)
        for state in coming:  # the other direction: it does not run elsewhere
            assert isinstance(plan(observed(vm, a_migrating(state, "incoming"), connected=connected, gone=True)), Finish)


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("shutdown", "Succeeded"),
        ("shutdown-requested", "Stopped"),
        ("destroyed", "Stopped"),
        ("crashed", "Failed"),
        ("start-failed", "Failed"),
    ],
)
def test_how_a_run_ended_decides_the_phase(kind: messages.EndingKind, phase: str) -> None:
    action = plan(observed(a_vm("Running"), an_ended(kind, "words")))

    assert isinstance(action, Finish)
    status = guest_status.ended(a_vm("Running"), action.end, NOW)
    assert status["phase"] == phase
    assert status["attempts"][-1]["result"] == action.end.result
    assert status["attempts"][-1]["message"] == "words"


def test_a_launcher_that_vanished_takes_its_guest_along() -> None:
    action = plan(observed(a_vm("Running"), a_running(), connected=False, gone=True))

    assert isinstance(action, Finish)
    assert action.end.result == "Failed"


def test_an_end_is_written_even_when_the_launcher_is_gone_already() -> None:
    assert isinstance(plan(observed(a_vm("Stopping"), an_ended("shutdown-requested"), connected=False, gone=True)), Finish)


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Stopped", "Succeeded", "Failed"])
def test_other_phases_belong_to_virt_controller(phase: str) -> None:
    assert plan(observed(a_vm(phase), a_running())) == Wait()


def test_a_lost_connection_is_waited_for() -> None:
    assert plan(observed(a_vm("Running", request=a_request("Stop")), a_running(), connected=False)) == Wait()


def simulate(
    vm: dict[str, Any], launcher: messages.Status | None, action: guest_plan.Action
) -> tuple[dict[str, Any], messages.Status | None]:
    """The world after an action."""
    match action:
        case Start():
            return vm, a_running("paused" if action.paused else "running", "user" if action.paused else "booted")
        case Call(messages.Shutdown()):
            return vm, an_ended("shutdown-requested")
        case Call(messages.Suspend()):
            return vm, a_running("paused", "user")
        case Call(messages.Resume()):
            return vm, a_running()
        case Report() if launcher is not None:
            return {**vm, "status": guest_status.running(vm, launcher, None, NOW)}, launcher
        case Finish():
            return {**vm, "status": guest_status.ended(vm, action.end, NOW)}, launcher
        case _:
            return vm, launcher


VMS = [
    a_vm(phase, deleting=deleting, request=request)
    for phase in ("Scheduled", "Running", "Stopping", "Unknown")
    for deleting in (False, True)
    for request in (None, *(a_request(action) for action in ("Stop", "Start", "Pause", "Unpause")), a_request("Restart", 2))
]
LAUNCHERS = [
    None,
    EMPTY,
    a_running(),
    a_running("paused", "user"),
    a_running(stopping=True),
    *(an_ended(kind) for kind in ("shutdown", "shutdown-requested", "destroyed", "crashed", "start-failed", "migrated")),
]


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=str)
def test_from_every_state_the_plan_comes_to_rest(launcher: messages.Status | None) -> None:
    for vm in VMS:
        state = vm, launcher
        for _ in range(6):
            action = plan(observed(*state))
            assert action == plan(observed(*state))
            after = simulate(*state, action)
            assert phases.may_follow(phases.VM_TRANSITIONS, phases.phase_of(state[0]), phases.phase_of(after[0]))
            if after == state:
                break
            state = after
        else:
            pytest.fail(f"no rest for {vm['status']} {launcher}")
