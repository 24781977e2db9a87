from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1 import validation
from controller.reconcilers.settings import MigrationLimits, Settings, WorkloadUpdate
from controller.reconcilers.upgrades import workload_update_plan as planning
from controller.reconcilers.upgrades.workload_update_plan import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Candidate, Observed, Plan
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEW, OLD = "launcher:v2", "launcher:v1"
STUCK = {"type": "Migratable", "status": "False", "reason": "NotMigratable", "message": "it has a host device"}
OUTDATED = {"type": "LauncherOutdated", "status": "True"}


def ago(seconds: float) -> str:
    return times.to_rfc3339(NOW - timedelta(seconds=seconds))


class World:
    def __init__(self, strategy: Any = "LiveMigrate", size: int = 2, per_node: int = 2, per_cluster: int = 5) -> None:
        self.settings = Settings(launcher_image=NEW, workload_update=WorkloadUpdate(strategy, size, 60.0))
        self.limits = MigrationLimits(per_node=per_node, per_cluster=per_cluster)
        self.candidates: list[Candidate] = []
        self.migrations: list[Object] = []
        self.rest: dict[str, Any] = {}

    def put(self, name: str, node: str = "node1", *conditions: dict[str, Any], **more: Any) -> Candidate:
        vm = a_vm(phase=more.pop("phase", "Running"), attempts=[an_attempt()], deleting=more.pop("deleting", False))
        pod = a_pod(node=node, deleting=more.pop("pod_deleting", False))
        pod["spec"]["containers"][0]["image"] = more.pop("image", OLD)
        for obj in (vm, pod):
            obj["metadata"] |= {"name": name if obj is vm else f"pod-of-{name}", "uid": f"uid-of-{name}"}
        vm["status"] |= {"nodeName": node, "conditions": [OUTDATED, *conditions]}
        vm["spec"] |= more
        self.candidates.append(Candidate(vm, pod, {}))
        return self.candidates[-1]

    def migrate(self, machine: str, phase: str, created: float, *, ours: bool = True, **status: Any) -> None:
        made = a_migration(phase=phase, **status)
        made["metadata"] |= {
            "name": f"m{len(self.migrations)}",
            "creationTimestamp": ago(created),
            "labels": {names.WORKLOAD_UPDATE_LABEL: planning.mark(self.settings)} if ours else {},
            "ownerReferences": [
                {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": machine, "uid": f"uid-of-{machine}"}
            ],
        }
        made["spec"]["selector"]["name"] = machine
        self.migrations.append(made)

    def plan(self) -> Plan:
        given: dict[str, Any] = {"nodes": {}, **self.rest}
        return planning.plan(Observed(self.candidates, self.migrations, now=NOW, settings=self.settings, limits=self.limits, **given))

    def moved(self) -> list[str]:
        return [name_of(vm) for vm, _ in self.plan().migrations]

    def evicted(self) -> list[str]:
        return [name_of(vm) for vm, _ in self.plan().evictions]


def test_batch_migrates_at_the_lowest_priority_with_a_reason() -> None:
    world = World(size=2)
    for name in ("c", "a", "b"):
        world.put(name, node=f"node-of-{name}")
    (vm, made), _ = world.plan().migrations
    assert world.moved() == ["a", "b"]
    assert (name_of(vm), made["metadata"]["generateName"], made["metadata"]["namespace"]) == ("a", "a-update-", "default")
    assert made["spec"] == {"selector": {"name": "a"}, "priority": -100}
    assert made["metadata"]["labels"] == {"kubevirt.io/workload-update": planning.mark(world.settings)}
    assert [(each["kind"], each["uid"]) for each in made["metadata"]["ownerReferences"]] == [("VirtualMachine", "uid-of-a")]
    made["metadata"]["name"] = "a-update-x"
    assert validation.validate_migration(made) == []


def test_image_mark_differs_per_image_and_fits_a_label() -> None:
    marks = {planning.mark(Settings(launcher_image=image)) for image in ("x:1", "x:2", "x" * 900)}
    assert len(marks) == 3
    assert all(len(each) == 10 and each.isalnum() for each in marks)


@pytest.mark.parametrize(
    ("phase", "created", "room"),
    [("Running", 500, 1), ("", 5, 1), ("Succeeded", 59, 1), ("Succeeded", 60, 2), ("Failed", 30, 1), ("Failed", 61, 2)],
)
def test_running_and_recent_migrations_count_for_the_batch(phase: str, created: float, room: int) -> None:
    world = World(size=2)
    world.migrate("other", phase, created)
    world.put("a", "node1")
    world.put("b", "node2")
    assert len(world.moved()) == room


def test_excess_of_running_migrations_starts_none() -> None:
    world = World(size=1)
    for name in ("other", "another"):
        world.migrate(name, "Running", 500)
    world.put("a")
    assert world.moved() == []


def test_earlier_upgrades_and_users_migrations_do_not_count() -> None:
    world = World(size=1)
    world.migrate("other", "Running", 5, ours=False)
    world.put("a", "node2")
    assert world.moved() == ["a"]


def test_only_free_places_of_node_and_cluster_are_used() -> None:
    world = World(size=9, per_node=2, per_cluster=4)
    world.migrate("other", "Running", 500, ours=False, sourceNode="node1")
    nodes = world.rest["nodes"] = {("default", "other"): "node1"}
    for name in ("a", "b"):
        world.put(name, "node1")
    for name in ("c", "d", "e"):
        world.put(name, "node2")
    assert world.moved() == ["a", "c", "d"]
    world.migrate("another", "Pending", 500)
    nodes["default", "another"] = "node1"
    assert world.moved() == ["c", "d"]
    world.migrate("a third", "Pending", 500)
    nodes["default", "a third"] = "node3"
    assert world.moved() == ["c"]


@pytest.mark.parametrize(
    ("phase", "attempt", "nodes", "moved"),
    [
        ("Pending", None, {("default", "other"): "node1"}, ["a"]),
        ("Pending", 2, {("default", "other"): "node1"}, []),
        ("Scheduling", None, {("default", "other"): "node1"}, []),
        ("Running", None, {}, ["a"]),
        ("Succeeded", None, {("default", "other"): "node1"}, ["a"]),
    ],
    ids=["waits for its turn", "waits for its next attempt", "has begun", "of a lost machine", "is over, and its machine has another"],
)
def test_queued_migrations_take_no_place_from_an_upgrade(phase: str, attempt: int | None, nodes: dict[Any, str], moved: list[str]) -> None:
    world = World(per_cluster=1)
    world.migrate("other", phase, 500, ours=False, **({"attempt": attempt} if attempt else {}))
    world.put("a", "node2")
    world.rest["nodes"] = nodes
    assert world.moved() == moved


@pytest.mark.parametrize(("limits", "node"), [({"per_node": 1}, "node1"), ({"per_cluster": 1}, "node2")], ids=["of a node", "in all"])
def test_exceeded_limits_start_no_migration(limits: dict[str, int], node: str) -> None:
    world = World(**limits)
    nodes = world.rest["nodes"] = {}
    for name in ("other", "another"):
        world.migrate(name, "Running", 500, ours=False, sourceNode="node1")
        nodes["default", name] = "node1"
    world.put("a", node)
    assert world.moved() == []


def test_place_is_counted_at_the_source_node() -> None:
    world = World(per_node=1)
    world.migrate("other", "Running", 500, ours=False, sourceNode="node1")
    world.rest["nodes"] = {("default", "other"): "node2"}
    world.put("a", "node1")
    world.put("b", "node2")
    assert world.moved() == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Stopping"},
        {"phase": "Unknown"},
        {"deleting": True},
        {"pod_deleting": True},
        {"image": NEW},
        {"runStrategy": "Halted"},
        {"evictionStrategy": "External"},
    ],
    ids=str,
)
def test_ending_current_or_external_guests_are_left_alone(change: dict[str, Any]) -> None:
    for strategy in ("LiveMigrate", "Evict"):
        world = World(strategy)
        world.put("a", **change)
        assert world.plan() == Plan()


