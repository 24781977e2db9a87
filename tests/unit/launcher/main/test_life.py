from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.main.decisions import life
from launcher.main.decisions.life import Run, Step, Stopping
from launcher.main.decisions.times import TIMES
from launcher.protocol import messages

RUNNING = Observation("d", "u", "qemu", State.RUNNING, "booted")
WITH_AGENT = Observation("d", "u", "qemu", State.RUNNING, "booted", agent_connected=True)
PAUSED = Observation("d", "u", "qemu", State.PAUSED, "user")
INCOMING = Observation("d", "u", "qemu", State.PAUSED, "starting up")
OFF = Observation("d", "u", "qemu", State.SHUTOFF, "shutdown")


SWITCHING = Observation("d", "u", "qemu", State.PAUSED, "migrating")
"""A source's domain whose memory was transferred: libvirt paused it."""


def stopping(deadline: float = 10, attempts: int = 0, last_attempt: float = float("-inf"), since: float = 4.5) -> Stopping:
    return Stopping(deadline, since, attempts, last_attempt)


@pytest.mark.parametrize(
    ("domain", "how_far", "expected"),
    [
        (None, stopping(), Step.WAIT),
        (OFF, stopping(0), Step.WAIT),
        (RUNNING, stopping(), Step.PRESS_BUTTON),
        (RUNNING, stopping(10, 1, last_attempt=4), Step.WAIT),
        (RUNNING, stopping(10, 1, last_attempt=2), Step.PRESS_BUTTON),
        (WITH_AGENT, stopping(), Step.ASK_AGENT),
        (WITH_AGENT, stopping(10, 1, last_attempt=1), Step.PRESS_BUTTON),
        (WITH_AGENT, stopping(10, 2, last_attempt=1), Step.ASK_AGENT),
        (PAUSED, stopping(), Step.RESUME),
        (Observation("d", "u", "qemu", State.PAUSED, "I/O error"), stopping(), Step.RESUME),
        (Observation("d", "u", "qemu", State.PAUSED, "watchdog"), stopping(), Step.RESUME),
        (Observation("d", "u", "qemu", State.PMSUSPENDED, "unknown"), stopping(), Step.RESUME),
        (SWITCHING, stopping(), Step.PRESS_BUTTON),  # a migration ended, and libvirt has not reported how
        (Observation("d", "u", "qemu", State.RUNNING, "user"), stopping(), Step.PRESS_BUTTON),
        (Observation("d", "u", "qemu", State.SHUTDOWN, "user"), stopping(), Step.WAIT),
        (RUNNING, stopping(5), Step.DESTROY),
        (RUNNING, stopping(4), Step.DESTROY),
        (RUNNING, stopping(5.5 - TIMES.give_up), Step.DESTROY),
        (RUNNING, stopping(5 - TIMES.give_up), Step.GIVE_UP),
        (RUNNING, stopping(-TIMES.give_up), Step.GIVE_UP),
    ],
)
def test_the_next_step_towards_off(domain: Observation | None, how_far: Stopping, expected: Step) -> None:
    assert life.next_step(5, how_far, domain, leaving=False) is expected


@pytest.mark.parametrize(
    ("domain", "how_far", "expected"),
    [
        (WITH_AGENT, Stopping(10, 4.5), Step.PREPARE),
        (WITH_AGENT, Stopping(10, 4.5, prepared=True), Step.ASK_AGENT),
        (SWITCHING, Stopping(10, 4.5), Step.PRESS_BUTTON),
        (PAUSED, Stopping(10, 4.5), Step.RESUME),
        (WITH_AGENT, Stopping(5, 4.5), Step.DESTROY),
    ],
)
def test_running_guest_is_prepared_once_for_its_shutdown(domain: Observation, how_far: Stopping, expected: Step) -> None:
    assert life.next_step(5, how_far, domain, leaving=False, prepares=True) is expected


