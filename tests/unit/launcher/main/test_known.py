from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.spec import hot_plug
from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, Device, Observation, Progress
from launcher.main.decisions import known, life
from launcher.main.decisions.known import Known
from launcher.main.decisions.life import Run, Stopping
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


SOON = Stopping(100.0, 4.0)


def state_of(found: Known) -> str:
    return found.status.migrations[-1].state


# --- values read from it ---


def test_a_domain_has_the_name_of_its_machine() -> None:
    assert Known().name == ""
    assert STARTED.name == "default_testvm"


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ({}, 1),
        ({"devices": None}, 1),
        ({"devices": {}}, 1),
        ({"devices": {"consoles": [{}]}}, 1),
        ({"devices": {"consoles": [{}, {}]}}, 2),
        ({"devices": {"consoles": []}}, 0),
    ],
)
def test_serial_port_exists_unless_none_or_more_are_wanted(domain: dict[str, Any], expected: int) -> None:
    assert Known(machine=dataclasses.replace(MACHINE, domain=domain)).serial_ports == expected


def test_without_a_machine_there_is_no_console() -> None:
    assert Known().serial_ports == 0


@pytest.mark.parametrize(
    ("direction", "state", "arriving", "leaving"),
    [
        ("incoming", "prepared", True, False),
        ("incoming", "running", True, False),
        ("incoming", "arrived", True, False),
        ("incoming", "failed", True, False),
        ("incoming", "succeeded", False, False),
        ("outgoing", "running", False, True),
        ("outgoing", "succeeded", False, False),
        ("outgoing", "failed", False, False),
        ("outgoing", "cancelled", False, False),
    ],
)
def test_where_a_domain_goes_is_in_its_migrations(
    direction: messages.MigrationDirection, state: messages.MigrationState, *, arriving: bool, leaving: bool
) -> None:
    migration = MigrationStatus("m1", direction, state)
    found = Known(Status(1, migrations=(MigrationStatus("m0", "outgoing", "failed"), migration)))
    assert found.arriving == (migration if arriving else None)
    assert found.leaving == (migration if leaving else None)


def test_nothing_has_ended_that_has_no_ending() -> None:
    assert not STARTED.ended
    assert ENDED.ended


# --- the start ---


def test_a_machine_is_taken_and_given_back() -> None:
    assert known.adopted(Known(), MACHINE) == Known(machine=MACHINE)
    assert known.disowned(known.adopted(Known(), MACHINE)) == Known()


def test_a_making_begins_and_is_over() -> None:
    assert not Known().making
    assert not Known().abandoned
    making = known.making(Known(), begun=True)
    assert making == Known(making=True)
    assert known.making(making, begun=False) == Known()
    assert known.abandoned(making) == Known(making=True, abandoned=True)


def test_obstacles_to_migration_are_known_after_preparation() -> None:
    of_node = {"name": "root", "type": "HostDisk", "source": {"path": "/x"}}
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": [of_node]}})
    assert known.prepared(Known(machine=machine)).status == Status(1, not_migratable="the disk 'root' is a file of its node")
    assert known.prepared(Known()) == Known()


def test_created_domain_has_started_and_resumed_one_has_run() -> None:
    made = known.created(Known(machine=MACHINE))
    assert made == Known(Status(1, started=True), MACHINE)
    assert known.set_running(made) == dataclasses.replace(made, run=Run(ran=True))
    assert known.created(made) is made, "nothing changed, so nobody is told"


# --- the end ---


def test_an_ending_is_said_once() -> None:
    before = dataclasses.replace(STARTED, run=Run(migrated_to="m7"), status=dataclasses.replace(STARTED.status, domain=described(RUNNING)))
    found = known.ended(before, "crashed", life.PANICKED, 9.0)
    assert found.over
    assert found.status == Status(4, started=True, ending=Ending("crashed", life.PANICKED, "m7", (), 9.0, panicked=True))
    assert known.ended(found, "shutdown", "later", 10.0) == found


def test_an_ending_by_the_watchdog_says_so() -> None:
    ending = known.ended(STARTED, "crashed", life.WATCHDOG_FIRED, 9.0).status.ending
    assert ending is not None
    assert (ending.watchdog, ending.panicked) == (True, False)


