from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import NamespacedName
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places import names
from controller.reconcilers.migrations.migration_queue import (
    AGED_SECONDS,
    LONG_SECONDS,
    PLACE_SECONDS,
    TOLD_POSITIONS,
    Observed,
    Turn,
    turns,
)
from controller.reconcilers.settings import MigrationLimits
from tests.unit.controller.reconcilers.builders import a_migration

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNDER_WAY = ("Scheduling", "PreparingTarget", "TargetReady", "Running")


class World:
    def __init__(self, per_node: int = 2, per_cluster: int = 5) -> None:
        self.limits = MigrationLimits(per_node=per_node, per_cluster=per_cluster)
        self.migrations: list[dict[str, Any]] = []
        self.machines: dict[NamespacedName, dict[str, Any]] = {}
        self.rest: dict[str, Any] = {}

    def put(
        self, name: str, node: str = "a", *, phase: str = "Pending", namespace: str = "ns", ago: float | None = None, **more: Any
    ) -> NamespacedName:
        started, evicted, priority = more.get("started"), more.get("evicted", False), more.get("priority")
        status: dict[str, Any] = {} if phase in ("", "Pending") else {"sourceNode": node}
        if started is not None:
            status["startTime"] = times.to_rfc3339(NOW - timedelta(seconds=started))
        if (attempt := more.get("attempt")) is not None:
            stamps = [{"phase": each, "time": times.to_rfc3339(NOW - timedelta(seconds=at))} for each, at in more.get("stamps", ())]
            status |= {"sourceNode": node, "attempt": attempt, "phaseTransitionTimestamps": stamps}
        made = a_migration(phase=phase, deleting=more.get("deleting", False), **status)
        age = 100 - len(self.migrations) if ago is None else ago
        made["metadata"] |= {"name": name, "namespace": namespace, "creationTimestamp": times.to_rfc3339(NOW - timedelta(seconds=age))}
        made["spec"]["selector"]["name"] = f"vm-{name}"
        if evicted:
            made["metadata"]["labels"] = {evictions.POD_LABEL: "some-pod"}
        if priority is not None:
            made["spec"]["priority"] = priority
        self.migrations.append(made)
        if (machine := more.get("machine", "Running")) is not None:
            self.machines[NamespacedName(namespace, f"vm-{name}")] = {"status": {"phase": machine, "nodeName": node}}
        return NamespacedName(namespace, name)

    def turns(self) -> dict[NamespacedName, Turn]:
        given: dict[str, Any] = {"emptied": frozenset(), **self.rest}
        return turns(Observed(self.migrations, self.machines, now=NOW, limits=self.limits, **given))

    def begin(self) -> list[str]:
        return sorted(name for (_, name), turn in self.turns().items() if turn.may_begin)

    def said(self, name: str, namespace: str = "ns") -> str:
        return self.turns()[NamespacedName(namespace, name)].message


def test_node_limit_applies_and_the_oldest_goes_first() -> None:
    world = World()
    for name in ("third", "first", "second"):
        world.put(name, ago={"first": 30, "second": 20, "third": 10}[name])
    world.put("elsewhere", "b", ago=1)
    assert world.begin() == ["elsewhere", "first", "second"]
    assert world.said("third") == "2 migrations are leaving node a; 1st in the queue"
    assert world.turns()[NamespacedName("ns", "first")].message == ""


@pytest.mark.parametrize("phase", UNDER_WAY)
def test_running_migrations_count_for_any_creator(phase: str) -> None:
    world = World(per_node=1)
    world.put("under-way", phase=phase)
    world.put("waits")
    world.put("evacuation", evicted=True)
    assert world.begin() == []
    assert world.said("waits") == "1 migration is leaving node a; 1st in the queue"
    assert world.said("evacuation") == "1 migration is leaving node a; 2nd in the queue"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_nothing_else_is_known_of_those_that_have_begun(phase: str) -> None:
    world = World()
    world.put("under-way", phase="Running")
    assert world.turns() == {}
    world.put("waits", phase="")
    assert world.begin() == ["waits"]


def test_the_cluster_has_a_limit_too() -> None:
    world = World(per_cluster=3)
    for number, node in enumerate("aabb"):
        world.put(f"m{number}", node, phase="Running" if number < 3 else "")
    world.put("c1", "c")
    assert world.begin() == []
    assert world.said("m3") == "3 migrations are in progress in the cluster; 1st in the queue"
    assert world.said("c1") == "3 migrations are in progress in the cluster; 2nd in the queue"
    assert World(per_cluster=1).turns() == {}
    one = World(per_cluster=1)
    one.put("x", "a", phase="Running")
    one.put("y", "b")
    assert one.said("y") == "1 migration is in progress in the cluster; 1st in the queue"