def test_ended_pods_and_requested_restarts_are_left_alone() -> None:
    world = World()
    over = world.put("a").pod
    assert over is not None
    over["status"] = {"phase": "Failed"}
    restarted = world.put("b").vm
    restarted["status"]["request"] = {"action": "Restart", "attempt": 2, "runStrategy": "RerunOnFailure"}
    assert world.plan() == Plan()
    del restarted["status"]["request"]
    assert world.moved() == ["b"]


def test_machines_without_pod_or_under_eviction_are_left_alone() -> None:
    world = World()
    world.candidates.append(Candidate(world.put("a").vm, None, {}))
    world.candidates.pop(0)
    world.put("b", "node1", {"type": "DisruptionTarget", "status": "True"})
    assert world.plan() == Plan()


def test_a_machine_that_is_migrated_anyway_is_not_migrated_twice() -> None:
    world = World()
    world.migrate("a", "Pending", 5, ours=False)
    world.put("a")
    assert world.moved() == []


@pytest.mark.parametrize(("times_failed", "pause"), [(1, FIRST_PAUSE_SECONDS), (2, 600), (3, 1200), (5, LONGEST_PAUSE_SECONDS)])
def test_failed_upgrade_migration_is_retried_with_growing_pauses(times_failed: int, pause: float) -> None:
    for since, again in ((pause - 1, []), (pause, ["a"]), (pause + 1, ["a"])):
        world = World()
        for number in range(times_failed):
            world.migrate("a", "Failed", 9000 + number, endTime=ago(since if not number else 9000))
        world.put("a")
        assert world.moved() == again


