from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import operations, phases
from apiserver.apis.virt.lifecycle.domainstates import DomainState
from handler.reconcilers.guests import guest_operations, guest_plan, guest_status
from handler.reconcilers.guests.guest_plan import (
    Action,
    EndAttempt,
    Observed,
    ReportGuest,
    ReportNotUnderstood,
    SendRequest,
    StartGuest,
    plan,
)
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import EMPTY, NOW, a_migrating, a_pause, a_request, a_running, a_vm, an_ended, an_operation

START = (StartGuest(paused=False),)
REPORT = (ReportGuest(),)
SUSPEND = (SendRequest(messages.Suspend()),)
RESUME = (SendRequest(messages.Resume()),)


def shut_down(seconds: float) -> tuple[Action, ...]:
    return (SendRequest(messages.Shutdown(seconds)),)


def only(actions: tuple[Action, ...]) -> Action:
    (action,) = actions
    return action


def observed(vm: dict[str, Any], launcher: messages.Status | None, *, connected: bool = True, gone: bool = False) -> Observed:
    return Observed(vm=vm, launcher=launcher, connected=connected, gone=gone, now=0.0)


def test_scheduled_machine_starts_once_its_launcher_answers() -> None:
    assert plan(observed(a_vm(), None, connected=False)) == ()
    assert plan(observed(a_vm(), EMPTY)) == START
    assert plan(observed(a_vm(), a_running())) == REPORT


def test_unanswered_start_continues_whatever_the_guest_state() -> None:
    """libvirt starts a guest paused, with the reason "user", before its first instruction."""
    on_its_way = a_running(state="paused", reason="user")
    assert plan(replace(observed(a_vm(), on_its_way), starting=True)) == START
    assert plan(replace(observed(a_vm(), a_running()), starting=True)) == START
    assert plan(observed(a_vm(), on_its_way)) == RESUME
    stopped = a_vm("Running", request=a_request("Stop"))
    assert plan(replace(observed(stopped, on_its_way), starting=True)) == shut_down(30.0)
    assert plan(replace(observed(stopped, a_running(stopping=True)), starting=True)) == REPORT


def test_a_machine_that_shall_be_off_is_never_started() -> None:
    for vm in (a_vm(request=a_request("Stop")), a_vm(deleting=True), a_vm(request=a_request("Restart", 2))):
        (action,) = plan(observed(vm, EMPTY))
        assert isinstance(action, EndAttempt)
        assert action.end.result == "Stopped"


def test_a_domain_that_ran_is_not_started_again_in_its_pod() -> None:
    assert plan(observed(a_vm("Running"), replace(EMPTY, started=True))) == ()


def test_no_guest_starts_in_a_pod_that_is_ending() -> None:
    assert plan(observed(a_vm(), replace(EMPTY, stopping=True))) == ()
    assert plan(observed(a_vm(deleting=True), replace(EMPTY, stopping=True))) == ()


@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), (0, 0.0), (None, 30.0)])
def test_guest_gets_its_grace_period_however_it_is_stopped(given: int | None, seconds: float) -> None:
    """Every deletion has a grace period of 0; a deleted VM's guest still shuts down cleanly."""
    deleted, stopped = a_vm("Running", deleting=True), a_vm("Running", request=a_request("Stop"))
    deleted["metadata"]["deletionGracePeriodSeconds"] = 0
    for vm in (deleted, stopped):
        vm["spec"]["terminationGracePeriodSeconds"] = given
        assert plan(observed(vm, a_running())) == shut_down(seconds)


@pytest.mark.parametrize(
    "vm", [a_vm("Running", request=a_request("Stop")), a_vm("Running", deleting=True), a_vm("Running", request=a_request("Restart", 2))]
)
def test_unwanted_guest_is_asked_to_shut_down_once(vm: dict[str, Any]) -> None:
    assert plan(observed(vm, a_running())) == shut_down(30.0)
    assert plan(observed(vm, a_running(stopping=True))) == REPORT
    vm["status"]["phase"] = "Stopping"
    assert plan(observed(vm, a_running("shutdown", "user", stopping=True))) == ()