def test_waiting_at_a_full_node_takes_no_cluster_place() -> None:
    world = World(per_node=1, per_cluster=2)
    world.put("under-way", phase="Running")
    world.put("waits", "a")
    world.put("goes", "b")
    assert world.begin() == ["goes"]


def test_queue_positions_are_per_node_and_only_first_ones_told() -> None:
    world = World(per_node=1)
    world.put("under-way", "a", phase="Running")
    world.put("other", "b", phase="Running")
    world.put("b1", "b")
    for number in range(TOLD_POSITIONS + 2):
        world.put(f"m{number:02}", "a")
    assert [world.said(f"m{number:02}").partition("; ")[2] for number in (0, 1, 2, 3, 9, 10, 11)] == [
        "1st in the queue",
        "2nd in the queue",
        "3rd in the queue",
        "4th in the queue",
        "10th in the queue",
        "10 or more migrations are ahead of it in the queue",
        "10 or more migrations are ahead of it in the queue",
    ]
    assert world.said("b1").endswith("1st in the queue")


def test_guests_of_a_node_that_is_emptied_go_first() -> None:
    world = World(per_cluster=1)
    world.put("old", "b", priority=100)
    world.put("drained", "a", evicted=True, ago=1)
    assert world.begin() == ["old"]
    assert not world.turns()[NamespacedName("ns", "drained")].is_drain
    world.rest = {"emptied": frozenset({"a"})}
    assert world.begin() == ["drained"]
    assert world.turns()[NamespacedName("ns", "drained")].is_drain
    assert not world.turns()[NamespacedName("ns", "old")].is_drain
    world.rest = {"emptied": frozenset({"a", "b"})}
    assert world.begin() == ["drained"]


def test_node_is_read_from_the_machine_or_the_eviction() -> None:
    world = World(per_node=1)
    world.put("under-way", "a", phase="Running")
    world.put("marked", machine=None)
    world.migrations[-1]["metadata"]["annotations"] = {evictions.NODE_ANNOTATION: "a"}
    world.put("nowhere", machine=None)
    world.put("nowhere-either", machine=None)
    assert world.begin() == ["nowhere", "nowhere-either"], "that is not one node"


def test_a_higher_priority_goes_first_and_then_the_older() -> None:
    world = World(per_node=1)
    world.put("late", priority=5, ago=10)
    world.put("urgent", priority=6, ago=5)
    world.put("little", priority=1, ago=30)
    world.put("usual", ago=50)
    world.put("zero", priority=0, ago=60)
    world.put("whenever", priority=-1, ago=90)
    order = []
    while world.migrations:
        [name] = world.begin()
        order.append(name)
        world.migrations = [each for each in world.migrations if each["metadata"]["name"] != name]
    assert order == ["urgent", "late", "little", "zero", "usual", "whenever"]


def test_namespaces_take_turns() -> None:
    world = World(per_node=3)
    for number in range(3):
        world.put(f"many-{number}", namespace="many", ago=90)
    world.put("few-0", namespace="few", ago=10)
    assert world.begin() == ["few-0", "many-0", "many-1"]
    world.put("under-way", "b", namespace="few", phase="Running")
    world.put("few-1", namespace="few", ago=10)
    assert world.begin() == ["few-0", "many-0", "many-1"]
    world.limits = MigrationLimits(per_node=2)
    assert world.begin() == ["many-0", "many-1"]


def test_low_priority_of_a_namespace_does_not_delay_its_high_one() -> None:
    world = World(per_node=1)
    for number in range(2):
        world.put(f"low-{number}", namespace="many", priority=1, ago=90)
    world.put("high", namespace="many", priority=5, ago=20)
    world.put("younger", namespace="few", priority=5, ago=10)
    assert world.begin() == ["high"]


def test_migration_without_creation_time_is_the_youngest() -> None:
    world = World(per_node=1)
    world.put("a")
    world.put("b", ago=1)
    del world.migrations[0]["metadata"]["creationTimestamp"]
    assert world.begin() == ["b"]


def test_drains_are_not_held_against_their_namespace() -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"b"})}
    world.put("drained", "b", evicted=True, namespace="ns", phase="Running")
    world.put("drained-2", "b", evicted=True, namespace="ns", ago=95)
    world.put("older", namespace="ns", ago=90)
    world.put("newer", namespace="other", ago=80)
    assert world.begin() == ["older"]


