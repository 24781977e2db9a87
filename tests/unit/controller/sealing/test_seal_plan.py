from __future__ import annotations

from dataclasses import replace

import pytest

from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from controller.sealing import seal_plan
from controller.sealing.seal_plan import Nothing, Refuse, Seal, Watch

TIMES = guards.DEFAULT
VOTERS = ("a", "b", "c")
PROMISE = Promise(voters=VOTERS)


def looked(times: tuple[float, ...], *, fresh: bool = True, version: str = "1") -> Watch:
    found = None
    for each in times:
        found = seal_plan.observe(found, version, each, TIMES, fresh=fresh)
    assert found is not None
    return found


EVERY_3 = tuple(float(each) for each in range(0, 52, 3))


def test_an_unchanged_lease_may_be_sealed_after_the_wait() -> None:
    assert not seal_plan.may_seal(looked(EVERY_3[:17]), TIMES)
    assert seal_plan.may_seal(looked(EVERY_3), TIMES)


@pytest.mark.parametrize("gap", [(0.0, 51.0), (*EVERY_3[:8], *EVERY_3[10:])])
def test_a_missed_read_begins_again(gap: tuple[float, ...]) -> None:
    assert not seal_plan.may_seal(looked(gap), TIMES)


def test_a_change_or_a_lost_majority_begins_again() -> None:
    watch = looked(EVERY_3)
    assert not seal_plan.may_seal(seal_plan.observe(watch, "2", 54.0, TIMES, fresh=True), TIMES)
    without = seal_plan.observe(watch, "1", 54.0, TIMES, fresh=False)
    assert without.fresh_since is None
    assert not seal_plan.may_seal(without, TIMES)
    again = seal_plan.observe(without, "1", 57.0, TIMES, fresh=True)
    assert (again.unchanged_since, again.fresh_since) == (0.0, 57.0)


def test_a_voter_is_fresh_by_the_beat_of_this_replica() -> None:
    promises = {
        "a": Promise(beats={"own": "5", "other": "9"}),
        "b": Promise(beats={"own": "2"}),
        "c": Promise(beats={"other": "5"}),
        "d": Promise(beats={"own": "5"}, withdrawn=True),
        "e": Promise(beats={"own": "unknown"}),
        "f": Promise(beats={"own": "5"}, withdrawn=True, virtual=True),
    }
    assert seal_plan.fresh_voters(promises, {"5": 90.0, "2": 84.9}, "own", 100.0, TIMES) == {"a", "f"}


def test_what_follows() -> None:
    watch, majority = looked(EVERY_3), frozenset({"b", "c"})
    assert seal_plan.plan(watch, PROMISE, majority, TIMES) == Seal()
    assert seal_plan.plan(looked(EVERY_3[:5]), PROMISE, frozenset(), TIMES) == Nothing()
    assert seal_plan.plan(watch, replace(PROMISE, withdrawn=True), majority, TIMES) == Nothing()
    assert seal_plan.plan(replace(watch, fresh_since=30.0), PROMISE, majority, TIMES) == Nothing()
    few = seal_plan.plan(watch, PROMISE, frozenset({"c", "x", "y"}), TIMES)
    assert few == Refuse("only 1 of the 3 voters (a, b, c) report, less than a majority")
    none = seal_plan.plan(watch, replace(PROMISE, voters=("a", "b")), frozenset({"a", "b"}), TIMES)
    assert none == Refuse("its guardian names 2 voters, and at least 3 are needed (guardian.voters)")


def test_no_lease_of_a_virtual_machine_is_sealed() -> None:
    virtual, watch = replace(PROMISE, withdrawn=True, virtual=True), looked(EVERY_3)
    told = "promises nothing on a virtual machine, which may be paused"
    assert seal_plan.plan(watch, virtual, frozenset(VOTERS), TIMES) == Refuse(told, "VirtualNode")
    assert seal_plan.plan(looked(EVERY_3[:5]), virtual, frozenset(VOTERS), TIMES) == Nothing()


def test_a_replica_on_a_virtual_machine_seals_nothing() -> None:
    """It refuses once a replica elsewhere would have sealed."""
    watch, late = looked(EVERY_3), looked(tuple(float(each) for each in range(0, 103, 3)))
    told = "virt-controller runs on a virtual machine, which may be paused"
    assert seal_plan.plan(watch, PROMISE, frozenset(VOTERS), TIMES, allowed=False) == Nothing()
    assert seal_plan.plan(late, PROMISE, frozenset(VOTERS), TIMES, allowed=False) == Refuse(told, "VirtualNode")
