from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.v1alpha1 import status_validation
from controller.reconcilers.actions import Emit, WriteStatus
from controller.reconcilers.migrations import ended_drains
from controller.reconcilers.migrations.ended_drains import TOLD_SECONDS, is_over_for, may_end
from controller.reconcilers.migrations.migration_bounds import BEGIN_SECONDS, END_SECONDS, PREPARE_SECONDS
from tests.unit.controller.reconcilers.builders import a_migration, a_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OPEN: dict[str, Any] = {"metadata": {"name": "node1"}, "spec": {}}
CORDONED: dict[str, Any] = {"metadata": {"name": "node1"}, "spec": {"unschedulable": True}}


def ago(seconds: float) -> str:
    return times.to_rfc3339(NOW - timedelta(seconds=seconds))


def drained(*, phase: str = "Running", made: float = 60, node: str = "node1", **status: Any) -> dict[str, Any]:
    migration = a_migration(phase=phase, **status)
    marks = {evictions.POD_LABEL: "some-pod", evictions.DRAIN_LABEL: "true"}
    migration["metadata"] |= {"labels": marks, "annotations": {evictions.NODE_ANNOTATION: node}, "creationTimestamp": ago(made)}
    return migration


def there(since: float | None = 3600) -> dict[str, Any]:
    pod = a_pod()
    if since is not None:
        pod["metadata"]["creationTimestamp"] = ago(since)
    return pod


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running"])
def test_running_migration_of_the_drain_ends_it_for_all_guests(phase: str) -> None:
    assert is_over_for(there(), OPEN, [drained(phase=phase, made=86400, node="node2"), drained(phase=phase, made=3000)], NOW)


def test_stuck_migration_delays_evictions_for_a_bounded_time() -> None:
    """The guest took over its launcher, so neither side reports an end."""

    def stuck(seconds: float) -> dict[str, Any]:
        stamps = [{"phase": "PreparingTarget", "time": ago(seconds)}, {"phase": "Running", "time": ago(0)}]
        return drained(made=7200, phaseTransitionTimestamps=stamps, options={"completionTimeoutSeconds": 60})

    whole = PREPARE_SECONDS + BEGIN_SECONDS + 60 + END_SECONDS
    assert is_over_for(there(7200), OPEN, [stuck(whole - 1)], NOW)
    assert not is_over_for(there(7200), OPEN, [stuck(whole)], NOW)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_ended_drain_is_remembered_for_a_while(phase: str) -> None:
    first, last = (drained(phase=phase, made=3000, endTime=ago(seconds)) for seconds in (2000, TOLD_SECONDS - 1))
    assert is_over_for(there(), OPEN, [first, last], NOW)
    assert is_over_for(there(), OPEN, [last, first], NOW)
    assert not is_over_for(there(), OPEN, [first, last], NOW + timedelta(seconds=1))
    assert is_over_for(there(), OPEN, [first, drained(phase=phase, made=3000, endTime=ago(0))], NOW)


def test_on_a_node_that_is_emptied_or_not_known_none_is_over() -> None:
    for node in (None, CORDONED, {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}):
        assert not is_over_for(there(), node, [drained()], NOW)


@pytest.mark.parametrize("label", [evictions.POD_LABEL, evictions.DRAIN_LABEL])
def test_migrations_that_no_drain_caused_say_nothing_of_one(label: str) -> None:
    other = drained()
    del other["metadata"]["labels"][label]
    assert not is_over_for(there(), OPEN, [other], NOW)
    assert not may_end({**other, "status": {"phase": "Pending"}})
    assert not is_over_for(there(), OPEN, [], NOW)


def test_drain_migration_may_have_further_labels() -> None:
    migration = drained(phase="Pending")
    migration["metadata"]["labels"]["team"] = "a"
    assert is_over_for(there(), OPEN, [migration], NOW)
    assert may_end(migration)


def test_a_drain_of_another_node_is_not_this_nodes() -> None:
    assert not is_over_for(there(), OPEN, [drained(node="node0"), drained(node="node2")], NOW)
    assert not is_over_for(there(), OPEN, [drained(sourceNode="node2")], NOW)
    assert is_over_for(there(), OPEN, [drained(node="node2", sourceNode="node1")], NOW)


def test_pod_created_after_the_drain_is_not_part_of_it() -> None:
    assert is_over_for(there(60), OPEN, [drained(made=60)], NOW)
    assert not is_over_for(there(59), OPEN, [drained(made=60)], NOW)
    assert is_over_for(there(59), OPEN, [drained(made=60), drained(made=58)], NOW), "it went on"
    assert is_over_for(there(None), OPEN, [drained(made=60)], NOW)


def test_drain_migration_being_created_counts() -> None:
    made = drained(phase="")
    del made["metadata"]["creationTimestamp"], made["metadata"]["name"]
    assert is_over_for(there(0), OPEN, [made], NOW)


@pytest.mark.parametrize("told", ["2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "never", None])
def test_an_end_that_cannot_be_is_the_beginning(told: str | None) -> None:
    """Any node's virt-handler could write an end that delays evictions on other nodes."""
    for made, over in ((TOLD_SECONDS - 1, True), (TOLD_SECONDS, False)):
        assert is_over_for(there(), OPEN, [drained(phase="Succeeded", made=made, **({"endTime": told} if told else {}))], NOW) is over


def test_only_those_that_have_not_begun_end() -> None:
    assert all(may_end(drained(phase=phase)) for phase in ("", "Pending"))
    assert not any(may_end(drained(phase=phase)) for phase in ("Scheduling", "PreparingTarget", "Running", "Succeeded", "Failed"))
    assert not may_end(drained(phase="Pending", attempt=2)), "between two attempts it is in progress"


def test_the_end_says_why() -> None:
    migration = drained(phase="Pending", message="it waits", startTime=ago(9), observedGeneration=2)
    migration["metadata"]["generation"] = 3
    write, event = ended_drains.end(migration, NOW)
    assert isinstance(write, WriteStatus)
    assert not status_validation.validate_migration_status({"status": write.status}, migration)
    words = "node node1 was uncordoned before the migration began, which ended its drain"
    assert (write.status["phase"], write.status["endTime"], write.status["message"]) == ("Failed", ago(0), words)
    assert write.status["startTime"] == ago(9), "what was written stays"
    assert write.status["observedGeneration"] == 3
    said = condition(write.status["conditions"], "Succeeded") or {}
    assert (said["status"], said["reason"], said["message"], said["observedGeneration"]) == ("False", "DrainEnded", words, 3)
    assert event == Emit("Normal", "DrainEnded", words)
    assert ended_drains.has_ended({**migration, "status": write.status})
    assert not ended_drains.has_ended(migration)


def test_drain_migration_without_status_can_be_ended() -> None:
    write, _ = ended_drains.end(drained(phase=""), NOW)
    assert isinstance(write, WriteStatus)
    assert (write.status["phase"], len(write.status["conditions"])) == ("Failed", 1)
