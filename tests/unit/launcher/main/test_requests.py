from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from launcher.hypervisor.port import (
    DomainNotFound,
    HypervisorError,
    MigrationFailed,
    Observation,
    OperationInvalid,
    OperationTimeout,
    Unavailable,
)
from launcher.main.decisions import requests
from launcher.main.decisions.known import Known
from launcher.main.decisions.life import Stopping
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import messages
from launcher.protocol.messages import Ending, MigrationStatus, Status
from tests.unit.launcher.main.test_known import ENDED, LEAVING, MACHINE, OFF, PAUSED, RUNNING, STARTED, described, target

OTHER, ANOTHER = dataclasses.replace(MACHINE, uid="u-2"), dataclasses.replace(MACHINE, uid="u-0")
FAILED = Known(Status(3, ending=Ending("start-failed", "no such disk")), MACHINE, over=True)
NEVER_ASKED = Known(Status(3, ending=Ending("destroyed")), over=True)
NOTHING_CAME = Known(over=True)


def judged(judgement: Callable[[], bool | None]) -> bool | tuple[str, str] | None:
    try:
        return judgement()
    except RequestRefused as error:
        return error.reason, str(error)


@pytest.mark.parametrize(
    ("now", "machine", "expected"),
    [
        (Known(), MACHINE, True),
        (STARTED, MACHINE, False),
        (ENDED, MACHINE, False),
        (NEVER_ASKED, MACHINE, False),
        (STARTED, OTHER, ("Invalid", "this pod belongs to the virtual machine u-1")),
        (STARTED, ANOTHER, ("Invalid", "this pod belongs to the virtual machine u-1")),
        (FAILED, OTHER, ("Invalid", "this pod belongs to the virtual machine u-1")),
        (FAILED, MACHINE, ("Failed", "no such disk")),
        (target(), MACHINE, ("Conflict", "this pod is the target of a migration; it starts no guest")),
        (target("failed"), MACHINE, ("Conflict", "this pod is the target of a migration; it starts no guest")),
        (target("cancelled"), OTHER, ("Invalid", "this pod belongs to the virtual machine u-1")),
        (NOTHING_CAME, MACHINE, ("Conflict", "this pod is terminating")),
    ],
)
def test_a_domain_is_made_once_for_one_machine(now: Known, machine: messages.Machine, expected: object) -> None:
    assert judged(lambda: requests.is_to_start(now, machine)) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (STARTED, True),
        (LEAVING, True),
        (ENDED, False),
        (FAILED, False),
        (Known(), ("Conflict", "cannot destroy: no guest runs in this pod")),
        (Known(machine=MACHINE, making=True), ("Conflict", "cannot destroy: no guest runs in this pod")),
        (target("arrived"), ("Conflict", "cannot destroy: no guest runs in this pod")),
    ],
)
def test_nothing_is_done_to_a_guest_that_is_not_there(now: Known, expected: object) -> None:
    assert judged(lambda: requests.has_guest(now, "destroy")) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (STARTED, None),
        (LEAVING, ("Conflict", "cannot suspend: the guest is being migrated")),
        (ENDED, ("Conflict", "cannot suspend: the guest is off")),
        (target("arrived"), ("Conflict", "cannot suspend: no guest runs in this pod")),
    ],
)
def test_the_state_of_a_guest_that_is_elsewhere_is_not_changed(now: Known, expected: object) -> None:
    assert judged(lambda: requests.require_guest_that_stays(now, "suspend")) == expected


IO_ERROR = dataclasses.replace(PAUSED, reason="I/O error")


@pytest.mark.parametrize(("before", "expected"), [(None, False), (RUNNING, False), (OFF, False), (PAUSED, False), (IO_ERROR, True)])
def test_only_an_io_error_pause_may_recur(before: Observation | None, *, expected: bool) -> None:
    assert requests.may_stop_again(before) is expected


@pytest.mark.parametrize(
    ("domain", "before", "expected"),
    [
        (described(IO_ERROR), IO_ERROR, ("Failed", "the guest stopped again immediately: I/O error")),
        (described(IO_ERROR, "disk 'root': no space"), IO_ERROR, ("Failed", "the guest stopped again immediately: disk 'root': no space")),
        (described(dataclasses.replace(PAUSED, reason="watchdog")), IO_ERROR, None),
        (described(IO_ERROR), dataclasses.replace(PAUSED, reason="watchdog"), None),
        (described(PAUSED), IO_ERROR, None),
        (described(RUNNING), IO_ERROR, None),
        (described(dataclasses.replace(RUNNING, reason="I/O error")), IO_ERROR, None),
        (None, IO_ERROR, None),
        (described(IO_ERROR), None, None),
    ],
)
def test_a_guest_that_stopped_as_it_had_before_does_not_run(
    domain: messages.DomainStatus | None, before: Observation | None, expected: object
) -> None:
    now = dataclasses.replace(STARTED, status=dataclasses.replace(STARTED.status, domain=domain))
    assert judged(lambda: requests.require_that_it_runs(now, before)) == expected


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (Known(), "m1", True),
        (target(), "m1", False),
        (target("failed"), "m1", False),
        (target(), "m2", ("Conflict", "this pod is not an empty migration target")),
        (STARTED, "m2", ("Conflict", "this pod is not an empty migration target")),
        (NOTHING_CAME, "m1", ("Conflict", "this pod is not an empty migration target")),
        (NEVER_ASKED, "m1", ("Conflict", "this pod is not an empty migration target")),
    ],
)
def test_an_empty_pod_becomes_a_target_once(now: Known, uid: str, expected: object) -> None:
    assert judged(lambda: requests.is_to_prepare(now, messages.PrepareMigrationTarget(uid, MACHINE))) == expected