def test_pod_after_its_run_ignores_later_ends() -> None:
    found = known.ended(dataclasses.replace(ENDED, over=False), "crashed", "later", 10.0)
    assert found == ENDED


def test_qemus_last_words_are_part_of_an_ending() -> None:
    found = known.with_cause(ENDED, ("no disk",))
    assert found.status.ending == dataclasses.replace(ENDING, log=("no disk",))
    assert found.status.revision == 4
    assert known.with_cause(STARTED, ("no disk",)) == STARTED


def test_lack_of_memory_is_part_of_an_ending() -> None:
    crashed = known.ended(STARTED, "crashed", "QEMU ended unexpectedly", 9.0)
    ending = known.with_cause(crashed, (), lacked_memory=True).status.ending
    assert ending is not None
    assert ending.message == f"QEMU ended unexpectedly; {life.LACKED_MEMORY}"


# --- observations of the domain ---


def described(seen: Observation, detail: str = "") -> messages.DomainStatus:
    kind: messages.Accelerator = "kvm" if seen.type == "kvm" else "qemu"
    names: dict[State, Any] = {State.RUNNING: "running", State.PAUSED: "paused"}
    return messages.DomainStatus(
        seen.name, seen.uuid, kind, names[seen.state], seen.reason, detail, cid=seen.cid, changes=messages.LIVE_CHANGES
    )


@pytest.mark.parametrize(
    "seen", [RUNNING, PAUSED, dataclasses.replace(RUNNING, type="kvm"), dataclasses.replace(RUNNING, type="test", cid=3)]
)
@pytest.mark.parametrize("before", [STARTED, LEAVING, Known(machine=MACHINE), Known()])
def test_an_active_domain_is_described(before: Known, seen: Observation) -> None:
    found = known.observed(before, dataclasses.replace(seen, reboots=2, watchdogs=3), 9.0)
    revision = before.status.revision + 1
    expected = dataclasses.replace(before.status, domain=described(seen), reboots=2, watchdogs=3, revision=revision)
    assert found == dataclasses.replace(before, status=expected, domain=dataclasses.replace(seen, reboots=2, watchdogs=3))


def test_block_devices_need_a_cgroup_that_can_be_changed() -> None:
    found = known.observed(dataclasses.replace(STARTED, gets_devices=False), RUNNING, 9.0).status.domain
    assert found is not None
    assert set(messages.LIVE_CHANGES) - set(found.changes) == {hot_plug.BLOCK}


def test_devices_have_the_names_of_the_spec() -> None:
    disks = [
        {"name": "root", "type": "EmptyDisk", "source": {"size": "1Gi"}},
        {"name": "data", "type": "EmptyDisk", "source": {"size": "1Gi"}},
    ]
    cards = (messages.Interface("default", "02:00:00:00:00:AA", "tap0"),)
    machine = dataclasses.replace(MACHINE, domain={"devices": {"disks": disks}}, interfaces=cards, targets={"data": "vda"})
    devices = (
        Device("disk", "vda", "pci 0000:04:00.0"),
        Device("disk", "vdb"),
        Device("disk", "sdz"),
        Device("interface", "tap0", "", "02:00:00:00:00:aa"),
    )
    found = known.observed(dataclasses.replace(STARTED, machine=machine), dataclasses.replace(RUNNING, devices=devices), 9.0)
    assert found.status.domain is not None
    assert found.status.domain.devices == (
        messages.DeviceStatus("disk", "data", "vda", "pci 0000:04:00.0"),
        messages.DeviceStatus("disk", "root", "vdb"),
        messages.DeviceStatus("interface", "default", "tap0"),
    )
    unknown = known.observed(dataclasses.replace(STARTED, machine=None), dataclasses.replace(RUNNING, devices=devices), 9.0)
    assert unknown.status.domain is not None
    assert unknown.status.domain.devices == ()