@pytest.mark.parametrize("phase", ["Running", "Stopping", "Unknown"])
@pytest.mark.parametrize("deleting", [True, False])
def test_shortened_grace_period_is_sent_once(phase: str, *, deleting: bool) -> None:
    vm = a_vm(phase, deleting=deleting, request=a_request("Stop"))
    vm["spec"]["terminationGracePeriodSeconds"] = 3
    assert plan(observed(vm, a_running(stopping=True, grace_seconds=900.0))) == shut_down(3.0)
    for told in (3.0, 1.0, None):  # accepted; already shorter; from a version without the field
        assert plan(observed(vm, a_running(stopping=True, grace_seconds=told))) == (() if phase == "Stopping" else REPORT)


def test_a_verbs_grace_period_only_shortens_a_shutdown() -> None:
    for seconds, expected in ((0, 0.0), (5, 5.0), (900, 30.0)):
        vm = a_vm("Running", request={**a_request("Stop"), "gracePeriodSeconds": seconds})
        assert plan(observed(vm, a_running())) == shut_down(expected)
    stopping = a_running(stopping=True, grace_seconds=30.0)
    assert plan(observed(a_vm("Stopping", deleting=True, request={**a_request("Stop"), "gracePeriodSeconds": 0}), stopping)) == shut_down(0)
    overruled = {**a_request("Stop"), "gracePeriodSeconds": 0, "runStrategy": "Always"}
    assert plan(observed(a_vm("Stopping", deleting=True, request=overruled), stopping)) == ()


def test_no_grace_period_is_sent_to_a_guest_that_shall_be_on() -> None:
    """A deletion of its pod sent SIGTERM."""
    assert plan(observed(a_vm("Running"), a_running(stopping=True, grace_seconds=900.0))) == REPORT


def test_begun_stop_is_completed_despite_a_later_start() -> None:
    for request in (None, a_request("Start"), a_request("Unpause")):
        assert plan(observed(a_vm("Stopping", request=request), a_running())) == shut_down(30.0)
        (action,) = plan(observed(a_vm("Stopping", request=request), EMPTY))
        assert isinstance(action, EndAttempt)
        assert (action.end.result, action.end.message) == ("Stopped", "not started: the guest is being stopped")


def test_shutdown_reason_is_never_a_reason_to_run() -> None:
    dead = {"type": "Ready", "status": "False", "reason": "LivenessProbeFailed", "message": "the liveness probe failed: no answer"}
    vm = a_vm("Stopping")
    assert guest_plan.why_down(vm) == "the guest is being stopped"
    vm["status"]["conditions"] = [dead]
    assert guest_plan.why_down(vm) == "the liveness probe failed: no answer"
    for request, why in ((a_request("Stop"), "stop was requested"), (a_request("Restart", 2), "restart was requested")):
        vm["status"]["request"] = request
        assert guest_plan.why_down(vm) == why


def test_pause_and_unpause_follow_the_level() -> None:
    paused, running = a_running("paused", "user"), a_running()
    earlier = a_vm("Running", request=a_request("Pause")), a_vm("Running", request=a_request("Unpause"))

    for pause, unpause in ((a_vm("Running", pause=a_pause()), a_vm("Running", pause=a_pause(wanted=False))), earlier):
        assert plan(observed(pause, running)) == SUSPEND
        assert plan(observed(pause, paused)) == REPORT
        assert plan(observed(unpause, paused)) == RESUME
    assert plan(observed(a_vm("Running"), a_running("paused", "I/O error"))) == REPORT


def test_a_guest_that_libvirt_still_starts_is_not_resumed() -> None:
    """The VM would get an Event about an unpaused guest before its start."""
    starting = a_running("paused", "starting up", started=False)

    assert plan(observed(a_vm(), starting)) == ()
    assert plan(observed(a_vm(), replace(starting, started=True))) == RESUME
    assert plan(observed(a_vm(request=a_request("Stop")), starting)) == shut_down(30.0)


@pytest.mark.parametrize(
    ("state", "reason"),
    [("running", "unknown"), ("blocked", "unknown"), ("pmsuspended", "unknown"), ("shutdown", "user"), ("paused", "crashed")],
)
def test_only_an_unrequested_pause_is_resumed(state: DomainState, reason: str) -> None:
    """libvirt uses the same reasons in other states."""
    assert plan(observed(a_vm("Running"), a_running(state, reason))) == REPORT