def test_a_domain_that_cannot_leave_is_not_waited_for() -> None:
    of_node = {"name": "root", "type": "HostDisk", "source": {"path": "/x"}}
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": [of_node]}})
    found = judged(lambda: requests.is_to_prepare(Known(), messages.PrepareMigrationTarget("m1", machine)))
    assert found == ("Invalid", "the disk 'root' is a file of its node")


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (target("arrived"), "m1", True),
        (target("succeeded"), "m1", False),
        (target("arrived"), "m2", ("Conflict", "nothing to release: the migration is unknown")),
        (target(), "m1", ("Conflict", "nothing to release: the migration is prepared")),
        (target("running"), "m1", ("Conflict", "nothing to release: the migration is running")),
        (target("failed"), "m1", ("Conflict", "nothing to release: the migration is failed")),
        (
            Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "succeeded"),))),
            "m1",
            ("Conflict", "nothing to release: the migration is succeeded"),
        ),
        (
            Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "arrived"),))),
            "m1",
            ("Conflict", "nothing to release: the migration is arrived"),
        ),
    ],
)
def test_only_what_arrived_is_released(now: Known, uid: str, expected: object) -> None:
    assert judged(lambda: requests.is_to_release(now, uid)) == expected


CANNOT = ("Conflict", "cannot migrate: the guest is off, being shut down, being suspended or being migrated already")


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (STARTED, "m1", True),
        (LEAVING, "m1", False),
        (LEAVING, "m2", CANNOT),
        (ENDED, "m1", CANNOT),
        (dataclasses.replace(STARTED, stopping=Stopping(9.0, 1.0)), "m1", CANNOT),
        (target("arrived"), "m2", ("Conflict", "cannot migrate: no guest runs in this pod")),
        (
            dataclasses.replace(STARTED, status=dataclasses.replace(STARTED.status, not_migratable="disk 'root' is of this node")),
            "m1",
            ("Invalid", "cannot migrate: disk 'root' is of this node"),
        ),
    ],
)
def test_a_guest_leaves_once_at_a_time(now: Known, uid: str, expected: object) -> None:
    assert judged(lambda: requests.is_to_migrate(now, messages.Migrate(uid))) == expected


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (LEAVING, "m1", True),
        (LEAVING, "m2", ("Conflict", "this pod does not take part in this migration")),
        (target(), "m1", False),
        (target("running"), "m1", False),
        (Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "failed"),))), "m1", False),
        (
            Known(Status(1, migrations=(MigrationStatus("m0", "outgoing", "failed"), MigrationStatus("m1", "outgoing", "running")))),
            "m0",
            False,
        ),
        (
            Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "failed"), MigrationStatus("m0", "outgoing", "running")))),
            "m1",
            False,
        ),
    ],
)
def test_libvirt_is_asked_to_abort_only_what_runs(now: Known, uid: str, expected: object) -> None:
    assert judged(lambda: requests.is_to_abort(now, uid)) == expected


NOT_OURS = ("Conflict", "this migration does not leave this pod")


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (LEAVING, "m1", True),
        (LEAVING, "m2", NOT_OURS),
        (target("running"), "m1", NOT_OURS),
        (Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "failed"),))), "m1", False),
        (Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "succeeded"),))), "m1", False),
    ],
)
def test_guest_is_paused_only_while_it_leaves(now: Known, uid: str, expected: object) -> None:
    assert judged(lambda: requests.is_to_pause(now, uid)) == expected


@pytest.mark.parametrize(
    ("now", "uid", "expected"),
    [
        (target("failed"), "m1", True),
        (target("failed"), "m2", False),
        (target("arrived"), "m1", False),
        (target("succeeded"), "m1", False),
        (Known(Status(1, migrations=(MigrationStatus("m1", "outgoing", "failed"),))), "m1", False),
    ],
)
def test_guest_is_lost_if_its_target_failed(now: Known, uid: str, *, expected: bool) -> None:
    assert requests.is_lost(now, uid) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (STARTED, True),
        (dataclasses.replace(STARTED, domain=None), False),
        (dataclasses.replace(STARTED, machine=None), False),
        (dataclasses.replace(STARTED, machine=dataclasses.replace(MACHINE, domain_xml="<domain/>")), False),
    ],
)
def test_libvirts_xml_is_shown_for_a_generated_domain(now: Known, *, expected: bool) -> None:
    assert requests.has_own_xml(now) is expected


