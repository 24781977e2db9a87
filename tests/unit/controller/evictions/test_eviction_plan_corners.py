from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import uid_of
from controller.evictions.eviction_plan import ALLOWED, FIRST_PAUSE_SECONDS, REST_SECONDS, Limits
from controller.evictions.outcomes import Ended, History
from tests.unit.controller.evictions.test_eviction_plan import NOW, a_running_vm, elsewhere, evacuation, judged
from tests.unit.controller.reconcilers.builders import a_migration, a_pod, a_vm, an_attempt

LEAVES: Final = {"sourcePod": a_pod()["metadata"]["name"], "sourcePodUID": uid_of(a_pod())}
HOST_DISK: Final = {"type": "Migratable", "status": "False", "reason": "HostDisk", "message": "a disk"}


def of_the_drain() -> dict[str, Any]:
    made = elsewhere(1, "node1")
    made["metadata"]["labels"]["kubevirt.io/drain"] = "true"
    return made


def stuck(vm: dict[str, Any]) -> dict[str, Any]:
    vm["status"]["conditions"] = [HOST_DISK]
    return vm


def test_without_flags_two_leave_a_node_and_five_move() -> None:
    assert Limits() == Limits("LiveMigrateIfPossible", 2, 5)


@pytest.mark.parametrize(("part", "value"), [("namespace", "aaa"), ("namespace", "zzz"), ("machine", "aaa"), ("machine", "zzz")])
def test_unfinished_migrations_of_others_are_not_the_machines(part: str, value: str) -> None:
    """Without a recorded source, they seem to leave any pod that they are compared with."""
    theirs, own = a_migration(), a_migration(phase="Running", **LEAVES)
    if part == "namespace":
        theirs["metadata"]["namespace"] = value
    else:
        theirs["spec"]["selector"]["name"] = value
    assert judged(migrations=(theirs,)).migration is not None
    assert judged(migrations=(theirs, own)).migration is None, "those after it are looked at"


def test_each_pod_of_a_migration_is_told_what_it_is() -> None:
    migration = a_migration(phase="Running", **LEAVES)
    source, target = judged(migrations=(migration,)), judged(pod=a_pod(migration="migration-uid"), migrations=(migration,))
    assert source.message == "the guest of virtual machine testvm must move to another node first: migration move, Running"
    assert target.message == "the guest of virtual machine testvm is migrating to this pod: migration move, Running"
    migration["status"]["message"] = "half of it"
    assert judged(migrations=(migration,)).message.endswith(": migration move, Running: half of it")


@pytest.mark.parametrize(
    ("given", "only_waits", "lasts"),
    [
        ({}, False, False),
        ({"migrations": (elsewhere(1, "node1"), elsewhere(2, "node1"))}, True, False),
        ({"migrations": (a_migration(phase="Running", **LEAVES),)}, True, False),
        ({"migrations": (a_migration(phase="Running", **LEAVES),), "pod": a_pod(migration="migration-uid")}, True, False),
        ({"vm": a_running_vm(evictionStrategy="External")}, False, True),
        ({"vm": stuck(a_running_vm(evictionStrategy="LiveMigrate"))}, False, True),
        ({"node": {"spec": {}}, "migrations": (of_the_drain(),)}, False, True),
    ],
)
def test_refusal_says_whether_it_waits_or_lasts(given: dict[str, Any], *, only_waits: bool, lasts: bool) -> None:
    found = judged(**given)
    assert (found.allowed, found.only_waits, found.lasts, found.final) == (False, only_waits, lasts, False)


@pytest.mark.parametrize("name", ["virt-launcher-testvm-00000", "virt-launcher-testvm-zzzzz"])
def test_another_pod_of_a_machine_that_moves_may_go(name: str) -> None:
    migration = a_migration(phase="Running", **LEAVES)
    left_over = a_pod()
    left_over["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
    assert judged(pod=left_over, migrations=(migration,)).allowed


def test_a_machine_that_is_in_no_pod_keeps_none() -> None:
    vm = a_running_vm()
    del vm["status"]["podName"], vm["status"]["podUID"]
    assert judged(vm, migrations=(a_migration(),)).allowed


@pytest.mark.parametrize("phase", ["", "Pending", "Succeeded", "Failed"])
def test_phase_without_guest_records_no_eviction(phase: str) -> None:
    assert judged({**a_running_vm(), "status": {**a_running_vm()["status"], "phase": phase}}) == ALLOWED


@pytest.mark.parametrize("namespace", ["aaa", "zzz"])
def test_a_guest_of_another_namespace_has_not_left_this_pod(namespace: str) -> None:
    theirs = evacuation(phase="Succeeded", sourcePodUID=uid_of(a_pod()))
    theirs["metadata"]["namespace"] = namespace
    assert judged(migrations=(theirs,)).migration is not None


def test_guest_of_a_failed_migration_is_still_in_its_pod() -> None:
    failed = evacuation(sourcePodUID=uid_of(a_pod()), endTime=times.to_rfc3339(NOW - timedelta(days=1)))
    assert judged(migrations=(failed,)).migration is not None


def test_eviction_condition_has_the_machines_generation() -> None:
    vm = a_running_vm(evictionStrategy="Shutdown")
    vm["metadata"]["generation"] = 7
    status = judged(vm).status
    assert status is not None
    assert [each["observedGeneration"] for each in status["conditions"] if each["type"] == "DisruptionTarget"] == [7]


def test_a_guest_that_is_to_restart_may_go() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    assert judged(vm).migration is not None
    vm["status"]["request"] = {"action": "Restart", "attempt": 2, "runStrategy": "RerunOnFailure"}
    assert judged(vm).allowed


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"reason": "HostDisk", "message": "a disk is on its node"}, "a disk is on its node"),
        ({"reason": "HostDisk"}, "HostDisk"),
        ({}, "its condition Migratable is False"),
    ],
)
def test_migratable_message_is_repeated(told: dict[str, str], said: str) -> None:
    vm = a_running_vm(evictionStrategy="LiveMigrate")
    vm["status"]["conditions"] = [{"type": "Migratable", "status": "False", **told}]
    way = "Stop it, or set spec.evictionStrategy to LiveMigrateIfPossible, which shuts the guest down"
    assert judged(vm).message == f"virtual machine testvm cannot migrate: {said}. {way}"