@pytest.mark.parametrize(
    ("machine", "model"),
    [
        (None, ""),
        (MACHINE, ""),
        (dataclasses.replace(MACHINE, domain={"cpu": {"model": "EPYC"}}), "EPYC"),
        (dataclasses.replace(MACHINE, domain={"cpu": {"model": "host-model"}}), ""),
        (dataclasses.replace(MACHINE, domain={"cpu": {"model": "EPYC"}}, domain_xml="<domain/>"), ""),
    ],
)
def test_the_model_is_told_that_the_domain_was_given(machine: messages.Machine | None, model: str) -> None:
    found = known.observed(Known(machine=machine), RUNNING, 9.0).status.domain
    assert found is not None
    assert found.cpu_model == model


def test_a_second_look_at_the_same_changes_nothing() -> None:
    once = known.observed(STARTED, RUNNING, 9.0)
    assert known.observed(once, RUNNING, 10.0).status is once.status


WITH_ROOT = dataclasses.replace(MACHINE, domain={"devices": {"disks": [{"name": "root", "type": "EmptyDisk", "source": {"size": "1Mi"}}]}})


@pytest.mark.parametrize(("machine", "detail"), [(WITH_ROOT, "disk 'root': no space"), (None, "disk 'vda': no space")])
def test_disks_that_failed_are_named_as_the_specification_does(machine: messages.Machine | None, detail: str) -> None:
    seen = dataclasses.replace(PAUSED, reason="I/O error", disk_errors=(("vda", "no space"),))
    found = known.observed(Known(machine=machine), seen, 9.0)
    assert found.status.domain == described(seen, detail)


@pytest.mark.parametrize(
    ("errors", "full"), [((), False), ((("vda", "I/O error"), ("vdb", NO_SPACE)), True), ((("vda", "I/O error"),), False)]
)
def test_a_disk_without_room_is_told_apart(errors: tuple[tuple[str, str], ...], full: bool) -> None:
    seen = dataclasses.replace(PAUSED, reason="I/O error", disk_errors=errors)
    told = known.observed(Known(), seen, 9.0).status.domain
    assert told is not None
    assert told.full is full


def test_room_counts_until_the_guest_runs_or_stops_again() -> None:
    stopped = known.observed(STARTED, dataclasses.replace(PAUSED, reason="I/O error"), 9.0)
    roomy = known.room_found(stopped)
    assert (stopped.status.has_room, roomy.status.has_room) == (False, True)
    assert known.observed(roomy, dataclasses.replace(PAUSED, reason="I/O error"), 10.0).status is roomy.status
    assert not known.observed(roomy, RUNNING, 10.0).status.has_room
    assert not known.observed(roomy, dataclasses.replace(PAUSED, state=State.PMSUSPENDED), 10.0).status.has_room
    assert not known.set_running(roomy).status.has_room
    assert not known.observed(stopped, dataclasses.replace(PAUSED, reason="I/O error"), 10.0).status.has_room


@pytest.mark.parametrize(("reboots", "is_frozen"), [(0, True), (1, True), (2, False)])
def test_file_systems_stay_frozen_until_the_guest_reboots(reboots: int, *, is_frozen: bool) -> None:
    frozen = known.frozen(known.observed(STARTED, dataclasses.replace(RUNNING, reboots=1), 9.0), 50.0)
    found = known.observed(frozen, dataclasses.replace(RUNNING, reboots=reboots), 10.0)
    assert (found.status.frozen, found.thaw_at) == ((True, 50.0) if is_frozen else (False, None))


def test_disks_that_fail_while_the_guest_goes_on_are_told() -> None:
    faults = (messages.DiskFault("data", full=True),)
    assert known.disks_failed(STARTED, faults).status.disk_faults == faults
    assert known.disks_failed(known.disks_failed(STARTED, faults), ()).status.disk_faults == ()


def test_after_the_end_nothing_is_seen_any_more() -> None:
    assert known.observed(ENDED, RUNNING, 9.0) is ENDED


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        (STARTED, "shutdown"),
        (dataclasses.replace(STARTED, run=Run(ran=True, asked_to_stop=True)), "shutdown-requested"),
        (dataclasses.replace(STARTED, making=True), "shutdown"),
    ],
)
def test_a_started_domain_that_is_off_has_ended(before: Known, kind: str) -> None:
    found = known.observed(before, OFF, 9.0)
    assert found.status.ending is not None
    assert (found.status.ending.kind, found.status.ending.time) == (kind, 9.0)
    assert (found.domain, found.status.domain, found.over) == (OFF, None, True)


