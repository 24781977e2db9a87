from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handler.reconcilers.migrations import migration_causes as causes
from launcher.protocol import messages
from launcher.protocol.made_disks import UNSENT
from tests.unit.handler.reconcilers.builders import a_running

RUNNING = a_running()
CLOSED = "internal error: QEMU unexpectedly closed the monitor (vm='default_testvm')"


def ended(kind: messages.EndingKind, message: str = "") -> messages.Status:
    return replace(RUNNING, domain=None, ending=messages.Ending(kind, message))


def restarted(attempt: int) -> dict[str, Any]:
    request = {"action": "Restart", "time": "2026-01-01T00:00:00.000000Z", "runStrategy": "Always", "attempt": attempt}
    status = {"attempt": 1, "attempts": [{"number": 1}], "request": request}
    return {"metadata": {"name": "a", "namespace": "b"}, "spec": {"domain": {}, "runStrategy": "Always"}, "status": status}


@pytest.mark.parametrize("state", ["failed", "cancelled"])
@pytest.mark.parametrize("said", ["client socket is closed", "migrate: operation aborted: migration out job: canceled by client", ""])
@pytest.mark.parametrize(
    ("launcher", "stop", "cause"),
    [
        (RUNNING, "stop was requested", "the virtual machine was stopped during the migration: stop was requested"),
        (RUNNING, "it is being deleted", "the virtual machine was stopped during the migration: it is being deleted"),
        (replace(RUNNING, stopping=True), "", "the virtual machine was stopped during the migration: its pod was deleted"),
        (ended("shutdown-requested"), "", "the virtual machine was stopped during the migration: its pod was deleted"),
        (ended("destroyed"), "stop was requested", "the virtual machine was stopped during the migration: stop was requested"),
        (ended("shutdown"), "", "the guest powered itself off during the migration"),
        (ended("crashed", "QEMU ended unexpectedly"), "", "the guest ended during the migration: QEMU ended unexpectedly"),
    ],
)
def test_the_end_of_the_guest_is_the_cause_whatever_libvirt_saw(
    state: messages.MigrationState, said: str, launcher: messages.Status, stop: str, cause: str
) -> None:
    assert causes.of_failure(messages.MigrationStatus("m", "outgoing", state, said), launcher, stop) == cause


@pytest.mark.parametrize(
    ("state", "said", "cause"),
    [
        ("failed", "migrate: internal error: client socket is closed", "lost the connection to the target: its pod ended"),
        ("failed", "Unable to write to socket: Broken pipe", "lost the connection to the target: its pod ended"),
        ("failed", "migrate domain a_b: libvirtd is not connected", "libvirtd in the guest's pod ended and was restarted"),
        ("failed", f"{UNSENT}: the connection broke", f"{UNSENT}: the connection broke"),
        ("failed", "unsupported configuration: no such CPU", "unsupported configuration: no such CPU"),
        ("failed", "", "the migration failed"),
        ("cancelled", "", "the migration was aborted"),
        ("cancelled", "operation aborted", "operation aborted"),
    ],
)
def test_a_machine_that_is_to_run_on_says_what_broke(state: messages.MigrationState, said: str, cause: str) -> None:
    found = causes.of_failure(messages.MigrationStatus("m", "outgoing", state, said), RUNNING, "")
    assert found.startswith(cause)
    assert said in found


@pytest.mark.parametrize(
    ("vm", "why"),
    [
        (None, ""),
        ({"metadata": "broken"}, ""),
        ({"metadata": {"name": "a", "namespace": "b"}, "spec": {"domain": {}, "runStrategy": "Halted"}}, "runStrategy is Halted"),
        ({"metadata": {"name": "a", "namespace": "b"}, "spec": {"domain": {}, "runStrategy": "Always"}}, ""),
        (restarted(2), "restart was requested"),
        (restarted(1), ""),
    ],
)
def test_a_machine_that_should_be_off_says_why(vm: Any, why: str) -> None:
    assert causes.stop_of(vm) == why


@pytest.mark.parametrize(
    ("known", "launcher", "stop", "may"),
    [
        (messages.MigrationStatus("m", "outgoing", "failed", "Unable to write to socket: Broken pipe"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", f"{CLOSED}: load of migration failed: Input/output error"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", f"{CLOSED}: load of migration failed: Invalid argument"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", CLOSED), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", "internal error: qemu unexpectedly closed the monitor"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", f"{CLOSED}: qemu: -cpu x: no such model"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "migration of disk vda failed: Input/output error"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", "migration of disk vda failed: No space left on device"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "migrate domain a_b: libvirtd is not connected"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", f"{UNSENT} within 60 s"), RUNNING, "", True),
        (messages.MigrationStatus("m", "outgoing", "failed", "the target refuses the disks: no room"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "unsupported configuration: no such CPU"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", ""), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "cancelled", "Unable to write to socket: Broken pipe"), RUNNING, "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "client socket is closed"), RUNNING, "stop was requested", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "client socket is closed"), replace(RUNNING, stopping=True), "", False),
        (messages.MigrationStatus("m", "outgoing", "failed", "client socket is closed"), ended("crashed"), "", False),
    ],
)
def test_only_a_broken_connection_of_a_running_guest_may_pass(
    known: messages.MigrationStatus, launcher: messages.Status, stop: str, may: bool
) -> None:
    assert causes.may_pass(known, launcher, stop) is may
