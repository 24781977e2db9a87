from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.objects import Object, name_of
from controller.reconcilers.replica_sets import replica_set_plan
from controller.reconcilers.replica_sets.replica_set_plan import Observed, Plan
from tests.unit.controller.reconcilers.replica_sets.builders import NOW, WEB, a_finished_machine, a_machine, a_set

OTHER = {"app": "db"}


def plan(replica_set: Object, *machines: Object) -> Plan:
    return replica_set_plan.plan(Observed(replica_set, machines, NOW))


def named(*machines: Object) -> list[str]:
    return [name_of(each) for each in machines]


@pytest.mark.parametrize(
    ("replica_set", "machines", "create", "deleted"),
    [
        pytest.param(a_set(ordinals={"start": 2}), [], (2, 3, 4), [], id="none-yet"),
        pytest.param(a_set(ordinals={}), [a_machine("web-1")], (0, 2), [], id="gaps"),
        pytest.param(
            a_set(ordinals={}), [a_machine("web-0", deleting=True), a_machine("web-1"), a_machine("web-2")], (), [], id="name-taken"
        ),
        pytest.param(
            a_set(ordinals={}, replicas=1),
            [a_machine("web-0", ready=None, node=""), a_machine("web-2"), a_machine("web-10"), a_machine("web-1", cost="9")],
            (),
            ["web-10", "web-2", "web-1"],
            id="highest-first",
        ),
        pytest.param(a_set(ordinals={}, replicas=1, paused=True), [a_machine("web-2")], (), [], id="paused"),
        pytest.param(a_set(ordinals={}, replicas=1, deleting=True), [a_machine("web-2")], (), [], id="deletion"),
        pytest.param(a_set(ordinals={}, replicas=1), [a_finished_machine("web-0", 7200)], (), [], id="ended-stays"),
        pytest.param(a_set(ordinals={}, replicas=(1 << 31) - 1), [a_machine("web-0")], tuple(range(1, 501)), [], id="burst"),
    ],
)
def test_create_and_delete(replica_set: Object, machines: list[Object], create: tuple[int, ...], deleted: list[str]) -> None:
    found = plan(replica_set, *machines)
    assert (found.ordinals, named(*found.delete), found.create) == (create, deleted, 0)


def test_machines_in_deletion_are_counted() -> None:
    machines = [a_machine(f"web-{each}", deleting=each < 2) for each in range(4)]
    found = plan(a_set(ordinals={}, replicas=4), *machines)
    assert (found.terminating, len(found.active)) == (2, 2)


@pytest.mark.parametrize("name", ["web-x1", "web-01", "web", "web-", "db-1", "web-1-2", "web-\u0661"])
def test_a_machine_with_another_name_is_no_member(name: str) -> None:
    assert plan(a_set(ordinals={}, replicas=0), a_machine(name), a_machine(name, owner=None)) == Plan()


def test_an_ended_machine_is_adopted_and_counts() -> None:
    found = plan(a_set(ordinals={}, replicas=1), a_finished_machine("web-0", 7200, owner=None))
    assert (named(*found.adopted), named(*found.active), found.finished) == (["web-0"], ["web-0"], 0)


MACHINES = st.dictionaries(
    st.integers(0, 9),
    st.fixed_dictionaries(
        {"owner": st.sampled_from([None, "web", "other"]), "labels": st.sampled_from([WEB, OTHER]), "deleting": st.booleans()}
    ),
    max_size=8,
)


@given(machines=MACHINES, replicas=st.integers(0, 6), start=st.integers(0, 5))
def test_a_set_converges_to_its_ordinals(machines: dict[int, dict[str, Any]], replicas: int, start: int) -> None:
    made = {number: a_machine(f"web-{number}", **each) for number, each in machines.items()}
    replica_set = a_set(replicas=replicas, ordinals={"start": start})
    foreign = {number for number, each in machines.items() if each["owner"] == "other" or each["labels"] == OTHER}
    for _ in range(2):
        found = plan(replica_set, *made.values())
        gone = {*named(*found.delete)}
        made = {number: vm for number, vm in made.items() if name_of(vm) not in gone and "deletionTimestamp" not in vm["metadata"]}
        made |= {number: a_machine(f"web-{number}") for number in found.ordinals if number not in made}
    wanted = set(range(start, start + replicas))
    assert set(made) - foreign == wanted - foreign
    assert not plan(replica_set, *made.values()).delete