@pytest.mark.parametrize(("before", "kind"), [(STARTED, "crashed"), (known.destroying(STARTED), "destroyed")])
def test_started_domain_that_is_gone_crashed_or_was_destroyed(before: Known, kind: str) -> None:
    found = known.observed(before, None, 9.0)
    assert found.status.ending is not None
    assert found.status.ending.kind == kind


@pytest.mark.parametrize("before", [Known(machine=MACHINE), Known(machine=MACHINE, making=True), LEAVING])
@pytest.mark.parametrize("seen", [None, OFF])
def test_coming_or_leaving_domain_has_not_ended(before: Known, seen: Observation | None) -> None:
    status = dataclasses.replace(before.status, domain=described(RUNNING))
    found = known.observed(dataclasses.replace(before, status=status), seen, 9.0)
    assert found.status == dataclasses.replace(before.status, revision=status.revision + 1)
    assert (found.domain, found.over) == (seen, False)


@pytest.mark.parametrize(
    ("before", "seen", "state", "over"),
    [
        (target(), ON_ITS_WAY, "running", False),
        (target("running"), PAUSED, "arrived", False),
        (target("arrived"), RUNNING, "arrived", False),
        (known.releasing(target("arrived")), RUNNING, "succeeded", False),
        (target(), None, "prepared", False),
        (target("running"), None, "failed", False),
        (target("arrived"), OFF, "failed", False),
        (target(stopping=SOON), None, "prepared", False),
        (target("running", stopping=SOON), None, "failed", True),
        (target("arrived", stopping=SOON), None, "failed", True),
        (target("failed", stopping=SOON), None, "failed", False),
        (target("failed", stopping=SOON, over=True), None, "failed", True),
    ],
)
def test_observations_advance_an_incoming_migration(before: Known, seen: Observation | None, state: str, *, over: bool) -> None:
    found = known.observed(before, seen, 9.0)
    assert (state_of(found), found.over) == (state, over)
    assert found.status.ending is None
    assert found.status.started is (state == "succeeded")
    assert found.run.ran is (state == "succeeded")
    assert (found.status.domain is not None) is (seen is not None and seen.active)
    ends = found.status.migrations[-1].end_time
    assert ends == (9.0 if state in ("succeeded", "failed") and state_of(before) != state else 0.0)


def test_agent_facts_stay_when_it_disconnects() -> None:
    interfaces = (messages.InterfaceStatus("default", "m", "eth0", ("10.0.2.2",)),)
    agent = messages.AgentStatus(connected=True, hostname="guest")
    answered = known.agent_answered(STARTED, agent, interfaces)
    assert answered.status == dataclasses.replace(STARTED.status, agent=agent, interfaces=interfaces, revision=4)
    gone = known.agent_gone(answered)
    assert gone.status == dataclasses.replace(answered.status, agent=dataclasses.replace(agent, connected=False), revision=5)
    assert known.agent_gone(gone) is gone


def test_silent_agent_has_a_bounded_problem_until_it_answers() -> None:
    agent = messages.AgentStatus(connected=True, hostname="guest")
    answered = known.agent_answered(STARTED, agent, ())
    silent = known.agent_unresponsive(answered, "timed\x1b out" + "x" * 1000)
    told = silent.status.agent
    assert (told.connected, told.hostname, told.problem[:9], len(told.problem)) == (True, "guest", "timed out", known.MAX_PROBLEM)
    assert known.agent_answered(silent, agent, ()).status.agent == agent
    assert known.agent_gone(silent).status.agent == dataclasses.replace(agent, connected=False)
    assert known.agent_unresponsive(STARTED, "no").status.agent == messages.AgentStatus(connected=True, problem="no")


def test_viewers_are_counted() -> None:
    assert known.viewed(STARTED, 2).status == dataclasses.replace(STARTED.status, consoles=2, revision=4)


# --- migrations ---


