from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta import times
from controller.reconcilers.virtual_machines import migration_record
from tests.unit.controller.reconcilers.builders import a_migration, a_vm, an_attempt

NOW = times.parse("2026-01-01T00:01:00Z")
BEGUN: dict[str, Any] = {"sourceNode": "node1", "sourcePod": "from", "targetPod": "to", "startTime": "2026-01-01T00:00:30Z"}
RECORD = {"name": "move", "uid": "migration-uid", **BEGUN}


def a_machine(record: dict[str, Any] | None = None, pod: str = "from-uid") -> dict[str, Any]:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    vm["status"] |= {"podUID": pod, **({"migration": record} if record else {})}
    return vm


def recorded(vm: dict[str, Any], *migrations: dict[str, Any]) -> Any:
    return migration_record.record(vm, migrations, NOW)


@pytest.mark.parametrize("phase", ["Scheduling", "PreparingTarget", "TargetReady", "Running"])
def test_begun_migration_is_recorded_with_its_phase(phase: str) -> None:
    migration = a_migration(phase=phase, sourcePodUID="from-uid", targetAddress="192.0.2.1:8445", **BEGUN)
    assert recorded(a_machine(), migration) == {**RECORD, "phase": phase}


def test_waiting_migration_is_not_recorded() -> None:
    assert recorded(a_machine(), a_migration()) is None
    assert recorded(a_machine(), a_migration(phase="Pending")) is None


def test_migration_of_another_pod_is_not_recorded() -> None:
    """The VM was restarted, or the copy of the Migration is older than the move."""
    migration = a_migration(phase="Running", sourcePodUID="from-uid", **BEGUN)
    moved = {**RECORD, "phase": "Succeeded"}
    assert recorded(a_machine(moved, pod="to-uid"), migration) == moved
    assert recorded(a_machine(pod="to-uid"), migration) is None


@pytest.mark.parametrize("phase", ["Failed", "Cancelled"])
def test_the_end_of_one_that_left_the_guest_where_it_was_is_told(phase: str) -> None:
    ended = a_migration(phase=phase, sourcePodUID="from-uid", endTime="2026-01-01T00:00:45Z", **BEGUN)
    found = recorded(a_machine({**RECORD, "phase": "Running"}), ended)
    assert found == {**RECORD, "phase": phase, "endTime": "2026-01-01T00:00:45Z"}
    assert recorded(a_machine(found), ended) == found


def test_a_success_is_the_targets_to_tell() -> None:
    known = {**RECORD, "phase": "Running"}
    succeeded = a_migration(phase="Succeeded", sourcePodUID="from-uid", endTime="2026-01-01T00:00:45Z", **BEGUN)
    assert recorded(a_machine(known), succeeded) == known


def test_missing_migration_is_recorded_as_cancelled() -> None:
    found = recorded(a_machine({**RECORD, "phase": "Running"}))
    assert found == {**RECORD, "phase": "Cancelled", "endTime": "2026-01-01T00:01:00Z"}
    assert recorded(a_machine(found)) == found


def test_a_migration_that_is_not_sound_is_not_copied() -> None:
    broken = a_migration(phase="Running", sourcePodUID="from-uid", **BEGUN)
    broken["status"]["targetNode"] = ["node2"]
    known = {**RECORD, "phase": "Scheduling"}
    assert recorded(a_machine(), broken) is None
    assert recorded(a_machine(known), broken) == known


def test_the_next_one_follows_the_last_one() -> None:
    next_one = a_migration(phase="Scheduling", sourcePodUID="from-uid", **BEGUN)
    next_one["metadata"] |= {"name": "again", "uid": "another-uid"}
    found = recorded(a_machine({**RECORD, "phase": "Failed", "endTime": "2026-01-01T00:00:45Z"}), a_migration(phase="Failed"), next_one)
    assert found == {**RECORD, "name": "again", "uid": "another-uid", "phase": "Scheduling"}
