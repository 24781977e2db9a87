from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import uid_of
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.v1alpha1 import status_validation
from apiserver.apis.virt.v1alpha1.types import Migration
from controller.evictions.eviction_plan import ALLOWED, LONGEST_PAUSE_SECONDS, Decision, Limits, Observed, plan, rehearsed
from controller.evictions.outcomes import History, Outcomes
from tests.unit.controller.reconcilers.builders import UID, a_migration, a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
STUCK = [{"type": "Migratable", "status": "False", "reason": "DisksNotShared", "message": "what the guest wrote exists only in its pod"}]


def a_running_vm(**spec: Any) -> dict[str, Any]:
    return a_vm(phase="Running", attempts=[an_attempt()], **spec)


def a_cordoned_node() -> dict[str, Any]:
    return {"metadata": {"name": "node1"}, "spec": {"unschedulable": True}}


class Noon:
    def now(self) -> datetime:
        return NOW


def history_of(vm: dict[str, Any], migrations: Iterable[dict[str, Any]]) -> History:
    outcomes = Outcomes(Noon())
    for each in migrations:
        outcomes.note(None, each)
    return outcomes.of(vm)


def judged(vm: dict[str, Any] | None = None, *, pod: Any = "its own", limits: Limits | None = None, **rest: Any) -> Decision:
    given: dict[str, Any] = {"migrations": (), "claims": {}, "now": NOW, "node": a_cordoned_node(), **rest}
    found, of = a_pod() if pod == "its own" else pod, vm or a_running_vm()
    given = {"history": history_of(of, given["migrations"]), **given}
    return plan(Observed(pod=found, vm=of, limits=limits or Limits(), **given))


def evacuation(number: int = 1, *, phase: str = "Failed", **status: Any) -> dict[str, Any]:
    migration = judged().migration or {}
    made = a_migration(phase=phase, **status)
    return {**made, "metadata": {**made["metadata"], **migration["metadata"], "name": f"{number}", "uid": f"{number}"}}


def elsewhere(number: int, node: str) -> dict[str, Any]:
    made = a_migration(phase="Running", sourceNode=node)
    labels = {"kubevirt.io/evicted-pod": f"pod-{number}"}
    return {**made, "metadata": {**made["metadata"], "name": f"other-{number}", "namespace": "others", "labels": labels}}


@pytest.mark.parametrize("strategy", [None, "LiveMigrate", "LiveMigrateIfPossible"])
def test_a_guest_that_can_migrate_is_moved_first(strategy: str | None) -> None:
    told = judged(a_running_vm(evictionStrategy=strategy))

    assert not told.allowed
    assert told.migration is not None
    assert Migration.model_validate(told.migration).spec.selector.name == "testvm"
    assert told.migration["metadata"]["generateName"] == "testvm-evacuation-"
    assert told.migration["metadata"]["labels"] == {"kubevirt.io/evicted-pod": uid_of(a_pod()), "kubevirt.io/drain": "true"}
    assert "must move to another node first" in told.message
    assert told.migration["metadata"]["ownerReferences"][0]["uid"] == UID


def test_a_guest_that_has_just_left_the_pod_is_not_moved_again() -> None:
    moved = evacuation(phase="Succeeded", sourcePodUID=uid_of(a_pod()))
    told = judged(migrations=[moved])
    assert (told.allowed, told.migration, "has just moved" in told.message) == (False, None, True)
    for other in (
        evacuation(phase="Succeeded", sourcePodUID="another"),
        {**moved, "metadata": {**moved["metadata"], "namespace": "others"}},
    ):
        assert judged(migrations=[other]).migration is not None


def test_the_cluster_says_what_a_machine_does_not() -> None:
    assert judged(limits=Limits(strategy="Shutdown")).allowed
    assert judged(a_running_vm(evictionStrategy="LiveMigrate"), limits=Limits(strategy="Shutdown")).migration is not None


def test_shutdown_strategy_allows_eviction_and_external_refuses() -> None:
    assert judged(a_running_vm(evictionStrategy="Shutdown")).allowed
    told = judged(a_running_vm(evictionStrategy="External"))
    assert (told.allowed, told.migration) == (False, None)
    assert told.message == (
        "virtual machine testvm has evictionStrategy External, so another program must move it; to move it yourself, run: "
        "kubectl virt migrate testvm -n default"
    )