@pytest.mark.parametrize(
    ("changed", "own"),
    [
        (MigrationStatus("m1", "incoming", "prepared"), False),
        (MigrationStatus("m1", "incoming", "arrived"), False),
        (MigrationStatus("m1", "incoming", "failed"), False),
        (MigrationStatus("m1", "incoming", "succeeded"), True),
        (MigrationStatus("m1", "outgoing", "running"), False),
        (MigrationStatus("m1", "outgoing", "succeeded"), False),
    ],
)
def test_a_domain_that_was_released_here_is_the_pods_own(changed: MigrationStatus, *, own: bool) -> None:
    found = known.with_migration(Known(machine=MACHINE), changed)
    assert found.status.migrations == (changed,)
    assert (found.status.started, found.run.ran) == (own, own)


def test_a_release_is_the_success_of_a_migration() -> None:
    found = known.released(target("arrived"), "m1", 9.0)
    assert found.status.migrations == (dataclasses.replace(INCOMING, state="succeeded", end_time=9.0),)
    assert found.status.started
    assert known.released(target("arrived"), "m2", 9.0) == target("arrived")


@pytest.mark.parametrize(
    ("figures", "is_missing"),
    [
        ({"state": "arrived"}, True),
        ({"state": "arrived", "elapsed_milliseconds": 1}, False),
        ({"state": "succeeded", "end_time": 100.0}, True),
        ({"state": "succeeded", "end_time": 100.0, "elapsed_milliseconds": 1}, False),
        ({"state": "succeeded", "end_time": 40.5}, True),
        ({"state": "succeeded", "end_time": 40.0}, False),
        ({"state": "succeeded", "end_time": 39.0}, False),
        ({"state": "succeeded", "end_time": 100.5}, False),  # the clock was set back
        ({"state": "succeeded", "end_time": 100.0, "direction": "outgoing"}, False),
        ({"state": "running", "end_time": 100.0}, False),
        ({"state": "failed", "end_time": 100.0}, False),
    ],
)
def test_statistics_of_an_arrival_are_missing_for_a_minute(figures: dict[str, Any], *, is_missing: bool) -> None:
    migrations = (MigrationStatus("m0", "outgoing", "failed"), dataclasses.replace(INCOMING, **figures))
    assert known.unmeasured(Known(Status(3, migrations=migrations)), 100.0) == ("m1" if is_missing else "")


def test_statistics_belong_to_a_known_migration() -> None:
    figures = Progress(elapsed_milliseconds=700, downtime_milliseconds=30)
    (told,) = known.measured(target("arrived"), "m1", figures).status.migrations
    assert told == dataclasses.replace(INCOMING, state="arrived", elapsed_milliseconds=700, downtime_milliseconds=30)
    assert known.measured(target("arrived"), "m2", figures) == target("arrived")


@pytest.mark.parametrize(
    ("before", "uid", "state"),
    [
        (target(), "m1", "cancelled"),
        (target(), "m2", "prepared"),
        (target("running"), "m1", "running"),
        (target("arrived"), "m1", "arrived"),
        (LEAVING, "m1", "running"),
        (Known(Status(3, migrations=(MigrationStatus("m1", "outgoing", "prepared"),))), "m1", "prepared"),
    ],
)
def test_only_a_target_to_which_nothing_comes_yet_stops_waiting(before: Known, uid: str, state: str) -> None:
    found = known.withdrawn(before, uid, 9.0)
    assert state_of(found) == state
    assert found.status.migrations[-1].end_time == (9.0 if state == "cancelled" else 0.0)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_guest_that_stayed_goes_on(state: messages.MigrationState) -> None:
    outcome = dataclasses.replace(OUTGOING, state=state)
    found = known.outgoing_ended(LEAVING, outcome, 9.0)
    assert found == dataclasses.replace(LEAVING, status=dataclasses.replace(LEAVING.status, migrations=(outcome,), revision=4))


def test_a_guest_that_left_has_ended_here() -> None:
    outcome = dataclasses.replace(OUTGOING, state="succeeded")
    found = known.outgoing_ended(LEAVING, outcome, 9.0)
    assert found.status.migrations == (outcome,)
    assert found.status.ending == Ending("migrated", "the guest continues in another pod", "m1", (), 9.0)
    assert found.run == Run(ran=True, migrated_to="m1")
    assert found.over