@pytest.mark.parametrize("status", ["True", "Unknown"])
def test_a_machine_that_does_not_say_that_it_cannot_migrate_does(status: str) -> None:
    vm = a_running_vm(evictionStrategy="LiveMigrate")
    vm["status"]["conditions"] = [{"type": "Migratable", "status": status, "message": "it can"}]
    assert judged(vm).migration is not None


@pytest.mark.parametrize("change", [{"namespace": "aaa"}, {"namespace": "zzz"}, {"machine": "aaa"}, {"machine": "zzz"}, {"labels": {}}])
def test_only_failures_of_the_very_machine_make_a_pause(change: dict[str, Any]) -> None:
    failed: dict[str, Any] = evacuation(endTime=times.to_rfc3339(NOW))
    assert judged(migrations=(failed,)).migration is None
    failed["spec"]["selector"]["name"] = change.pop("machine", "testvm")
    failed["metadata"] |= change
    assert judged(migrations=(failed,)).migration is not None


@pytest.mark.parametrize("change", [{"labels": {"kubevirt.io/evicted-pod": "before"}}, {"ownerReferences": []}])
def test_pause_applies_despite_other_pod_or_lost_owner(change: dict[str, Any]) -> None:
    failed: dict[str, Any] = evacuation(endTime=times.to_rfc3339(NOW))
    failed["metadata"] |= change
    assert judged(migrations=(failed,)).migration is None


def test_a_pause_ends_and_its_last_moment_is_a_second() -> None:
    for since, seconds in ((15.0, None), (20.0, None), (86400.0, None), (14.8, 1), (13.2, 2)):
        failed = evacuation(endTime=times.to_rfc3339_micro(NOW - timedelta(seconds=since)))
        told = judged(migrations=(failed,))
        assert (told.migration is None) == (seconds is not None)
        assert seconds is None or f"the next migration starts in {seconds} s" in told.message


def test_exceeded_limits_block_and_other_nodes_count_by_cluster() -> None:
    limits = Limits(migrations_per_node=1, migrations_per_cluster=3)
    near = [elsewhere(number, "node1") for number in range(2)]
    assert "2 migrations from node node1 are in progress" in judged(migrations=near, limits=limits).message
    for name in ("node0", "node2", ""):
        far = [elsewhere(number, name) for number in range(4)]
        assert judged(migrations=far[:2], limits=limits).migration is not None
        assert "4 migrations are in progress in the cluster" in judged(migrations=far, limits=limits).message


@pytest.mark.parametrize("node", [None, {}, {"spec": {"unschedulable": False}}])
def test_migration_from_an_undrained_node_has_no_drain_label(node: Any) -> None:
    made = judged(node=node).migration
    assert made is not None
    assert made["metadata"]["labels"] == {"kubevirt.io/evicted-pod": uid_of(a_pod())}


@pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible", "Shutdown", "External"])
@pytest.mark.parametrize("is_movable", [True, False])
def test_uncordon_keeps_a_guest_under_every_strategy(strategy: str, *, is_movable: bool) -> None:
    vm = a_running_vm(evictionStrategy=strategy)
    told = judged(vm if is_movable else stuck(vm), node={"spec": {}}, migrations=(of_the_drain(),))
    assert (told.allowed, told.migration, told.status, told.waits_at) == (False, None, None, None)
    assert told.message == (
        "node node1 was uncordoned, which ended its drain: the guest of virtual machine testvm stays. Interrupt kubectl drain, or cordon "
        "the node again to continue"
    )


def test_new_cordon_resumes_the_drain_and_reports_migrations() -> None:
    assert judged(migrations=(of_the_drain(),)).migration is not None
    own = a_migration(phase="Running", **LEAVES)
    assert "migration move, Running" in judged(node={}, migrations=(of_the_drain(), own)).message
    assert (
        "has just moved"
        in judged(node={}, migrations=(of_the_drain(), evacuation(phase="Succeeded", sourcePodUID=uid_of(a_pod())))).message
    )


@pytest.mark.parametrize("phase", ["Scheduling", "Stopping", "Unknown"])
def test_after_an_uncordon_a_pod_without_a_running_guest_may_go(phase: str) -> None:
    assert judged(a_vm(phase=phase, attempts=[an_attempt()]), node={}, migrations=(of_the_drain(),)).allowed


@pytest.mark.parametrize(
    ("moment", "told"), [("9999-12-31T23:59:59Z", ("; the next migration starts in {} s")), ("0001-01-01T00:00:00Z", "")]
)
def test_no_moment_is_too_far_away_to_count_a_pause_from(moment: str, told: str) -> None:
    at = times.parse(moment)
    failed, moved = History((Ended("1", at, "no node"),)), History(moved=at)
    for known, pause in ((failed, FIRST_PAUSE_SECONDS), (moved, REST_SECONDS)):
        decision = judged(history=known, node=None)
        assert told.format(pause) in decision.message
        assert (decision.migration is None) == bool(told)