@pytest.mark.parametrize("why", ["condition", "claim", "no such claim"])
def test_unmigratable_guest_is_shut_down_or_kept_by_its_strategy(why: str) -> None:
    disks = [{"name": "d", "type": "PersistentVolumeClaim", "source": {"name": "data"}}]
    vm = a_running_vm(domain={"devices": {} if why == "condition" else {"disks": disks}})
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}} if why == "claim" else None
    claims = {} if why == "condition" else {"data": claim}
    if why == "condition":
        vm["status"]["conditions"] = STUCK
    assert judged(vm, claims=claims).allowed

    vm["spec"]["evictionStrategy"] = "LiveMigrate"
    told = judged(vm, claims=claims)
    assert (told.allowed, told.migration) == (False, None)
    assert ("exists only in its pod" if why == "condition" else "PersistentVolumeClaim data is not ReadWriteMany") in told.message


def test_shared_claims_migrate() -> None:
    disks = [{"name": "d", "type": "PersistentVolumeClaim", "source": {"name": "data"}}]
    shared = {"data": {"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}}
    assert judged(a_running_vm(domain={"devices": {"disks": disks}}), claims=shared).migration is not None


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Running", "Unknown"])
def test_eviction_that_ends_a_guest_is_recorded_first(phase: str) -> None:
    vm = a_vm(phase=phase, attempts=[an_attempt()], evictionStrategy="Shutdown", runStrategy="Once")
    vm["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "GuestRunning", "message": ""}]
    told = judged(vm)

    assert told.allowed
    assert told.status is not None
    assert not status_validation.validate_virtual_machine_status({"status": told.status}, {})
    assert {**told.status, "conditions": vm["status"]["conditions"]} == vm["status"]
    first, new = told.status["conditions"]
    assert first == vm["status"]["conditions"][0]
    assert (new["type"], new["status"], new["reason"]) == ("DisruptionTarget", "True", "EvictionAllowed")
    assert new["lastTransitionTime"].startswith("2026-01-01T00:01:00")
    assert "on node node1 received an eviction" in new["message"]

    vm["status"] = told.status
    assert judged(vm) == ALLOWED
    vm["status"] = {**told.status, "attempts": [an_attempt(result="Stopped")]}
    assert power.decide(vm).on


def test_eviction_is_not_recorded_when_it_ends_no_attempt() -> None:
    stopped = a_running_vm(evictionStrategy="Shutdown")
    stopped["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure"}
    restarted = a_running_vm(evictionStrategy="Shutdown")
    restarted["status"]["request"] = {"action": "Restart", "attempt": 2, "runStrategy": "RerunOnFailure"}
    elsewhere_now = a_running_vm(evictionStrategy="Shutdown")
    elsewhere_now["status"]["podUID"] = "another"
    stopping = a_vm(phase="Stopping", attempts=[an_attempt()], evictionStrategy="Shutdown")
    for vm in (stopped, restarted, elsewhere_now, stopping, a_vm(phase="Stopped", attempts=[an_attempt()], runStrategy="Halted")):
        assert judged(vm) == ALLOWED


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Stopping", "Unknown"])
def test_a_pod_without_a_running_guest_may_go(phase: str) -> None:
    assert judged(a_vm(phase=phase, attempts=[an_attempt()])).allowed


def test_a_pod_may_go_that_is_nobodys_over_or_going_already() -> None:
    others = a_pod()
    others["metadata"]["ownerReferences"] = []
    foreign = a_pod()
    foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
    for pod in (None, others, foreign, a_pod(phase="Succeeded", exit_code=0), a_pod(deleting=True)):
        assert judged(pod=pod).allowed
    assert plan(Observed(pod=a_pod(), vm=None, node=None, migrations=(), claims={}, now=NOW, limits=Limits())).allowed


def test_a_pod_may_go_that_the_guest_is_not_in() -> None:
    vm = a_running_vm()
    vm["status"] |= {"podName": "virt-launcher-testvm-moved", "podUID": "moved"}
    assert judged(vm).allowed


def test_pod_with_a_disk_of_the_guest_goes_after_the_guest() -> None:
    vm, pod = a_running_vm(), a_pod()
    pod["metadata"] |= {"name": "virt-launcher-testvm-volume-aaaaa", "uid": "of-the-disk"}
    assert judged(vm, pod=pod).allowed
    vm["status"] |= {"nodeName": "node1", "volumeStatus": [{"name": "data", "hotplugVolume": {"attachPodUID": "of-the-disk"}}]}
    assert judged(vm, pod={**pod, "spec": {**pod["spec"], "nodeName": "node2"}}).allowed
    assert judged(vm, pod={**pod, "metadata": {**pod["metadata"], "uid": "unrecorded"}}).allowed
    assert judged(vm, pod={**pod, "metadata": {**pod["metadata"], "name": "virt-launcher-testvm-aaaaa"}}).allowed
    told = judged(vm, pod=pod)
    assert not told.allowed
    assert told.migration is None
    assert "must leave the node first: it uses a disk of this pod" in told.message
    assert judged(vm).migration is not None


@pytest.mark.parametrize("change", [{"runStrategy": "Halted"}, {"deleting": True}])
def test_pod_of_a_guest_meant_to_be_off_may_be_evicted(change: dict[str, Any]) -> None:
    assert judged(a_vm(phase="Running", attempts=[an_attempt()], **change)).allowed


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running"])
def test_neither_pod_of_an_unfinished_migration_goes(phase: str) -> None:
    target = a_pod(migration="migration-uid", node="node2")
    source = {"sourcePod": a_pod()["metadata"]["name"], "sourcePodUID": uid_of(a_pod())} if phase else {}
    migration = a_migration(phase=phase, message="pod x was created", **source)
    for pod in (a_pod(), target):
        for strategy in ("LiveMigrate", "Shutdown", "External"):
            told = judged(a_running_vm(evictionStrategy=strategy), pod=pod, migrations=(migration,))
            assert (told.allowed, told.migration) == (False, None)
            assert f"migration move, {phase or 'Pending'}" in told.message


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_the_target_of_a_migration_that_is_over_may_go(phase: str) -> None:
    assert judged(pod=a_pod(migration="migration-uid"), migrations=(a_migration(phase=phase),)).allowed


def test_namesake_migration_of_another_namespace_does_not_count() -> None:
    migration = a_migration(phase="Running")
    migration["metadata"]["namespace"] = "others"
    assert judged(migrations=(migration,)).migration is not None


def test_migrations_per_node_and_cluster_are_limited() -> None:
    limits = Limits(migrations_per_node=2, migrations_per_cluster=3)
    one, two = elsewhere(1, "node1"), elsewhere(2, "node1")
    assert judged(migrations=(one,), limits=limits).migration is not None
    told = judged(migrations=(one, two), limits=limits)
    assert (told.migration, "2 migrations from node node1" in told.message) == (None, True)
    far = [elsewhere(number, "node7") for number in range(3)]
    assert judged(migrations=far[:2], limits=limits).migration is not None
    told = judged(migrations=far, limits=limits)
    assert (told.migration, "3 migrations are in progress in the cluster" in told.message) == (None, True)


def test_unstarted_migration_counts_for_its_evictions_node() -> None:
    begun = evacuation(phase="")
    begun["metadata"]["namespace"] = "others"
    told = judged(migrations=(begun,), limits=Limits(migrations_per_node=1))
    assert (told.migration, "from node node1" in told.message) == (None, True)


def test_finished_ones_do_not_count() -> None:
    done = [{**elsewhere(number, "node1"), "status": {"phase": "Succeeded", "sourceNode": "node1"}} for number in range(9)]
    assert judged(migrations=done).migration is not None


@pytest.mark.parametrize(("failures", "seconds"), [(1, 15), (2, 30), (3, 60), (9, LONGEST_PAUSE_SECONDS)])
def test_failed_migration_is_retried_after_a_growing_pause(failures: int, seconds: int) -> None:
    ended = datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    failed = [evacuation(number + 1, endTime=ended, message="no node has room") for number in range(failures)]
    again = judged(migrations=failed)
    assert again.migration is not None

    failed[-1]["status"]["endTime"] = datetime.fromtimestamp(NOW.timestamp() - seconds + 3, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = judged(migrations=failed)
    assert (told.allowed, told.migration) == (False, None)
    assert "no node has room" in told.message
    assert "the next migration starts in 3 s" in told.message


def test_cancelled_migration_pauses_like_a_failed_one() -> None:
    """A user who evicts and cancels in a loop would keep a place of the limits."""
    cancelled = evacuation(phase="Cancelled", endTime="2026-01-01T00:00:58Z", message="deleted")
    told = judged(migrations=(cancelled,))
    assert told.migration is None
    assert "migration 1 was cancelled (deleted); the next migration starts in 298 s" in told.message
    assert "to migrate it now, run: kubectl virt migrate testvm -n default" in told.message
    failed = evacuation(2, endTime="2026-01-01T00:00:59Z", message="no node")
    assert "migration 2 failed (no node); the next migration starts in 299 s" in judged(migrations=(cancelled, failed)).message
    assert "kubectl virt migrate" not in judged(migrations=(failed,)).message, "it would fail as well"
    assert judged(migrations=(evacuation(phase="Succeeded", endTime="2026-01-01T00:00:58Z"),)).migration is not None


def test_moved_guest_rests_unless_its_node_is_drained() -> None:
    moved = evacuation(phase="Succeeded", endTime="2026-01-01T00:00:58Z", sourceNode="node7")
    nodes: tuple[dict[str, Any] | None, ...] = (None, {})
    for quiet in nodes:
        told = judged(migrations=(moved,), node=quiet)
        assert (told.allowed, told.migration, told.waits_at) == (False, None, None)
        assert (
            "the guest was moved recently and its node is not being drained; the next migration starts in 298 s, of virtual m"
        ) in told.message
    moved["status"]["endTime"] = "2025-12-31T23:56:00Z"
    assert judged(migrations=(moved,), node=None).migration is not None


def test_half_of_a_drained_nodes_limits_is_kept_for_others() -> None:
    limits = Limits(migrations_per_node=4, migrations_per_cluster=4)
    theirs = [elsewhere(number + 7, "node1") for number in range(2)]
    own = [elsewhere(number, "node1") for number in range(3)]
    for each in own:
        each["metadata"]["namespace"] = "default"
        each["spec"]["selector"]["name"] = each["metadata"]["name"]
    for where, said in (("node1", "from node node1 are in progress"), ("", "are in progress in the cluster")):
        waiting = {where: frozenset({"others", "default"})}
        assert judged(migrations=own[:1], limits=limits, waiting=waiting).migration is not None
        told = judged(migrations=own[:2], limits=limits, waiting=waiting)
        assert (told.allowed, told.migration, told.waits_at, told.only_waits) == (False, None, None, True)
        assert (
            f"for its migration to another node: 2 migrations of namespace default {said}, and guests of other namespaces wait"
        ) in told.message
        assert judged(migrations=[*own[:2], theirs[0]], limits=limits, waiting=waiting).migration is None
    nobody: dict[str, frozenset[str]] = {}
    for waiting in (nobody, {"node2": frozenset({"others"})}, {"node1": frozenset({"default"})}):
        assert judged(migrations=own, limits=limits, waiting=waiting).migration is not None
    both = {"node1": frozenset({"others"})}
    assert judged(migrations=theirs, limits=limits, waiting=both).migration is not None
    uneven = Limits(migrations_per_node=5, migrations_per_cluster=5)
    assert judged(migrations=[*own[:2], *theirs], limits=uneven, waiting=both).migration is not None, "who waits has its half"
    one = judged(migrations=own[:1], limits=Limits(migrations_per_node=2), waiting=both)
    assert "1 migration of namespace default from node node1 is in progress, and guests of other namespaces wait" in one.message


def test_waiting_for_a_place_is_noted_only_on_drained_nodes() -> None:
    near = [elsewhere(number, "node1") for number in range(2)]
    far = [elsewhere(number, "node7") for number in range(5)]
    assert judged(migrations=near).waits_at == "node1"
    assert judged(migrations=far).waits_at == ""
    for found in (near, far):
        assert judged(migrations=found, node=None).waits_at is None
    assert judged(migrations=near[:1], node=None, waiting={"node1": frozenset({"others"})}).waits_at is None


def test_pause_counts_from_the_newest_end_and_unknown_end_is_now() -> None:
    two = (evacuation(1, endTime="2026-01-01T00:00:50Z", message="new"), evacuation(2, endTime="2026-01-01T00:00:10Z", message="old"))
    for found in (two, two[::-1]):
        assert "migration 1 failed (new); the next migration starts in 20 s" in judged(migrations=found).message
    assert "failed (no reason given); the next migration starts in 15 s" in judged(migrations=(evacuation(),)).message


def test_failures_of_a_pod_in_another_namespace_are_not_its_own() -> None:
    """Without the policy, any user can write the label."""
    foreign = evacuation(endTime="2026-01-01T00:00:59Z")
    foreign["metadata"]["namespace"] = "others"
    assert judged(migrations=(foreign,)).migration is not None


@pytest.mark.parametrize(
    ("limits", "node", "cluster"), [((2, 5), 1, 2), ((1, 1), 1, 1), ((6, 9), 3, 4)], ids=["the default", "the least", "more"]
)
def test_evictions_from_undrained_nodes_share_half_the_limits(limits: tuple[int, int], node: int, cluster: int) -> None:
    given = Limits(migrations_per_node=limits[0], migrations_per_cluster=limits[1])
    near, far = ([elsewhere(number, where) for number in range(9)] for where in ("node1", "node7"))
    for quiet in (None, {}, {"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}):
        assert judged(migrations=near[: node - 1], limits=given, node=quiet).migration is not None
        told = judged(migrations=near[:node], limits=given, node=quiet)
        assert (told.allowed, told.migration) == (False, None)
        many = f"{node} migrations from node node1 are" if node > 1 else "1 migration from node node1 is"
        assert f"{many} in progress; node node1 is not being drained, so only half of each limit applies" in told.message
        assert judged(migrations=far[: cluster - 1], limits=given, node=quiet).migration is not None
        told = judged(migrations=far[:cluster], limits=given, node=quiet)
        assert told.migration is None
        assert "in the cluster; node node1 is not being drained" in told.message
    told = judged(migrations=far[: limits[1]], limits=given)
    assert told.migration is None
    assert told.message.endswith("in progress in the cluster")


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]},
        {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
    ],
)
def test_drained_node_gets_the_full_limits(spec: dict[str, Any]) -> None:
    assert judged(migrations=(elsewhere(1, "node1"),), node={"spec": spec}).migration is not None


def test_a_taint_that_lets_pods_in_empties_nothing() -> None:
    soft = {"spec": {"unschedulable": False, "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "PreferNoSchedule"}]}}
    assert judged(migrations=(elsewhere(1, "node1"),), node=soft).migration is None


def test_migration_being_created_counts_and_is_the_machines_own() -> None:
    first = judged().migration
    assert first is not None
    told = judged(migrations=(first,))
    assert (told.migration, told.message) == (
        None,
        "the guest of virtual machine testvm must move to another node first: its migration is starting",
    )
    other = {**first, "metadata": {**first["metadata"], "namespace": "others"}}
    assert judged(migrations=(other,), limits=Limits(migrations_per_node=1)).migration is None


def test_unknown_eviction_strategy_falls_back_to_the_clusters() -> None:
    vm = a_running_vm(evictionStrategy="Teleport")
    assert judged(vm).migration is not None
    assert judged(vm, limits=Limits(strategy="Shutdown")).allowed


def test_migrations_that_people_make_do_not_count() -> None:
    theirs = [{**each, "metadata": {**each["metadata"], "labels": {}}} for each in (elsewhere(number, "node1") for number in range(9))]
    assert judged(migrations=theirs).migration is not None


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Running"])
def test_migration_without_target_node_counts_until_ended(phase: str) -> None:
    """Otherwise all would start at once. ``migration_plan`` ends them after a minute."""
    stuck = evacuation(phase=phase)
    stuck["metadata"] |= {"namespace": "others", "creationTimestamp": "2025-01-01T00:00:00Z"}
    assert judged(migrations=(stuck,), limits=Limits(migrations_per_node=1)).migration is None


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("lasts", [True, False])
def test_dry_run_writes_nothing(*, allowed: bool, lasts: bool) -> None:
    decision = Decision(allowed, "why", migration={}, status={}, waits_at="node1", only_waits=True, lasts=lasts)
    refused = lasts and not allowed
    assert rehearsed(decision) == Decision(not refused, "why", lasts=refused, final=refused)