def test_passt_end_is_recorded_each_time_and_cleared() -> None:
    lost = known.passt_ended(STARTED, "passt ended with -9\n" + "x" * 999)
    assert (lost.status.passt_ends, lost.status.revision) == (1, 4)
    assert lost.status.passt_problem.startswith("passt ended with -9")
    assert len(lost.status.passt_problem) <= known.MAX_PROBLEM
    found = known.passt_works_again(lost)
    assert (found.status.passt_ends, found.status.passt_problem) == (1, "")
    assert known.passt_ended(found, "again").status.passt_ends == 2
    for before in (dataclasses.replace(lost, over=True), dataclasses.replace(known.ended(lost, "shutdown", "", 1.0), over=False)):
        assert known.passt_ended(before, "x") is before
        assert known.passt_works_again(before) is before


def test_file_system_loss_is_recorded_once_and_not_after_the_end() -> None:
    lost = known.filesystem_lost(STARTED, "data")
    assert lost.status == dataclasses.replace(STARTED.status, lost_filesystems=("data",), revision=4)
    assert known.filesystem_lost(lost, "data") is lost
    assert known.filesystem_lost(lost, "more").status.lost_filesystems == ("data", "more")
    for before in (dataclasses.replace(ENDED, over=False), dataclasses.replace(STARTED, over=True)):
        assert known.filesystem_lost(before, "data") is before


# --- operations ---


def test_an_operation_has_begun_and_then_is_over() -> None:
    begun = known.operating(known.operating(STARTED, "a", 4), "b", 5)
    assert begun.status.operations == (messages.OperationStatus("a", 4), messages.OperationStatus("b", 5))
    assert begun.status.revision == STARTED.status.revision + 2
    assert begun.status.operation_of("b") == messages.OperationStatus("b", 5, "running")
    assert begun.status.operation_of("c") is None
    assert known.operated(begun, "a").status.operation_of("b") == begun.status.operation_of("b")
    over = known.operated(known.operated(begun, "a"), "b", "no\nroom")
    assert over.status.operations == (
        messages.OperationStatus("a", 4, "succeeded"),
        messages.OperationStatus("b", 5, "failed", "no | room"),
    )


def test_the_newest_operations_are_remembered() -> None:
    now = STARTED
    for number in range(1, messages.MAX_OPERATIONS + 3):
        now = known.operating(now, f"o{number}", number)
    assert [each.number for each in now.status.operations] == [*range(3, messages.MAX_OPERATIONS + 3)]
    long = known.operated(now, "o3", "x" * 999).status.operation_of("o3")
    assert long is not None
    assert len(long.message) == known.MAX_PROBLEM


# --- saving ---

SAVING = known.saving(known.operating(STARTED, "a", 4), "a")


def test_a_domain_that_is_gone_while_it_is_saved_has_not_ended() -> None:
    gone = known.observed(SAVING, dataclasses.replace(OFF, reason="saved"), 2.0)
    assert (gone.ended, gone.over, gone.status.domain) == (False, False, None)
    assert known.observed(known.save_failed(gone, "no room"), OFF, 2.0).ended


def test_a_saved_domain_ends_with_its_operation_in_one_change() -> None:
    over = known.saved(SAVING, "the words", 7.0)
    assert over.status.ending == Ending("saved", "the words", time=7.0)
    assert over.status.operations == (messages.OperationStatus("a", 4, "succeeded"),)
    assert (over.over, over.saving) == (True, "")


def test_a_failed_save_ends_only_its_operation() -> None:
    failed = known.save_failed(known.save_advanced(SAVING, 40), "no room")
    assert failed.status.operations == (messages.OperationStatus("a", 4, "failed", "no room", 40),)
    assert (failed.ended, failed.saving) == (False, "")


def test_progress_of_a_save_never_decreases() -> None:
    saving = known.saving(known.operating(known.operating(SAVING, "c", 5), "b", 6), "b")
    advanced = known.save_advanced(known.save_advanced(saving, 40), 30)
    assert [each.percent for each in advanced.status.operations] == [0, 0, 40]


@pytest.mark.parametrize("used", [True, False])
def test_an_end_says_whether_the_image_was_used(*, used: bool) -> None:
    ended = known.ended(STARTED, "start-failed", "no", 1.0, image_used=used).status.ending
    assert ended is not None
    assert ended.image_used is used
    assert not (known.ended(STARTED, "start-failed", "no", 1.0).status.ending or ended).image_used