FAULTS: list[tuple[DomainState, str]] = [("paused", "I/O error"), ("paused", "watchdog"), ("pmsuspended", "unknown")]


@pytest.mark.parametrize(("state", "reason"), FAULTS)
@pytest.mark.parametrize("request_", [None, a_request("Unpause"), a_request("Start"), a_request("Pause")])
def test_no_level_resumes_a_guest_that_a_fault_stopped(state: DomainState, reason: str, request_: dict[str, Any] | None) -> None:
    """Neither requests nor the wanted state do: the disk is as full as it was."""
    assert plan(observed(a_vm("Running", request=request_, pause=a_pause(wanted=False)), a_running(state, reason))) == REPORT


@pytest.mark.parametrize(
    ("pause", "goes_on"), [(None, True), (a_pause(wanted=False), True), (a_pause(), False), (a_pause(attempt=0), True)]
)
def test_guest_resumes_with_room_unless_paused_by_a_user(pause: dict[str, Any] | None, *, goes_on: bool) -> None:
    roomy = a_running("paused", "I/O error", has_room=True)
    assert plan(observed(a_vm("Running", pause=pause), roomy)) == (RESUME if goes_on else REPORT)


KNOWN = frozenset(messages.OPERATIONS)


def operating(vm: dict[str, Any], launcher: messages.Status, known: frozenset[str] = KNOWN) -> tuple[Action, ...]:
    return plan(replace(observed(vm, launcher), operations=known))


@pytest.mark.parametrize("action", operations.ACTIONS)
@pytest.mark.parametrize(("state", "reason"), [("running", "booted"), *FAULTS])
def test_open_operation_is_sent_with_id_and_number(action: operations.Action, state: DomainState, reason: str) -> None:
    vm = a_vm("Running", operations=[an_operation("a", 7, action)])
    assert operating(vm, a_running(state, reason)) == (SendRequest(messages.Operate("a", 7, action)),)


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ((), "a"),
        ((messages.OperationStatus("a", 1, "running"),), None),
        ((messages.OperationStatus("a", 1, "succeeded"),), "b"),
        ((messages.OperationStatus("a", 1, "failed"),), "b"),
        ((messages.OperationStatus("a", 1, "failed"), messages.OperationStatus("b", 2, "succeeded")), None),
        ((messages.OperationStatus("b", 2, "succeeded"),), "a"),
    ],
)
def test_operations_are_sent_one_by_one_and_known_ones_skipped(told: tuple[messages.OperationStatus, ...], sent: str | None) -> None:
    """The launcher told a restarted virt-handler what is not written yet."""
    vm = a_vm("Running", operations=[an_operation("a", 1), an_operation("b", 2)])
    expected = REPORT if sent is None else (SendRequest(messages.Operate(sent, 1 if sent == "a" else 2, "Reset")),)
    assert operating(vm, a_running(operations=told)) == expected


@pytest.mark.parametrize(
    "vm",
    [
        a_vm("Running", operations=[an_operation("a", 1, result="Succeeded")]),
        a_vm("Running", operations=[an_operation("a", 1, result="Failed")]),
        a_vm("Running", operations=[an_operation("a", 1, attempt=0)]),
        a_vm("Scheduled", operations=[an_operation("a", 1)]),
        a_vm("Unknown", operations=[an_operation("a", 1)]),
    ],
)
def test_operation_is_sent_only_while_open_and_running(vm: dict[str, Any]) -> None:
    assert operating(vm, a_running()) == REPORT


@pytest.mark.parametrize(
    "launcher",
    [
        a_running(stopping=True),
        a_migrating("running"),
        a_migrating("succeeded"),
        a_migrating("arrived", "incoming"),
        replace(EMPTY, started=True),
    ],
)
def test_an_operation_is_not_sent_to_a_guest_that_does_not_stay(launcher: messages.Status) -> None:
    sent = operating(a_vm("Running", operations=[an_operation("a", 1)]), launcher)
    assert not any(isinstance(each, SendRequest) for each in sent)


