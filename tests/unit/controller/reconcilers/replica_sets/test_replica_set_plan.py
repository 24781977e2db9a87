"""A table of cases, and Kubernetes' rules as a small model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.objects import Object, name_of
from controller.reconcilers.replica_sets import finished, membership, replica_set_plan
from controller.reconcilers.replica_sets.replica_set_plan import Observed, Plan
from controller.reconcilers.replica_sets.replica_set_status import MAX_READ, Failure, refusal, status
from tests.clients import kstatus
from tests.unit.controller.reconcilers.replica_sets.builders import NOW, WEB, a_finished_machine, a_machine, a_set, ago

OTHER = {"app": "db"}


def plan(replica_set: Object, *machines: Object) -> Plan:
    return replica_set_plan.plan(Observed(replica_set, machines, NOW))


def names(machines: tuple[Object, ...]) -> list[str]:
    return [name_of(each) for each in machines]


@pytest.mark.parametrize(
    ("replica_set", "machines", "create", "deleted"),
    [
        pytest.param(a_set(), [], 3, [], id="none-yet"),
        pytest.param(a_set(), [a_machine("a"), a_machine("b")], 1, [], id="one-missing"),
        pytest.param(a_set(replicas=0), [a_machine("a")], 0, ["a"], id="none-wanted"),
        pytest.param(a_set(replicas=1), [a_machine("a"), a_machine("b", ready=None)], 0, ["b"], id="not-ready-first"),
        pytest.param(a_set(replicas=1), [a_machine("a"), a_machine("b", deleting=True)], 0, [], id="one-goes-already"),
        pytest.param(a_set(replicas=2), [a_machine("a"), a_machine("b", deleting=True)], 1, [], id="replaces-one-that-goes"),
        pytest.param(a_set(paused=True), [], 0, [], id="paused-creates-none"),
        pytest.param(a_set(replicas=0, paused=True), [a_machine("a")], 0, [], id="paused-deletes-none"),
        pytest.param(a_set(deleting=True), [a_machine("a")], 0, [], id="deletion-creates-none"),
        pytest.param(a_set(replicas=0, deleting=True), [a_machine("a")], 0, [], id="deletion-deletes-none"),
        pytest.param(a_set(replicas=2), [a_machine("a", phase="Failed", ready=None)], 1, [], id="failed-but-reruns"),
        pytest.param(a_set(replicas=1000), [], 500, [], id="burst"),
        pytest.param(a_set(replicas=1), [a_finished_machine("a", 5)], 0, [], id="finished-keeps-its-place-for-a-pause"),
        pytest.param(a_set(replicas=1), [a_finished_machine("a", 11)], 1, [], id="finished-is-replaced"),
        pytest.param(a_set(replicas=1), [a_finished_machine("a", 11, "Failed")], 1, [], id="failed-is-replaced"),
        pytest.param(a_set(replicas=3), [a_finished_machine("a", 5)], 2, [], id="a-pause-delays-no-other"),
        pytest.param(a_set(replicas=1), [a_machine("b"), a_finished_machine("a", 601)], 0, ["a"], id="finished-is-deleted"),
        pytest.param(a_set(replicas=1), [a_finished_machine("a", 11), a_finished_machine("b", 15)], 0, [], id="pause-doubles"),
    ],
)
def test_create_and_delete(replica_set: Object, machines: list[Object], create: int, deleted: list[str]) -> None:
    found = plan(replica_set, *machines)
    assert (found.create, names(found.delete)) == (create, deleted)


@pytest.mark.parametrize("ended", [5, 7200])
@pytest.mark.parametrize("result", ["Succeeded", "Failed"])
def test_a_finished_machine_of_no_set_is_left_alone(result: str, ended: float) -> None:
    found = plan(a_set(replicas=1), a_finished_machine("a", ended, result, owner=None))
    assert (found.adopted, found.delete, found.finished, found.create) == ((), (), 0, 1)


def test_a_stopped_machine_keeps_its_place() -> None:
    stopped = a_machine("a", phase="Stopped", node="", ready=None, attempt=1)
    stopped["status"]["request"] = {"action": "Stop", "runStrategy": "RerunOnFailure", "generation": 1}
    assert plan(a_set(replicas=1), stopped).create == 0


@pytest.mark.parametrize(
    ("replica_set", "machine", "adopted", "released", "counts"),
    [
        (a_set(), a_machine(), False, False, True),
        (a_set(), a_machine(owner=None), True, False, True),
        (a_set(), a_machine(owner=None, labels=OTHER), False, False, False),
        (a_set(), a_machine(labels=OTHER), False, True, False),
        (a_set(), a_machine(owner="other"), False, False, False),
        (a_set(), a_machine(owner=None, deleting=True), False, False, False),
        (a_set(), a_machine(labels=OTHER, deleting=True), False, False, False),
        (a_set(deleting=True), a_machine(owner=None), False, False, False),
        (a_set(deleting=True), a_machine(labels=OTHER), False, False, False),
    ],
)
def test_adoption_and_release(replica_set: Object, machine: Object, *, adopted: bool, released: bool, counts: bool) -> None:
    found = plan(replica_set, machine)
    assert (bool(found.adopted), bool(found.released), bool(found.active)) == (adopted, released, counts)


ORDER: list[dict[str, Any]] = [
    {"node": "", "phase": "Scheduling", "ready": None, "created": 10},
    {"node": "", "phase": "Scheduling", "ready": None, "created": 20},
    {"phase": "Scheduled", "ready": None},
    {"phase": "Unknown", "ready": None},
    {"ready": None},
    {"cost": "-5"},
    {"node": "node2", "ready": 10},
    {"node": "node2", "ready": 20},
    {"node": "node3", "ready": 20, "created": 30},
    {"node": "node3", "ready": 20, "created": 40},
    {"node": "node3", "cost": "7"},
    {"node": "node3", "cost": "2147483647"},
]
"""Machines in the order of their deletion. Six are on node1 or node3 each, so a place on node2 is rare."""


def test_scale_down_order() -> None:
    crowd = [{"node": "node2", "cost": "2147483647", "ready": 100 + each} for each in range(6)]
    # Names and uids are in the reverse order, because the uid decides between equals.
    machines = [a_machine(f"m{99 - number}", **given) for number, given in enumerate([*ORDER, *crowd])]
    wanted = [f"m{99 - number}" for number in range(len(ORDER) - 1)]
    found = names(plan(a_set(replicas=len(machines) - len(wanted)), *reversed(machines)).delete)
    assert found == wanted


@pytest.mark.parametrize("cost", ["", "x", "+1", "01", "2147483648", "1.5", "١"])
def test_an_invalid_deletion_cost_counts_as_zero(cost: str) -> None:
    found = plan(a_set(replicas=2), a_machine("a", cost="1"), a_machine("b", cost=cost), a_machine("c", cost="-1"))
    assert names(found.delete) == ["c"]
    assert names(plan(a_set(replicas=1), a_machine("a", cost="1"), a_machine("b", cost=cost)).delete) == ["b"]


def test_the_status_counts_machines() -> None:
    replica_set = a_set(minReadySeconds=50, template={"metadata": {"labels": {**WEB, "tier": "1"}}})
    machines = (
        a_machine("a", labels={**WEB, "tier": "1"}),
        a_machine("b", ready=20),
        a_machine("c", ready=None),
        a_machine("d", deleting=True),
        a_finished_machine("e", 5),
    )
    found = plan(replica_set, *machines)
    assert found.requeue_after == 5
    told = status(replica_set, found, None, NOW)
    assert {key: value for key, value in told.items() if key != "conditions"} == {
        "replicas": 3,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "terminatingReplicas": 1,
        "finishedReplicas": 1,
        "observedGeneration": 2,
    }
    assert [(each["type"], each["reason"]) for each in told["conditions"]] == [
        ("ReplicaFailure", "BackOff"),
        ("Reconciling", "ReplicasUnavailable"),
    ]
    assert plan(replica_set, *machines[:3]).requeue_after == 30


@pytest.mark.parametrize(
    ("replica_set", "reason", "name", "told"),
    [
        (a_set(), "FailedCreate", "web-x7k2q", "web-"),
        (a_set(), "FailedCreate", "web-x7k2qa", "web-x7k2qa"),
        (a_set(), "FailedCreate", "web-x7k2", "web-x7k2"),
        (a_set(), "FailedDelete", "web-x7k2q", "web-x7k2q"),
        (a_set(name="w" * 60), "FailedCreate", "w" * 58 + "x7k2q", "w" * 58),
        (a_set(ordinals={"start": 22222}), "FailedCreate", "web-22222", "web-22222"),
    ],
)
def test_a_refused_creation_has_no_random_name(replica_set: Object, reason: str, name: str, told: str) -> None:
    quota = 'virtualmachines "{}" is forbidden: exceeded quota: q'
    assert refusal(replica_set, reason, quota.format(name)) == Failure(reason, quota.format(told))


def test_a_refusal_is_read_up_to_a_limit() -> None:
    assert len(refusal(a_set(), "FailedCreate", "x" * (MAX_READ + 1)).message) == MAX_READ


def test_a_refused_value_has_no_random_characters() -> None:
    told = refusal(
        a_set(), "FailedCreate", 'VirtualMachine "web-x7k2q" is invalid: wwn: Invalid value: "500x7k2q": must be hexadecimal'
    ).message
    assert told == 'VirtualMachine "web-" is invalid: wwn: Invalid value: "500$(vm.suffix)": must be hexadecimal'


def test_conditions_come_and_go() -> None:
    missing = plan(a_set(replicas=1))
    refused = status(a_set(replicas=1, paused=True), missing, Failure("FailedCreate", "exceeded quota"), NOW)
    assert [(each["type"], each["reason"], each["message"]) for each in refused["conditions"]] == [
        ("ReplicaFailure", "FailedCreate", "exceeded quota"),
        ("ReplicaPaused", "Paused", "spec.paused is true"),
        ("Reconciling", "ReplicasUnavailable", "0 of 1 machines are available; the set has 0"),
    ]
    ready = plan(a_set(replicas=1), a_machine())
    assert status(a_set(replicas=1, status=refused), ready, None, NOW)["conditions"] == []


def test_reconciling_names_the_first_unavailable_machine() -> None:
    refused = {"type": "Ready", "status": "False", "reason": "FailedCreate", "message": "exceeded quota: pods"}
    machines = (a_machine("a"), a_machine("b", phase="Pending", conditions=[refused]), a_machine("c", phase="Stopped", ready=None))
    assert _lack(a_set(replicas=3), *machines[:2], a_machine("c")) == "2 of 3 machines are available; b: exceeded quota: pods"
    assert _lack(a_set(replicas=3), *machines) == "2 of 3 machines are available or off; b: exceeded quota: pods"
    assert _lack(a_set(replicas=1, minReadySeconds=10), a_machine("a", ready=5)) == "0 of 1 machines are available; a: Running"


def _lack(replica_set: Object, *machines: Object) -> str:
    (found,) = status(replica_set, plan(replica_set, *machines), None, NOW)["conditions"]
    return str(found["message"])


NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": ago(5)}


@pytest.mark.parametrize(
    ("spec", "machines", "result"),
    [
        ({"replicas": 0}, [], "Current"),
        ({"replicas": 1}, [], "InProgress"),
        ({"replicas": 1}, [a_machine(phase="", ready=None)], "InProgress"),
        ({"replicas": 1}, [a_machine(conditions=[NOT_READY])], "InProgress"),
        ({"replicas": 1}, [a_machine(ready=5)], "Current"),
        ({"replicas": 1, "minReadySeconds": 10}, [a_machine(ready=5)], "InProgress"),
        ({"replicas": 1, "minReadySeconds": 10}, [a_machine(ready=10)], "Current"),
        ({"replicas": 1}, [a_machine("a"), a_machine("b")], "InProgress"),
        ({"replicas": 1}, [a_machine("a"), a_machine("b", deleting=True)], "Current"),
        ({"replicas": 2}, [a_machine("a"), a_machine("b", phase="Stopped", ready=None)], "Current"),
        ({"replicas": 1}, [a_machine(phase="Stopped", conditions=[NOT_READY])], "InProgress"),
    ],
)
def test_helm_waits_for_the_replicas(spec: dict[str, Any], machines: list[Object], result: str) -> None:
    """A machine that a template keeps off is as the set wants it."""
    replica_set = a_set(**spec)
    told = {**replica_set, "status": status(replica_set, plan(replica_set, *machines), None, NOW)}
    assert kstatus.result(told) == result


@pytest.mark.parametrize(
    ("spec", "owner", "labels"), [({}, "web", WEB), ({"ordinals": {}}, "web", WEB), ({}, "web", OTHER), ({}, None, WEB)]
)
def test_machines_of_other_namespaces_do_not_belong_to_a_set(spec: Object, owner: str | None, labels: dict[str, str]) -> None:
    own = a_machine("web-0")
    for namespace in ("a", "z"):
        foreign = a_machine("web-0", owner=owner, labels=labels)
        foreign["metadata"]["namespace"] = namespace
        assert plan(a_set(replicas=1, **spec), foreign) == plan(a_set(replicas=1, **spec))
        assert plan(a_set(replicas=1, **spec), foreign, own) == plan(a_set(replicas=1, **spec), own)


def test_a_set_without_a_usable_selector_is_left_alone() -> None:
    assert membership.faults(a_set()) == ()
    assert membership.faults(a_set(selector={})) == ("spec.selector must not be empty",)
    assert membership.faults(a_set(selector={"matchExpressions": [{"key": "a", "operator": "Like"}]}))


def test_only_sound_sets_of_the_namespace_match() -> None:
    elsewhere = a_set(name="elsewhere")
    elsewhere["metadata"]["namespace"] = "other"
    unlike, unsound = a_set(name="unlike", selector={"matchLabels": OTHER}), a_set(name="unsound", selector={})
    assert membership.matching([elsewhere, unlike, unsound, a_set()], a_machine(owner=None)) == [a_set()]


@pytest.mark.parametrize(("ended", "waiting", "expired", "next_change"), [(9, 1, 0, 1), (10, 0, 0, 590), (599, 0, 0, 1), (600, 0, 1, None)])
def test_a_finished_machine_is_replaced_and_deleted_in_time(ended: float, waiting: int, expired: int, next_change: int | None) -> None:
    found = finished.by_age([a_finished_machine("a", ended)], NOW)
    seconds = None if found.next_change is None else (found.next_change - NOW).total_seconds()
    assert (len(found.waiting), len(found.expired), seconds) == (waiting, expired, next_change)


def test_a_machine_that_runs_or_cannot_be_read_is_not_finished() -> None:
    machine = a_finished_machine("a", 5)
    assert finished.is_finished(machine)
    running = {**machine, "status": {**machine["status"], "phase": "Running"}}
    unsound = {**machine, "status": {**machine["status"], "attempts": [{"number": "x"}]}}
    assert not finished.is_finished(running)
    assert not finished.is_finished(unsound)


@pytest.mark.parametrize(
    "metadata", [{"labels": []}, {"labels": {"app": 7}}, {"ownerReferences": 7}, {"ownerReferences": ["x"]}, {"deletionTimestamp": 7}]
)
def test_a_malformed_machine_disturbs_no_set(metadata: Object) -> None:
    machine = a_machine(owner=None)
    assert membership.controller_of_vm(machine) == [membership.Orphans("ns")]
    machine["metadata"] |= metadata
    assert membership.controller_of_vm(machine) == []
    assert membership.set_named_by(machine) == ""


def test_a_machine_names_its_set() -> None:
    assert membership.set_named_by(a_machine()) == "web"
    assert membership.set_named_by(a_machine(owner=None)) == ""
    foreign = a_machine()
    foreign["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    assert membership.set_named_by(foreign) == ""


# Kubernetes' rules, written from its documentation and by other means than the plan.

MACHINES = st.lists(
    st.fixed_dictionaries(
        {
            "owner": st.sampled_from([None, "web", "other"]),
            "labels": st.sampled_from([WEB, OTHER, {**WEB, "more": "1"}]),
            "deleting": st.booleans(),
            "node": st.sampled_from(["", "node1", "node2"]),
            "ready": st.sampled_from([None, 5, 50]),
            "cost": st.sampled_from([None, "-1", "3"]),
        }
    ),
    max_size=8,
)


@given(machines=MACHINES, replicas=st.integers(0, 6), deleting=st.booleans(), paused=st.booleans())
def test_the_plan_follows_kubernetes_rules(machines: list[dict[str, Any]], replicas: int, *, deleting: bool, paused: bool) -> None:
    made = [a_machine(f"m{number}", **each) for number, each in enumerate(machines)]
    found = plan(a_set(replicas=replicas, deleting=deleting, paused=paused), *made)
    given_by_name = {f"m{number}": each for number, each in enumerate(machines)}
    alive = {name for name, each in given_by_name.items() if not each["deleting"] and each["labels"]["app"] == "web"}
    ours = {name for name in alive if given_by_name[name]["owner"] == "web"}
    orphans = {name for name in alive if given_by_name[name]["owner"] is None and not deleting}
    strays = {
        name
        for name, each in given_by_name.items()
        if each["owner"] == "web" and each["labels"] == OTHER and not each["deleting"] and not deleting
    }
    assert (set(names(found.adopted)), set(names(found.released))) == (orphans, strays)
    count = len(ours | orphans)
    acts = not deleting and not paused
    assert found.create == (max(replicas - count, 0) if acts else 0)
    assert len(found.delete) == (max(count - replicas, 0) if acts else 0)
    gone = set(names(found.delete))
    assert gone <= ours | orphans
    for stays in (ours | orphans) - gone:
        for goes in gone:
            assert _weight(given_by_name[goes]) <= _weight(given_by_name[stays])


def _weight(machine: dict[str, Any]) -> tuple[bool, bool, int]:
    return bool(machine["node"]), machine["ready"] is not None, int(machine["cost"] or 0)


def test_ended_in_the_future_counts_as_now() -> None:
    later = a_finished_machine("a", -3600)
    assert plan(a_set(replicas=1), later).create == 0
    assert plan(a_set(replicas=1), later).requeue_after == 10
    assert ago(-3600) > ago(0)