def test_waiting_long_enough_wins_over_drains_and_priority() -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("drained", evicted=True)
    world.put("waits", ago=AGED_SECONDS - 1, priority=-100)
    assert world.begin() == ["drained"]
    world.put("oldest", ago=AGED_SECONDS, priority=-100)
    assert world.begin() == ["oldest"]
    world.put("older", ago=AGED_SECONDS + 1, namespace="other")
    assert world.begin() == ["older"]


@pytest.mark.parametrize("in_vain", [False, True], ids=["leaves a node that is being emptied", "was tried in vain"])
def test_drains_and_vain_attempts_do_not_count_as_aged(*, in_vain: bool) -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    older = world.put("older", evicted=not in_vain, ago=AGED_SECONDS + 10)
    world.put("drained", evicted=True, ago=1)
    world.put("waits", ago=AGED_SECONDS)
    world.rest["in_vain"] = frozenset({older} if in_vain else ())
    assert world.begin() == ["waits"]


def test_aged_migrations_start_one_at_a_time() -> None:
    world = World(per_node=2)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("under-way", phase="Running", ago=AGED_SECONDS + 50, started=50)
    for number in range(2):
        world.put(f"old-{number}", ago=AGED_SECONDS)
    world.put("drained", evicted=True, ago=1)
    assert world.begin() == ["drained"]
    world.migrations[0]["status"]["startTime"] = times.to_rfc3339(NOW - timedelta(seconds=20))
    assert world.begin() == ["drained"]
    world.migrations[0]["status"]["startTime"] = times.to_rfc3339(NOW - timedelta(seconds=51))
    assert world.begin() == ["old-0"]
    world.migrations[0]["metadata"]["labels"] = {evictions.POD_LABEL: "some-pod"}
    world.migrations[0]["status"]["startTime"] = times.to_rfc3339(NOW)
    assert world.begin() == ["old-0"]


def test_of_those_that_waited_long_one_begins_at_a_time() -> None:
    world = World(per_node=2)
    world.rest = {"emptied": frozenset({"a"}), "beginning": frozenset({("ns", "old-0")})}
    for number in range(2):
        world.put(f"old-{number}", ago=AGED_SECONDS)
    world.put("drained", evicted=True, ago=1)
    assert world.begin() == ["drained"]


def test_starting_migration_counts_before_it_is_visible() -> None:
    world = World(per_node=1)
    begins = world.put("begins", ago=10)
    world.put("waits", ago=90)
    assert world.begin() == ["waits"]
    world.rest = {"beginning": frozenset({begins})}
    assert world.begin() == []
    assert begins not in world.turns()


def test_migration_tried_in_vain_delays_no_other() -> None:
    world = World(per_node=1)
    refused = world.put("refused", priority=100, ago=AGED_SECONDS)
    world.put("goes")
    assert world.begin() == ["refused"]
    world.rest = {"in_vain": frozenset({refused})}
    assert world.begin() == ["goes"]
    world.put("elsewhere", "b")
    world.limits = MigrationLimits(per_node=1, per_cluster=3)
    assert world.begin() == ["elsewhere", "goes"]
    world.limits = MigrationLimits(per_node=2, per_cluster=3)
    assert world.begin() == ["elsewhere", "goes", "refused"]
    second = world.put("refused-2")
    world.rest = {"in_vain": frozenset({refused, second})}
    assert world.begin() == ["elsewhere", "goes", "refused", "refused-2"]


@pytest.mark.parametrize("machine", ["Unknown", None])
def test_nothing_that_has_lost_its_machine_or_node_holds_a_place(machine: str | None) -> None:
    world = World(per_node=1)
    world.put("lost", phase="Running", machine=machine)
    world.put("waits")
    assert world.begin() == ["waits"]


def test_cancelled_migration_leaves_the_queue_stopping_counts() -> None:
    world = World(per_node=1)
    world.put("cancelled", deleting=True)
    world.put("waits")
    assert world.begin() == ["waits"]
    assert len(world.turns()) == 1
    world.put("stops", phase="Running", deleting=True)
    assert world.begin() == []