@pytest.mark.parametrize("domain", [RUNNING, WITH_AGENT, PAUSED, SWITCHING])
def test_leaving_guest_is_kept_before_its_shutdown(domain: Observation) -> None:
    assert life.next_step(5, stopping(10), domain, leaving=True) is Step.ABORT_MIGRATION
    assert life.next_step(5, stopping(5), domain, leaving=True) is Step.DESTROY


@pytest.mark.parametrize(
    ("domain", "incoming", "how_far", "expected"),
    [
        (INCOMING, "running", stopping(), Step.DESTROY),
        (PAUSED, "arrived", stopping(), Step.WAIT),
        (PAUSED, "arrived", stopping(40, since=1), Step.WAIT),
        (PAUSED, "arrived", stopping(40, since=5 - TIMES.release), Step.DESTROY),
        (PAUSED, "arrived", stopping(40, since=-1), Step.DESTROY),
        (PAUSED, "arrived", stopping(5), Step.DESTROY),
        (PAUSED, "cancelled", stopping(), Step.DESTROY),
        (PAUSED, "failed", stopping(), Step.DESTROY),
    ],
)
def test_a_copy_that_was_not_released_is_never_resumed_or_asked(
    domain: Observation, incoming: messages.MigrationState, how_far: Stopping, expected: Step
) -> None:
    assert life.next_step(5, how_far, domain, leaving=False, incoming=incoming) is expected


@pytest.mark.parametrize(
    ("domain", "incoming", "how_far", "expected"),
    [
        (PAUSED, "arrived", stopping(40, since=5 - TIMES.release), Step.WAIT),
        (PAUSED, "arrived", stopping(5), Step.DESTROY),
        (INCOMING, "running", stopping(), Step.DESTROY),
    ],
)
def test_copy_being_released_is_left_alone_until_the_deadline(
    domain: Observation, incoming: messages.MigrationState, how_far: Stopping, expected: Step
) -> None:
    assert life.next_step(5, how_far, domain, leaving=False, incoming=incoming, operating=True) is expected


def test_defaults_say_that_nothing_was_tried_or_ran() -> None:
    assert Stopping(10.0, 4.5) == Stopping(10.0, 4.5, 0, float("-inf"))
    assert Run() == Run(ran=False, asked_to_stop=False, destroyed=False, migrated_to="")


def off(reason: str) -> Observation:
    return Observation("d", "u", "qemu", State.SHUTOFF, reason)


@pytest.mark.parametrize(
    ("run", "last", "kind"),
    [
        (Run(), off("shutdown"), "shutdown"),
        (Run(asked_to_stop=True), off("shutdown"), "shutdown-requested"),
        (Run(asked_to_stop=True, destroyed=True), off("destroyed"), "destroyed"),
        (Run(asked_to_stop=True, destroyed=True), off("shutdown"), "shutdown-requested"),
        (Run(), off("destroyed"), "destroyed"),
        (Run(), off("crashed"), "crashed"),
        (Run(), off("failed"), "crashed"),
        (Run(), off("daemon"), "crashed"),
        (Run(), None, "crashed"),
        (Run(destroyed=True), None, "destroyed"),
        (Run(), off("migrated"), "migrated"),
        (Run(migrated_to="m"), None, "migrated"),
    ],
)
def test_how_a_run_ended(run: Run, last: Observation | None, kind: str) -> None:
    assert life.ending_of(run, last)[0] == kind


