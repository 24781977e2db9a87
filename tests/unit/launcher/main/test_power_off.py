from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.main.decisions import power_off
from launcher.main.decisions.known import Known
from launcher.main.decisions.life import Run, Step, Stopping
from launcher.main.decisions.power_off import Termination
from launcher.main.decisions.times import TIMES, Times
from launcher.protocol import messages
from launcher.protocol.messages import Ending, MigrationStatus, Status

MACHINE = messages.Machine("default", "testvm", "u-1", {}, "qemu")
RUNNING = Observation("default_testvm", "u", "qemu", State.RUNNING, "booted")
PAUSED = dataclasses.replace(RUNNING, state=State.PAUSED, reason="user")
ON_ITS_WAY = dataclasses.replace(RUNNING, state=State.PAUSED, reason="migrating")
OFF = dataclasses.replace(RUNNING, state=State.SHUTOFF, reason="shutdown")
ENDING = Ending("shutdown", "the guest powered off", time=1.0)

INCOMING = MigrationStatus("m1", "incoming", "prepared")
OUTGOING = MigrationStatus("m1", "outgoing", "running")
STARTED = Known(Status(3, started=True), MACHINE, RUNNING, Run(ran=True))
LEAVING = Known(Status(3, started=True, migrations=(OUTGOING,)), MACHINE, RUNNING, Run(ran=True))
ENDED = Known(Status(3, started=True, ending=ENDING), MACHINE, OFF, Run(ran=True), over=True)


def target(state: messages.MigrationState = "prepared", **also: Any) -> Known:
    return Known(Status(3, migrations=(dataclasses.replace(INCOMING, state=state),)), MACHINE, **also)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Known(), Termination.END),
        (Known(making=True), Termination.ABANDON),
        (Known(machine=MACHINE, making=True), Termination.ABANDON),
        (Known(machine=MACHINE, making=True, run=Run(ran=True)), Termination.POWER_OFF),
        (Known(machine=MACHINE), Termination.POWER_OFF),
        (target(), Termination.POWER_OFF),
        (STARTED, Termination.POWER_OFF),
    ],
)
def test_sigterm_action_follows_the_known_state(now: Known, expected: Termination) -> None:
    assert power_off.termination(now) is expected


@pytest.mark.parametrize(
    ("before", "grace_seconds", "deadline"),
    [
        (STARTED, 30.0, 130.0),
        (dataclasses.replace(STARTED, stopping=Stopping(110.0, 100.0)), 30.0, 110.0),
        (dataclasses.replace(STARTED, stopping=Stopping(150.0, 100.0)), 30.0, 130.0),
        (Known(Status(3, started=True), MACHINE, PAUSED), 30.0, 100.0),
        (target("arrived"), 30.0, 130.0),
    ],
)
def test_the_shortest_grace_period_of_a_guest_that_ran_counts(before: Known, grace_seconds: float, deadline: float) -> None:
    found = power_off.requested(before, grace_seconds, 100.0)
    assert found.stopping == Stopping(deadline, 100.0)
    assert found.run.asked_to_stop
    expected = grace_seconds if before.run.ran or before.arriving is not None else 0.0
    assert found.status == dataclasses.replace(before.status, stopping=True, grace_seconds=expected, revision=4)


def test_the_shortest_grace_period_that_was_given_is_told() -> None:
    """virt-handler, also restarted, decides from it whether to send a shorter one."""
    found, told = STARTED, []
    for seconds in (900.0, 3.0, 30.0, 0.0):
        found = power_off.requested(found, seconds, 100.0)
        told.append((found.status.grace_seconds, found.status.revision - STARTED.status.revision))
    assert told == [(900.0, 1), (3.0, 2), (3.0, 2), (0.0, 3)]


def test_repeated_stop_request_keeps_the_attempts() -> None:
    stopping = Stopping(150.0, 90.0, attempts=3, last_attempt=99.0)
    found = power_off.requested(dataclasses.replace(STARTED, stopping=stopping), 1.0, 100.0)
    assert found.stopping == dataclasses.replace(stopping, deadline=101.0)


WITH_PRE_STOP = dataclasses.replace(MACHINE, pre_stop=("sync",))
LATE = Stopping(0.0, 0.0)
SOON = Stopping(100.0, 4.0)


