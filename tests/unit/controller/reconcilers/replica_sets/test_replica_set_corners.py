from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, name_of
from controller.reconcilers.replica_sets import finished, membership, readiness, replica_set_plan, scale_down
from controller.reconcilers.replica_sets.replica_set_plan import Observed, Plan
from controller.reconcilers.replica_sets.replica_set_status import status
from tests.unit.controller.reconcilers.replica_sets.builders import NOW, WEB, a_finished_machine, a_machine, a_set, ago


def plan(replica_set: Object, *machines: Object) -> Plan:
    return replica_set_plan.plan(Observed(replica_set, machines, NOW))


@pytest.mark.parametrize(
    ("found", "acts"),
    [
        (Plan(), False),
        (Plan(adopted=(a_machine(),)), True),
        (Plan(released=(a_machine(),)), True),
        (Plan(create=1), True),
        (Plan(ordinals=(0,)), True),
        (Plan(delete=(a_machine(),)), True),
    ],
)
def test_each_write_alone_makes_a_plan_act(found: Plan, acts: bool) -> None:
    assert found.acts is acts


def test_an_empty_plan_counts_nothing() -> None:
    assert Plan() == Plan(create=0, terminating=0, finished=0, waiting=0)


def test_fields_of_the_spec_have_defaults() -> None:
    bare: Object = {"spec": {}}
    assert replica_set_plan.wanted_replicas(bare) == 1
    assert replica_set_plan.min_ready_seconds(bare) == 0


def test_machines_in_deletion_are_counted_apart() -> None:
    assert plan(a_set(), a_machine("a"), a_machine("b", deleting=True)).terminating == 1


def test_nothing_is_awaited_at_the_moment_itself() -> None:
    assert plan(a_set(replicas=1, minReadySeconds=60), a_machine(ready=60)).requeue_after is None
    assert plan(a_set(replicas=1, minReadySeconds=60), a_machine(ready=59)).requeue_after == 1


def test_a_machine_is_available_from_the_moment_on() -> None:
    replica_set = a_set(replicas=4, minReadySeconds=60)
    machines = [a_machine(str(ready), ready=ready, labels={**WEB, "further": "1"}) for ready in (90, 80, 60, 59)]
    told = status(replica_set, plan(replica_set, *machines), None, NOW)
    assert (told["readyReplicas"], told["availableReplicas"], told["fullyLabeledReplicas"]) == (4, 3, 4)


@pytest.mark.parametrize("other", [600, 700])
def test_only_recent_ends_lengthen_the_pause(other: float) -> None:
    found = finished.by_age([a_finished_machine("new", 15), a_finished_machine("old", other)], NOW)
    assert found.waiting == ()
    assert [name_of(each) for each in found.expired] == ["old"]


def test_an_end_without_a_time_is_that_of_the_creation() -> None:
    vm = a_finished_machine("a", 5)
    vm["metadata"]["creationTimestamp"] = ago(700)
    for each in vm["status"]["attempts"]:
        del each["endTime"]
    assert finished.by_age([vm], NOW).expired == (vm,)


def test_a_machine_of_another_controller_is_no_member() -> None:
    assert membership.of_set(a_set(), [a_machine(owner="aaa"), a_machine(owner="zzz")]).members == ()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "web"),
        ({"apiVersion": "example.com/v1"}, ""),
        ({"apiVersion": "kubevirt.io/v9"}, "web"),
        ({"kind": "ReplicaSet"}, ""),
        ({"kind": "VirtualMachineZoo"}, ""),
    ],
)
def test_a_machine_names_a_set_of_our_kind(change: dict[str, Any], name: str) -> None:
    vm = a_machine()
    vm["metadata"]["ownerReferences"][0] |= change
    assert membership.set_named_by(vm) == name


def test_a_set_of_another_namespace_does_not_match() -> None:
    own, earlier, later = a_set(), a_set(), a_set()
    earlier["metadata"]["namespace"], later["metadata"]["namespace"] = "a", "z"
    for each in (own, earlier, later):
        each |= {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet"}
    assert membership.matching([earlier, own, later], a_machine(owner=None)) == [own]


@pytest.mark.parametrize("conditions", [5, "Ready", ["Ready"], [{"type": "Ready", "status": "True", "lastTransitionTime": "soon"}]])
def test_malformed_conditions_are_not_ready(conditions: Any) -> None:
    vm = a_machine(conditions=conditions)
    assert readiness.ready_since(vm) is None
    assert readiness.available_from(vm, 0) is None


def test_a_machine_ready_in_the_year_9999_is_not_available() -> None:
    vm = a_machine(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}])
    replica_set = a_set(replicas=2, minReadySeconds=10)
    found = plan(replica_set, vm)
    assert (found.create, status(replica_set, found, None, NOW)["availableReplicas"]) == (1, 0)


def test_ready_since_is_the_transition() -> None:
    assert readiness.ready_since(a_machine(ready=7)) == NOW - timedelta(seconds=7)


@pytest.mark.parametrize(
    ("cost", "number"),
    [
        ("-2147483648", -(1 << 31)),
        ("-2147483649", 0),
        ("-9999999999", 0),
        ("2147483647", (1 << 31) - 1),
        ("2147483648", 0),
        ("9999999999", 0),
    ],
)
def test_a_cost_has_32_bits(cost: str, number: int) -> None:
    assert scale_down.deletion_cost(a_machine(cost=cost)) == number


def test_a_machine_without_a_readable_end_ended_now() -> None:
    machine = a_finished_machine("web-1", 7200)
    machine["status"]["attempts"][0]["endTime"] = "yesterday"
    found = finished.by_age([machine], NOW)
    assert (found.waiting, found.expired) == ((machine,), ())