@pytest.mark.parametrize(
    ("run", "last", "message"),
    [
        (Run(ran=True, destroyed=True), off("destroyed"), "the guest was powered off forcibly"),
        (
            Run(ran=True, destroyed=True, ignored_seconds=12.2),
            off("destroyed"),
            "the guest was powered off forcibly: it did not react to the shutdown request within 12 s",
        ),
        (Run(destroyed=True), off("destroyed"), life.NOT_RUN),
        (Run(ran=True), off("crashed"), "QEMU ended unexpectedly"),
        (Run(ran=True), off("failed"), "QEMU ended unexpectedly"),
        (Run(ran=True), off("panicked"), life.PANICKED),
        (Run(ran=True), off("watchdog"), life.WATCHDOG_FIRED),
        (Run(ran=True), off("daemon"), "the domain is daemon: QEMU ended while virt-launcher was not connected to libvirtd"),
        (Run(ran=True), None, "the domain is gone: QEMU ended while virt-launcher was not connected to libvirtd"),
    ],
)
def test_an_ending_is_said_in_words(run: Run, last: Observation | None, message: str) -> None:
    assert life.ending_of(run, last)[1] == message


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (None, 0),
        (messages.Ending("shutdown"), 0),
        (messages.Ending("shutdown-requested"), 0),
        (messages.Ending("destroyed"), 0),
        (messages.Ending("migrated"), 0),
        (messages.Ending("crashed"), 1),
        (messages.Ending("start-failed"), 1),
    ],
)
def test_exit_tells_of_failure_and_lingers_after_a_migration(ending: messages.Ending | None, code: int) -> None:
    assert life.exit_code(ending) == code
    assert life.lingers(ending) is (ending == messages.Ending("migrated"))


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (messages.Ending("crashed", "why"), f"why; {life.LACKED_MEMORY}"),
        (messages.Ending("crashed", "why", panicked=True), "why"),
        (messages.Ending("crashed", "why", watchdog=True), "why"),
    ],
)
def test_lack_of_memory_explains_a_crash_without_other_cause(ending: messages.Ending, message: str) -> None:
    assert life.explained(ending, lacked_memory=True) == message
    assert life.explained(ending, lacked_memory=False) == "why"


def test_the_termination_message_fits_and_leads_with_the_kind() -> None:
    message = life.termination_message(messages.Ending("crashed", "why", log=("é" * 5000,)))
    assert message.startswith("crashed: why\n")
    assert len(message.encode()) <= life.MAX_TERMINATION_MESSAGE


def test_of_qemus_log_its_own_last_lines_are_kept() -> None:
    log = b"2026-11-21 08:00:00.000+0000: starting up libvirt version: 9.0\nLC_ALL=C \\\n-name x \\\nqemu: \x1b[31mno \xffsuch disk\n\n"
    assert life.last_lines(log) == ("qemu: [31mno \ufffdsuch disk",)


@given(st.binary(max_size=2000))
@example(b"x" * 1000)
@example(b"x\n" * 1000)
def test_any_qemu_log_is_shown_safely(data: bytes) -> None:
    lines = life.last_lines(data)
    assert len(lines) <= life.MAX_LOG_LINES
    assert all(line.isprintable() and len(line) <= 300 for line in lines)


@pytest.mark.parametrize("line", ["char device redirected to /dev/pts/1 (label serial0)", "-msg timestamp=on"])
def test_irrelevant_log_lines_are_left_out(line: str) -> None:
    assert life.last_lines(f"{line}\nqemu: no such disk\n".encode()) == ("qemu: no such disk",)


def test_a_long_line_is_cut_to_300_characters() -> None:
    assert life.last_lines(b"x" * 1000) == ("x" * 300,)


def test_a_migration_is_known_by_its_uid_alone() -> None:
    one, other = messages.MigrationStatus("b", "outgoing", "running"), messages.MigrationStatus("a", "outgoing", "running")
    assert life.with_migration((one,), other) == (one, other)
    changed = dataclasses.replace(one, state="failed")
    assert life.with_migration((one,), changed) == (changed,)


def test_the_four_newest_migrations_are_kept() -> None:
    known: tuple[messages.MigrationStatus, ...] = ()
    for uid in "abcde":
        known = life.with_migration(known, messages.MigrationStatus(uid, "outgoing", "running"))
    known = life.with_migration(known, messages.MigrationStatus("c", "outgoing", "failed"))
    assert [(item.uid, item.state) for item in known] == [("b", "running"), ("c", "failed"), ("d", "running"), ("e", "running")]