@pytest.mark.parametrize(
    ("now", "fresh", "operating", "expected"),
    [
        (STARTED, True, False, Step.WAIT),
        (dataclasses.replace(ENDED, stopping=LATE, domain=RUNNING), True, False, Step.WAIT),
        (dataclasses.replace(STARTED, stopping=SOON), True, False, Step.PRESS_BUTTON),
        (dataclasses.replace(STARTED, stopping=SOON), True, True, Step.PRESS_BUTTON),
        (dataclasses.replace(STARTED, stopping=SOON), False, False, Step.WAIT),
        (dataclasses.replace(STARTED, stopping=SOON, status=dataclasses.replace(STARTED.status, frozen=True)), True, False, Step.PREPARE),
        (dataclasses.replace(STARTED, stopping=SOON, machine=WITH_PRE_STOP), True, False, Step.PREPARE),
        (Known(stopping=SOON), True, True, Step.WAIT),
        (dataclasses.replace(STARTED, stopping=LATE), False, False, Step.WAIT),
        (dataclasses.replace(STARTED, stopping=Stopping(5 - TIMES.give_up, 0.0)), False, False, Step.GIVE_UP),
        (dataclasses.replace(STARTED, stopping=SOON, domain=None), True, False, Step.WAIT),  # an observation finds out how it ended
        (dataclasses.replace(LEAVING, stopping=SOON), True, False, Step.ABORT_MIGRATION),
        (target(stopping=SOON), True, False, Step.END),
        (target(stopping=SOON), False, False, Step.WAIT),  # it may have arrived since
        (target(stopping=Stopping(5.5, 0.0)), False, False, Step.WAIT),
        (target(stopping=Stopping(5.0, 0.0)), False, False, Step.END),
        (target(stopping=LATE), False, False, Step.END),
        (target(stopping=Stopping(5.0, 0.0)), False, True, Step.WAIT),
        (target(stopping=SOON), True, True, Step.WAIT),
        (target(stopping=SOON, domain=OFF), True, False, Step.END),
        (target("running", stopping=SOON, domain=ON_ITS_WAY), True, False, Step.DESTROY),
        (target("arrived", stopping=SOON, domain=PAUSED), True, False, Step.WAIT),
        (target("arrived", stopping=LATE, domain=PAUSED), True, False, Step.DESTROY),
        (target("arrived", stopping=Stopping(100.0, 5 - TIMES.release), domain=PAUSED), True, False, Step.DESTROY),
        (target("arrived", stopping=Stopping(100.0, 5 - TIMES.release), domain=PAUSED), True, True, Step.WAIT),
    ],
)
def test_the_next_step_follows_from_all_that_is_known(now: Known, *, fresh: bool, operating: bool, expected: Step) -> None:
    assert power_off.next_step(now, 5.0, fresh=fresh, operating=operating) is expected


@pytest.mark.parametrize(
    ("stopping", "until"),
    [
        (None, None),
        (Stopping(5.5, 0.0), 5.5),
        (Stopping(5.0, 0.0), 5.0 + TIMES.give_up),
        (Stopping(-10.0, -10.0), TIMES.give_up - 10.0),  # libvirt gets no more calls
    ],
)
def test_libvirt_is_waited_for_until_the_next_measure(stopping: Stopping | None, until: float | None) -> None:
    assert power_off.patience(dataclasses.replace(STARTED, stopping=stopping), 5.0) == until


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (Step.ASK_AGENT, {"stopping": Stopping(100.0, 4.0, 1, 5.0)}),
        (Step.PRESS_BUTTON, {"stopping": Stopping(100.0, 4.0, 1, 5.0)}),
        (Step.PREPARE, {"stopping": dataclasses.replace(SOON, prepared=True)}),
        (Step.DESTROY, {"run": Run(ran=True, destroyed=True)}),
        (Step.END, {"over": True}),
        (Step.WAIT, {}),
        (Step.RESUME, {}),
        (Step.ABORT_MIGRATION, {}),
        (Step.GIVE_UP, {}),
    ],
)
def test_step_updates_the_known_state(step: Step, changed: dict[str, Any]) -> None:
    before = dataclasses.replace(STARTED, stopping=SOON)
    assert power_off.begun(before, step, 5.0) == dataclasses.replace(before, **changed)


def test_each_press_is_another_attempt() -> None:
    before = dataclasses.replace(STARTED, stopping=Stopping(100.0, 4.0, 3, 1.0))
    assert power_off.begun(before, Step.PRESS_BUTTON, 5.0).stopping == Stopping(100.0, 4.0, 4, 5.0)


def test_time_since_an_ignored_power_off_is_recorded() -> None:
    before = dataclasses.replace(STARTED, stopping=Stopping(16.0, 4.0, 3, 13.0))
    found = power_off.begun(before, Step.DESTROY, 16.5)
    assert found.run == Run(ran=True, destroyed=True, ignored_seconds=12.5)
    assert power_off.begun(found, Step.DESTROY, 30.0).run == found.run, "the second try says the time of the first"


def test_steps_without_a_power_off_are_not_counted() -> None:
    assert power_off.begun(STARTED, Step.PRESS_BUTTON, 5.0) == STARTED
    assert power_off.begun(STARTED, Step.DESTROY, 5.0).run == Run(ran=True, destroyed=True)


@pytest.mark.parametrize(
    ("give_up", "until"),
    [(8.0, 8.0), (0.5, 0.5)],
)
def test_wait_after_the_deadline_is_the_pods_setting(give_up: float, until: float) -> None:
    before = dataclasses.replace(STARTED, stopping=LATE)
    times = Times(give_up=give_up)
    assert power_off.patience(before, 5.0, times) == until
    assert power_off.next_step(before, give_up, fresh=False, operating=False, times=times) is Step.GIVE_UP
    assert power_off.next_step(before, give_up - 0.1, fresh=True, operating=False, times=times) is Step.DESTROY


def test_a_save_is_aborted_before_the_guest_powers_off() -> None:
    saving = dataclasses.replace(STARTED, saving="a", stopping=Stopping(100.0, 4.0))
    assert power_off.next_step(saving, 5.0, fresh=True, operating=False) is Step.ABORT_MIGRATION
    assert power_off.next_step(dataclasses.replace(saving, saving=""), 5.0, fresh=True, operating=False) is Step.PRESS_BUTTON