def test_cancelled_upgrade_migration_is_retried_after_an_hour() -> None:
    for since, again in ((LONGEST_PAUSE_SECONDS - 1, []), (LONGEST_PAUSE_SECONDS, ["a"])):
        world = World()
        world.migrate("a", "Cancelled", 9000, endTime=ago(since))
        world.put("a")
        assert world.moved() == again


def test_failed_migration_without_times_failed_just_now() -> None:
    world = World()
    world.migrate("a", "Failed", 9000)
    world.put("a")
    assert world.moved() == ["a"], "it counts from its creation"
    del world.migrations[0]["metadata"]["creationTimestamp"]
    assert world.moved() == []


def test_failures_of_an_earlier_namesake_do_not_count() -> None:
    world = World()
    world.migrate("a", "Failed", 300, endTime=ago(100))
    world.migrations[0]["metadata"]["ownerReferences"][0]["uid"] = "of-an-earlier-one"
    world.put("a")
    assert world.moved() == ["a"]


def test_those_that_failed_go_after_those_that_did_not() -> None:
    world = World(size=1)
    world.migrate("a", "Failed", 9000, endTime=ago(9000))
    world.put("a", "node1")
    world.put("b", "node2")
    assert world.moved() == ["b"]


def test_namespaces_take_turns_and_what_is_on_its_way_counts() -> None:
    world = World(size=3, per_node=9, per_cluster=9)
    for name in ("a", "b", "c", "d"):
        world.put(name)
    for name in ("x", "y"):
        for obj in (world.put(name).vm, world.candidates[-1].pod):
            assert obj is not None
            obj["metadata"]["namespace"] = "other"
    assert world.moved() == ["a", "x", "b"]
    world.migrate("another", "Running", 500)
    assert world.moved() == ["x", "a"]
    world.migrations[0]["metadata"]["namespace"] = "other"
    assert world.moved() == ["a", "b"]


def test_a_guest_that_was_moved_in_vain_is_not_moved_for_ever() -> None:
    world = World()
    world.migrate("a", "Succeeded", 300, targetPod="pod-of-a")
    world.migrate("b", "Succeeded", 300, targetPod="a pod before")
    world.migrate("b", "Succeeded", 300, targetPod="the pod before that")
    world.migrate("c", "Failed", 9000, endTime=ago(9000), targetPod="pod-of-c")
    for number, name in enumerate(("a", "b", "c")):
        world.put(name, f"node{number}")
    assert world.moved() == ["c", "b"]


def test_stuck_and_pausing_machines_delay_no_other() -> None:
    world = World()
    world.put("a", "node1", STUCK)
    world.migrate("b", "Failed", 300, endTime=ago(100))
    world.put("b", "node2")
    world.put("c", "node3")
    assert world.moved() == ["c"]


def test_eviction_does_not_wait_for_a_failed_migrations_pause() -> None:
    world = World("Evict")
    world.migrate("a", "Failed", 300, endTime=ago(100))
    world.put("a", "node1", STUCK)
    assert world.evicted() == ["a"]


def test_unmigratable_guest_is_evicted_only_with_strategy_evict() -> None:
    for strategy, evicted in (("LiveMigrate", []), ("Evict", ["a"]), ("None", [])):
        world = World(strategy)
        world.put("a", "node1", STUCK)
        assert (world.moved(), world.evicted()) == ([], evicted)


def test_evictions_share_the_pace_and_need_no_place() -> None:
    world = World("Evict", size=4, per_cluster=1)
    for name in ("a", "b", "c", "d", "e"):
        world.put(name, "node1", STUCK)
    world.migrate("other", "Running", 500, ours=False)
    assert world.evicted() == ["a", "b", "c", "d"]
    world.rest["evicted"] = {"a pod": NOW - timedelta(seconds=59)}
    assert world.evicted() == ["a", "b", "c"]
    world.rest["evicted"] = {"a pod": NOW - timedelta(seconds=60), "uid-of-a": NOW - timedelta(seconds=100)}
    assert world.evicted() == ["b", "c", "d", "e"]


def test_batch_counts_migrations_and_evictions() -> None:
    world = World("Evict", size=2)
    world.put("a", "node1")
    for name in ("b", "c"):
        world.put(name, "node2", STUCK)
    assert (world.moved(), world.evicted()) == (["a"], ["b"])


def test_machine_with_a_refused_request_delays_no_other() -> None:
    world = World(size=1)
    world.put("a", "node1")
    world.put("b", "node2")
    world.rest["refused"] = frozenset({("default", "a")})
    assert world.moved() == ["b"]