@pytest.mark.parametrize("action", requests.DOING)
def test_frozen_guest_neither_ends_nor_freezes_again(action: messages.OperationAction) -> None:
    frozen = dataclasses.replace(STARTED, status=dataclasses.replace(STARTED.status, frozen=True))
    refused = action in ("SoftReboot", "Suspend", "SuspendToNodeDisk", "Freeze")
    assert requests.why_not_while_frozen(frozen, action).endswith(": the guest's file systems are frozen") is refused
    assert bool(requests.why_not_while_frozen(frozen, action)) is refused
    assert requests.why_not_while_frozen(STARTED, action) == ""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OperationInvalid("why"), "Conflict"),
        (OperationTimeout("why"), "Timeout"),
        (Unavailable("why"), "Timeout"),
        (MigrationFailed("why"), "Failed"),
        (DomainNotFound("why"), "Failed"),
        (HypervisorError("why"), "Failed"),
    ],
)
def test_libvirt_failures_are_refused_with_their_message(error: HypervisorError, reason: str) -> None:
    with pytest.raises(RequestRefused) as refused, requests.errors_refused():
        raise error
    found = refused.value
    assert (found.reason, str(found), found.disks) == (reason, "why", ())


def test_disks_of_the_pod_need_a_virt_handler_that_relays_them() -> None:
    blank = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "1Mi"}}
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": [blank, {**blank, "name": "more"}]}})
    why = "what the guest wrote to the disk 'scratch' exists only in its pod, and virt-handler of this node is of a version"
    why += " that does not copy disks"
    prepare, migrate = messages.PrepareMigrationTarget("m1", machine), messages.Migrate("m1")
    runs = dataclasses.replace(STARTED, machine=machine)
    assert judged(lambda: requests.is_to_prepare(Known(), prepare)) == ("Invalid", f"cannot prepare for a migration: {why}")
    assert judged(lambda: requests.is_to_migrate(runs, migrate)) == ("Invalid", f"cannot migrate: {why}")
    assert judged(lambda: requests.is_to_prepare(Known(), dataclasses.replace(prepare, relays_disks=True))) is True
    assert judged(lambda: requests.is_to_migrate(runs, dataclasses.replace(migrate, relays_disks=True))) is True


def operated(*numbers: int) -> Known:
    done = tuple(messages.OperationStatus(f"o{number}", number, "succeeded") for number in numbers)
    return dataclasses.replace(STARTED, status=dataclasses.replace(STARTED.status, operations=done))


FORGOTTEN = ("Invalid", "a later operation was already carried out, and possibly this one before it")


@pytest.mark.parametrize(
    ("now", "id_", "number", "expected"),
    [
        (STARTED, "a", 1, True),
        (operated(1), "o1", 1, False),
        (operated(1, 3), "o1", 1, False),
        (operated(1), "o2", 2, True),
        (operated(1, 3), "o2", 2, FORGOTTEN),
        (operated(3), "x", 3, FORGOTTEN),
        (Known(), "a", 1, ("Conflict", "cannot reset: no guest runs in this pod")),
        (ENDED, "a", 1, ("Conflict", "cannot reset: the guest is off")),
        (LEAVING, "a", 1, ("Conflict", "cannot reset: the guest is being migrated")),
        (target("arrived"), "a", 1, ("Conflict", "cannot reset: no guest runs in this pod")),
        (dataclasses.replace(STARTED, stopping=Stopping(1.0, 1.0)), "a", 1, ("Conflict", "cannot reset: the guest is being shut down")),
    ],
)
def test_an_operation_is_carried_out_once_and_an_old_one_never(now: Known, id_: str, number: int, expected: object) -> None:
    assert judged(lambda: requests.is_to_operate(now, messages.Operate(id_, number, "Reset"))) == expected


def test_a_guest_that_is_saved_gets_no_other_requests() -> None:
    saving = dataclasses.replace(STARTED, saving="a")
    assert judged(lambda: requests.require_guest_that_stays(saving, "reset")) == ("Conflict", "cannot reset: the guest is being suspended")
    assert judged(lambda: requests.is_to_migrate(saving, messages.Migrate("m2"))) == CANNOT


BLANK = {"type": "EmptyDisk", "source": {"size": "1Mi"}}


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ({}, ""),
        ({"devices": {"disks": [{**BLANK, "name": "a"}, {**BLANK, "name": "b"}]}}, "the disk 'a' exists only in this pod"),
        ({"devices": {"filesystems": [{"name": "f", "type": "ConfigMap", "source": {"name": "c"}}]}}, "as it cannot be migrated"),
    ],
)
def test_guest_with_parts_that_end_with_its_pod_is_not_saved(domain: dict[str, object], why: str) -> None:
    found = requests.why_not_saved(dataclasses.replace(STARTED, machine=dataclasses.replace(MACHINE, domain=domain)))
    assert bool(found) == bool(why)
    assert why in found
    assert requests.why_not_saved(Known())