@pytest.mark.parametrize("since", [PLACE_SECONDS, PLACE_SECONDS + 100])
def test_target_that_does_not_run_in_time_yields_to_a_drain(since: float) -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("no-node", phase="Scheduling", started=since)
    world.put("drained", evicted=True)
    world.put("waits")
    assert world.begin() == ["drained"]
    assert world.said("waits").startswith("2 migrations are leaving node a")
    world.migrations[0]["status"]["startTime"] = times.to_rfc3339(NOW - timedelta(seconds=PLACE_SECONDS - 1))
    assert world.begin() == []
    world.migrations[0]["status"] |= {"phase": "PreparingTarget", "startTime": times.to_rfc3339(NOW - timedelta(days=1))}
    assert world.begin() == []


def test_targets_of_drains_keep_their_places() -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("no-node", phase="Scheduling", started=PLACE_SECONDS + 100, evicted=True)
    world.put("drained", evicted=True)
    assert world.begin() == []
    del world.migrations[0]["status"]["startTime"]
    assert world.begin() == []


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["", "Pending", *UNDER_WAY]),
        st.sampled_from("abc"),
        st.booleans(),
        st.integers(-2, 2),
        st.integers(0, 2 * AGED_SECONDS),
        st.sampled_from(["x", "y"]),
    ),
    max_size=25,
)


@given(ENTRIES, st.integers(1, 3), st.integers(1, 5))
def test_the_limits_hold_and_no_place_stays_empty(entries: list[Any], per_node: int, per_cluster: int) -> None:
    world = World(per_node, per_cluster)
    world.rest = {"emptied": frozenset({"a"})}
    for number, (phase, node, evicted, priority, ago, namespace) in enumerate(entries):
        world.put(f"m{number}", node, phase=phase, evicted=evicted, priority=priority, ago=ago, namespace=namespace)
    found = world.turns()
    running = [each["status"]["sourceNode"] for each in world.migrations if each.get("status", {}).get("sourceNode")]
    granted = [
        world.machines[NamespacedName(ns, f"vm-{name}")]["status"]["nodeName"] for (ns, name), turn in found.items() if turn.may_begin
    ]
    waiting = [
        world.machines[NamespacedName(ns, f"vm-{name}")]["status"]["nodeName"] for (ns, name), turn in found.items() if not turn.may_begin
    ]
    for node in "abc":
        assert granted.count(node) <= max(0, per_node - running.count(node))
    assert len(granted) <= max(0, per_cluster - len(running))
    everything = running + granted
    assert all(len(everything) >= per_cluster or everything.count(node) >= per_node for node in waiting)
    assert all(turn.message for turn in found.values() if not turn.may_begin)


def test_upgrade_migration_off_a_drained_node_has_drain_priority() -> None:
    world = World(per_node=1)
    world.put("of-a-person", ago=100)
    world.put("of-an-upgrade", ago=1, priority=-100)
    assert world.begin() == ["of-a-person"]
    world.migrations[-1]["metadata"]["labels"] = {names.WORKLOAD_UPDATE_LABEL: "x"}
    assert world.begin() == ["of-a-person"]
    world.rest["emptied"] = frozenset({"a"})
    assert world.begin() == ["of-an-upgrade"]


def test_migration_between_attempts_keeps_its_place() -> None:
    world = World(per_node=1)
    world.put("again", attempt=2, started=60, stamps=[("Running", 30), ("Pending", 2)])
    world.put("other")
    assert world.begin() == []
    assert "1 migration is leaving node a" in world.said("other")
    world.migrations[0]["status"]["phase"] = "Failed"
    world.migrations.pop(0)
    assert world.begin() == ["other"]


def test_unstarted_first_attempt_waits_like_any_other() -> None:
    world = World(per_node=1)
    world.put("first", attempt=1)
    world.put("other")
    assert world.begin() == ["first"]


def test_default_turn_may_begin_and_is_no_drain() -> None:
    assert Turn() == Turn(may_begin=True, message="", is_drain=False)


def test_second_target_has_its_own_time_before_drains() -> None:
    def begin(since: float) -> list[str]:
        world = World(per_node=1)
        world.rest["emptied"] = frozenset({"a"})
        world.put("again", phase="Scheduling", attempt=2, started=600, stamps=[("Scheduling", 600), ("Pending", since), ("Scheduling", 1)])
        world.put("drained", evicted=True)
        return world.begin()

    assert begin(PLACE_SECONDS - 1) == []
    assert begin(PLACE_SECONDS) == ["drained"]


