from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apiserver.apis.virt.lifecycle import phases

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@pytest.mark.parametrize("table", [phases.VM_TRANSITIONS, phases.MIGRATION_TRANSITIONS])
def test_every_phase_that_can_be_reached_has_a_row(table: dict[str, frozenset[str]]) -> None:
    assert {phase for row in table.values() for phase in row} == set(table) - {""}


def test_a_final_migration_stays_final() -> None:
    for final in phases.MIGRATION_FINAL:
        assert not phases.MIGRATION_TRANSITIONS[final]
        assert not phases.is_unfinished({"status": {"phase": final}})
    assert phases.is_unfinished({})


def test_every_virtual_machine_phase_can_reach_an_end() -> None:
    reached = set(phases.ENDED)
    for _ in phases.VM_TRANSITIONS:
        reached |= {phase for phase, following in phases.VM_TRANSITIONS.items() if following & reached}
    assert reached == set(phases.VM_TRANSITIONS)


def test_from_the_assignment_on_there_may_be_a_guest() -> None:
    assert phases.HANDLED == phases.OWNED_BY_HANDLER | {phases.UNKNOWN} == phases.WITH_GUEST


@pytest.mark.parametrize(
    ("reason", "stays"),
    [("DiskIOError", True), ("DiskImageNotFound", False), ("SecretNotFound", False), ("DiskInUse", False), ("ClaimNotBound", False)],
)
def test_end_keeps_failed_disk_conditions_and_drops_waiting_ones(reason: str, stays: bool) -> None:
    status = {"phase": "Failed", "nodeName": "n", "conditions": [{"type": "DisksReady", "status": "False", "reason": reason}]}
    left = phases.without_guest(status)
    assert (left["phase"], "nodeName" in left, bool(left["conditions"])) == ("Failed", False, stays)


def test_an_object_without_a_status_has_no_phase() -> None:
    assert phases.phase_of({}) == ""
    assert phases.phase_of({"status": {"phase": None}}) == ""


def test_entering_a_phase_notes_the_moment_once() -> None:
    status = phases.enter({"attempt": 1}, phases.SCHEDULING, NOW)
    assert status == {
        "attempt": 1,
        "phase": "Scheduling",
        "phaseTransitionTimestamps": [{"phase": "Scheduling", "time": "2026-01-02T03:04:05.000678Z"}],
    }
    assert phases.enter(status, phases.SCHEDULING, datetime.now(UTC)) == status


def test_new_attempt_resets_phase_timestamps() -> None:
    status = phases.enter(phases.enter({}, phases.SCHEDULING, NOW), phases.FAILED, NOW)
    assert [each["phase"] for each in status["phaseTransitionTimestamps"]] == ["Scheduling", "Failed"]
    stopped = phases.enter(status, phases.STOPPED, NOW)
    assert [each["phase"] for each in stopped["phaseTransitionTimestamps"]] == ["Scheduling", "Failed", "Stopped"]
    again = phases.enter(status, phases.SCHEDULING, NOW)
    assert [each["phase"] for each in again["phaseTransitionTimestamps"]] == ["Scheduling"]


def test_the_list_of_timestamps_is_bounded() -> None:
    status: dict[str, object] = {}
    for turn in range(100):
        status = phases.enter(status, phases.RUNNING if turn % 2 else phases.UNKNOWN, NOW)
    entries = status["phaseTransitionTimestamps"]
    assert isinstance(entries, list)
    assert len(entries) == phases.MAX_TIMESTAMPS


def test_a_machine_with_a_guest_or_an_image_keeps_its_hardware() -> None:
    for phase in phases.VM_PHASES:
        assert phases.keeps_guest({"status": {"phase": phase}}) == (phase in phases.WITH_GUEST)
        assert phases.keeps_guest({"status": {"phase": phase, "managedSave": {"id": "a"}}})
    assert not phases.keeps_guest({})