@pytest.mark.parametrize("request_", [a_request("Stop"), a_request("Restart", 2)])
def test_a_guest_that_is_to_be_off_is_shut_down_and_not_reset(request_: dict[str, Any]) -> None:
    assert operating(a_vm("Running", request=request_, operations=[an_operation("a", 1)]), a_running()) == shut_down(30.0)


def test_pause_precedes_an_operation_and_allows_a_reset() -> None:
    vm = a_vm("Running", pause=a_pause(), operations=[an_operation("a", 1)])
    assert operating(vm, a_running()) == SUSPEND
    assert operating(vm, a_running("paused", "user")) == (SendRequest(messages.Operate("a", 1, "Reset")),)


def test_a_resume_that_a_later_pause_overtook_is_not_sent() -> None:
    vm = a_vm("Running", pause=a_pause(), operations=[an_operation("a", 1, "Resume")])
    assert operating(vm, a_running("paused", "I/O error")) == (guest_operations.Fail("a", guest_operations.PAUSED_SINCE),)


def test_older_launcher_is_asked_to_resume_but_not_to_reset() -> None:
    resume, reset = ([an_operation("a", 1, action)] for action in ("Resume", "Reset"))
    stopped = a_running("paused", "I/O error")
    assert operating(a_vm("Running", operations=resume), stopped, frozenset()) == (guest_operations.ResumeByRequest("a"),)
    failed = only(operating(a_vm("Running", operations=reset), stopped, frozenset()))
    assert isinstance(failed, guest_operations.Fail)
    assert "restart or migrate" in failed.message


def test_keys_are_sent_by_codes_to_launchers_that_know_them() -> None:
    parameters = {"keys": ["KEY_LEFTCTRL", "767", "KEY_OF_A_LATER_RELEASE"], "holdMilliseconds": 250}
    vm = a_vm("Running", operations=[an_operation("a", 1, "SendKey", parameters=parameters)])
    request = messages.Operate("a", 1, "SendKey", keys=(29, 767), hold_milliseconds=250)
    assert operating(vm, a_running()) == (SendRequest(request),)
    assert isinstance(only(operating(vm, a_running(), frozenset({"Reset", "Resume"}))), guest_operations.Fail)


def test_an_end_tells_what_came_of_operations() -> None:
    told = (messages.OperationStatus("a", 1, "succeeded"),)
    vm = a_vm("Running", operations=[an_operation("a", 1), an_operation("b", 2)])
    for launcher, gone in ((replace(an_ended("shutdown"), operations=told), False), (a_running(operations=told), True)):
        action = only(plan(observed(vm, launcher, gone=gone)))
        assert isinstance(action, EndAttempt)
        over = guest_status.ended(vm, action.end, NOW, action.operations)["operations"]
        assert [(each["id"], each["result"], each.get("message")) for each in over] == [
            ("a", "Succeeded", None),
            ("b", "Failed", operations.ATTEMPT_ENDED),
        ]


def test_room_does_not_resume_a_running_guest() -> None:
    assert plan(observed(a_vm("Running"), a_running(has_room=True))) == REPORT


def test_a_guest_that_runs_is_not_resumed_by_an_unpause() -> None:
    assert plan(observed(a_vm("Running", request=a_request("Unpause")), a_running())) == REPORT


@pytest.mark.parametrize(
    ("launcher", "stands"),
    [
        *((a_running(state, reason), True) for state, reason in FAULTS),
        *((a_running("paused", reason), False) for reason in ("user", "starting up", "unknown")),
        (a_running(), False),
        (a_running("shutdown", "user"), False),
        (EMPTY, False),
        (None, False),
    ],
)
def test_only_unrequested_pauses_count_as_standstill(launcher: messages.Status | None, stands: bool) -> None:
    assert guest_plan.stands_still(launcher) is stands


def test_migration_pause_by_libvirt_is_left_alone() -> None:
    moving = replace(a_migrating("running"), domain=messages.DomainStatus("d", "u", "qemu", "paused", "migrating"))

    assert plan(observed(a_vm("Running"), moving)) == ()
    assert plan(observed(a_vm("Running"), a_migrating("running"))) == ()