def test_second_attempt_without_target_yields_to_drains() -> None:
    def begin(since: float) -> list[str]:
        world = World(per_node=1)
        world.rest["emptied"] = frozenset({"a"})
        world.put("refused", phase="Pending", attempt=2, started=600, stamps=[("Scheduling", 600), ("Pending", since)])
        world.put("drained", evicted=True)
        return world.begin()

    assert begin(PLACE_SECONDS - 1) == []
    assert begin(PLACE_SECONDS) == ["drained"]


@pytest.mark.parametrize("more", [{}, {"evicted": True}], ids=["by a person", "by an eviction on a node that nobody empties"])
def test_guests_that_do_not_arrive_hold_no_place_before_a_drain(more: dict[str, Any]) -> None:
    """Five guests with endless writes would block drains for hours."""

    def begin(since: float) -> list[str]:
        world = World(per_node=1, per_cluster=1)
        world.rest["emptied"] = frozenset({"a"})
        world.put("endless", "b", namespace="tenant", phase="Running", started=since, **more)
        world.put("drained", "a", evicted=True)
        world.put("waits", "b")
        return world.begin()

    assert begin(LONG_SECONDS - 1) == []
    assert begin(LONG_SECONDS) == ["drained"]


def test_guests_of_drains_keep_their_places_while_moving() -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("large", phase="Running", started=LONG_SECONDS + 1, evicted=True)
    world.put("drained", evicted=True)
    assert world.begin() == []


@pytest.mark.parametrize(("phase", "begins"), [("Running", True), ("Scheduling", False)])
def test_slow_guests_hold_places_against_their_namespace_only(phase: str, *, begins: bool) -> None:
    """Five guests of a tenant would block other tenants' migrations."""

    def begin(since: float, namespace: str) -> list[str]:
        world = World(per_node=1, per_cluster=2)
        for name, node in (("endless-one", "a"), ("endless-two", "b")):
            world.put(name, node, namespace="tenant", phase=phase, started=since)
        world.put("leaves-a", "a", namespace=namespace)
        world.put("leaves-c", "c", namespace=namespace)
        return world.begin()

    assert begin(LONG_SECONDS - 1, "another") == []
    assert begin(LONG_SECONDS, "another") == (["leaves-a", "leaves-c"] if begins else [])
    assert begin(LONG_SECONDS, "tenant") == []


def test_migrations_started_past_slow_ones_count_for_all() -> None:
    world = World(per_node=1, per_cluster=1)
    world.put("endless", "b", namespace="tenant", phase="Running", started=LONG_SECONDS)
    world.put("first", "a", namespace="another")
    world.put("second", "c", namespace="third")
    assert world.begin() == ["first"]
    assert world.said("second", "third") == "1 migration is in progress in the cluster; 1st in the queue"


def test_slow_aged_migration_does_not_delay_the_next_aged_one() -> None:
    def begin(started: float) -> list[str]:
        world = World(per_node=1)
        world.put("endless", "b", namespace="tenant", phase="Running", ago=started + AGED_SECONDS, started=started)
        world.put("aged", ago=AGED_SECONDS)
        world.put("important", ago=1, priority=10)
        return world.begin()

    assert begin(LONG_SECONDS - 1) == ["important"]
    assert begin(LONG_SECONDS) == ["aged"]


@pytest.mark.parametrize(
    ("per_node", "words"), [(4, "4 migrations are leaving node a"), (9, ("4 migrations are in progress in the cluster"))]
)
def test_own_slow_migrations_count_with_those_of_all(per_node: int, words: str) -> None:
    world = World(per_node=per_node, per_cluster=4)
    for number in range(3):
        world.put(f"other-{number}", phase="Running", namespace="others", started=1)
    world.put("endless", phase="Running", started=LONG_SECONDS + 1)
    world.put("waits")
    assert world.said("waits") == f"{words}; 1st in the queue"
    world.put("begins", namespace="third")
    assert world.begin() == ["begins"]


def test_guests_of_drains_keep_their_places_against_all() -> None:
    world = World(per_node=1)
    world.rest = {"emptied": frozenset({"a"})}
    world.put("large", phase="Running", started=LONG_SECONDS + 1, evicted=True)
    world.put("waits", namespace="another")
    assert world.begin() == []


def test_arrived_guest_counts_at_its_source_until_the_end() -> None:
    world = World(per_node=1)
    moved = world.put("moved", "a", phase="Running")
    world.machines[NamespacedName(moved.namespace, "vm-moved")]["status"]["nodeName"] = "b"
    world.put("leaves-a", "a")
    world.put("leaves-b", "b")
    assert world.begin() == ["leaves-b"]