@pytest.mark.parametrize(
    ("direction", "state", "reported"), [("outgoing", "running", True), ("incoming", "arrived", False), ("incoming", "running", False)]
)
def test_guest_paused_to_arrive_is_reported_while_still_here(
    direction: messages.MigrationDirection, state: messages.MigrationState, *, reported: bool
) -> None:
    standing = replace(a_migrating(state, direction), domain=messages.DomainStatus("d", "u", "qemu", "paused", "user"))

    assert plan(observed(a_vm("Running"), standing)) == (REPORT if reported else ())


def test_a_guest_that_moved_away_is_no_longer_reported_from_here() -> None:
    assert plan(observed(a_vm("Running"), an_ended("migrated"))) == ()
    assert plan(observed(a_vm("Running"), a_migrating("succeeded"), gone=True)) == ()


def test_guest_that_just_left_belongs_to_the_target() -> None:
    """Its domain is still listed here; a stop or report would concern the wrong pod."""
    for vm in (a_vm("Running"), a_vm("Running", request=a_request("Stop")), a_vm("Running", deleting=True)):
        assert plan(observed(vm, a_migrating("succeeded"))) == ()


def test_migrated_guest_is_reported_and_stopped_like_any_other() -> None:
    assert plan(observed(a_vm("Running"), a_migrating("succeeded", "incoming"))) == REPORT
    assert plan(observed(a_vm("Running", deleting=True), a_migrating("succeeded", "incoming"))) == shut_down(30.0)


@pytest.mark.parametrize("connected", [False, True])
def test_end_of_a_launcher_with_a_leaving_guest_is_not_guessed(connected: bool) -> None:
    """The guest may run at the target: reporting an end would start a second one."""
    leaving: tuple[messages.MigrationState, ...] = ("running", "succeeded")
    staying: tuple[messages.MigrationState, ...] = ("prepared", "failed", "cancelled")
    coming: tuple[messages.MigrationState, ...] = ("running", "arrived")
    for vm in (a_vm("Running"), a_vm("Stopping"), a_vm("Running", deleting=True), a_vm("Unknown")):
        for state in leaving:
            assert plan(observed(vm, a_migrating(state), connected=connected, gone=True)) == ()
        for state in staying:
            assert isinstance(only(plan(observed(vm, a_migrating(state), connected=connected, gone=True))), EndAttempt)
        for state in coming:  # the other direction: it runs only here
            assert isinstance(only(plan(observed(vm, a_migrating(state, "incoming"), connected=connected, gone=True))), EndAttempt)


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
    (action,) = plan(observed(a_vm("Running"), an_ended(kind, "words")))

    assert isinstance(action, EndAttempt)
    status = guest_status.ended(a_vm("Running"), action.end, NOW)
    assert status["phase"] == phase
    assert status["attempts"][-1]["result"] == action.end.result
    assert status["attempts"][-1]["message"] == "words"


def test_a_launcher_that_vanished_takes_its_guest_along() -> None:
    (action,) = plan(observed(a_vm("Running"), a_running(), connected=False, gone=True))

    assert isinstance(action, EndAttempt)
    assert action.end.result == "Failed"
    assert "the pod reached its memory limit" in action.end.message


def test_end_is_written_even_when_the_launcher_is_gone() -> None:
    assert isinstance(only(plan(observed(a_vm("Stopping"), an_ended("shutdown-requested"), connected=False, gone=True))), EndAttempt)


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Stopped", "Succeeded", "Failed"])
def test_other_phases_belong_to_virt_controller(phase: str) -> None:
    assert plan(observed(a_vm(phase), a_running())) == ()


def test_a_lost_connection_is_waited_for() -> None:
    assert plan(observed(a_vm("Running", request=a_request("Stop")), a_running(), connected=False)) == ()


def simulate(
    vm: dict[str, Any], launcher: messages.Status | None, actions: tuple[Action, ...]
) -> tuple[dict[str, Any], messages.Status | None]:
    match only(actions) if actions else None:
        case StartGuest(paused=paused):
            return vm, a_running("paused" if paused else "running", "user" if paused else "booted")
        case SendRequest(messages.Shutdown()):
            return vm, an_ended("shutdown-requested")
        case SendRequest(messages.Suspend()):
            return vm, a_running("paused", "user")
        case SendRequest(messages.Resume()):
            return vm, a_running()
        case SendRequest(messages.Operate() as operate) if launcher is not None:
            done = messages.OperationStatus(operate.id, operate.number, "succeeded")
            return vm, replace(launcher, operations=(*launcher.operations, done))
        case guest_operations.Fail(id=operation_id):
            return {**vm, "status": {**vm["status"], "operations": operations.with_result(vm, operation_id, "Failed", "", NOW)}}, launcher
        case ReportGuest() if launcher is not None:
            return {**vm, "status": guest_status.running(vm, launcher, None, NOW)}, launcher
        case EndAttempt(end=end):
            return {**vm, "status": guest_status.ended(vm, end, NOW)}, launcher
        case _:
            return vm, launcher


def operating_on(state: tuple[dict[str, Any], messages.Status | None]) -> tuple[Action, ...]:
    return plan(replace(observed(*state), operations=KNOWN))


VMS = [
    a_vm(phase, deleting=deleting, request=request)
    for phase in ("Scheduled", "Running", "Stopping", "Unknown")
    for deleting in (False, True)
    for request in (None, *(a_request(action) for action in ("Stop", "Start", "Pause", "Unpause")), a_request("Restart", 2))
] + [
    a_vm(phase, request=request, pause=a_pause(wanted=wanted), operations=[an_operation("a", 1), an_operation("b", 2, "Resume")])
    for phase in ("Scheduled", "Running", "Stopping", "Unknown")
    for request in (None, a_request("Stop"), a_request("Restart", 2))
    for wanted in (True, False)
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
        for _ in range(8):
            actions = operating_on(state)
            assert actions == operating_on(state)
            after = simulate(*state, actions)
            before, now = phases.phase_of(state[0]), phases.phase_of(after[0])
            assert now == before or now in phases.VM_TRANSITIONS[before]
            if after == state:
                break
            state = after
        else:
            pytest.fail(f"no rest for {vm['status']} {launcher}")


@pytest.mark.parametrize(
    ("launcher", "may"),
    [
        (a_running(), True),
        (None, False),
        (EMPTY, False),
        (a_running("paused", "user"), False),
        (a_running("pmsuspended", "disk"), False),
        (a_running(stopping=True), False),
        (an_ended("shutdown"), False),
        (replace(a_running(), ending=messages.Ending("shutdown", "")), False),
        (a_migrating("running"), False),
        (a_migrating("succeeded"), False),
        (a_migrating("failed"), True),
        (a_migrating("arrived", "incoming"), False),
        (a_migrating("succeeded", "incoming"), True),
    ],
)
def test_only_a_guest_that_runs_and_stays_can_answer_a_probe(launcher: messages.Status | None, may: bool) -> None:
    assert guest_plan.may_be_asked(launcher) is may


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Stopping", "Unknown"])
def test_only_the_end_of_an_unsupported_launcher_is_known(phase: str) -> None:
    """An older virt-handler may follow a newer one: earlier messages do not count."""
    for launcher in (None, EMPTY, a_running(), an_ended("shutdown")):
        seen = replace(observed(a_vm(phase, deleting=True), launcher, connected=False), not_understood="it speaks version 9")
        assert plan(seen) == (ReportNotUnderstood("it speaks version 9"),)
        assert plan(replace(seen, gone=True)) == plan(observed(a_vm(phase, deleting=True), launcher, connected=False, gone=True))
    assert plan(replace(observed(a_vm("Pending"), None), not_understood="it speaks version 9")) == ()


@pytest.mark.parametrize("reason", ["user", "starting up", "migrating", "unknown"])
def test_a_guest_that_was_not_started_yet_is_left_alone(reason: str) -> None:
    """libvirt itself pauses it, also while it restores a suspended guest."""
    starting = replace(a_running("paused", reason), started=False)
    assert plan(Observed(a_vm("Scheduled"), starting, connected=True, gone=False, now=0.0)) == ()
    started = replace(starting, started=True)
    assert plan(Observed(a_vm("Scheduled"), started, connected=True, gone=False, now=0.0)) == (SendRequest(messages.Resume()),)
