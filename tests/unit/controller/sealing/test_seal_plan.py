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


EVERY_3 = tuple(float(each) for each in range(20, 72, 3))
EVERY_5 = tuple(float(each) for each in range(20, 71, 5))


def test_an_unchanged_lease_may_be_sealed_after_the_wait() -> None:
    assert not seal_plan.may_seal(looked(EVERY_3[:17]), TIMES)
    assert seal_plan.may_seal(looked(EVERY_3), TIMES)
    assert seal_plan.may_seal(looked(EVERY_5), TIMES)


@pytest.mark.parametrize("gap", [(20.0, 71.0), (20.0, *EVERY_5[4:]), (*EVERY_3[:8], *EVERY_3[10:]), (*EVERY_5[:8], 60.5, 65.0, 70.0)])
def test_a_missed_read_begins_again(gap: tuple[float, ...]) -> None:
    assert not seal_plan.may_seal(looked(gap), TIMES)


def test_a_change_or_a_lost_majority_begins_again() -> None:
    watch = looked(EVERY_3, version="9")
    for version in ("8", "10", "99"):
        assert not seal_plan.may_seal(seal_plan.observe(watch, version, 74.0, TIMES, fresh=True), TIMES)
    without = seal_plan.observe(watch, "9", 74.0, TIMES, fresh=False)
    assert without.fresh_since is None
    assert not seal_plan.may_seal(without, TIMES)
    again = seal_plan.observe(without, "9", 77.0, TIMES, fresh=True)
    assert (again.unchanged_since, again.fresh_since) == (20.0, 77.0)


def test_a_voter_is_fresh_by_the_beat_of_this_replica() -> None:
    promises = {
        "a": Promise(beats={"own": "5", "other": "9"}),
        "b": Promise(beats={"own": "2"}),
        "c": Promise(beats={"other": "5"}),
        "d": Promise(beats={"own": "5"}, withdrawn=True),
        "e": Promise(beats={"own": "unknown"}),
        "f": Promise(beats={"own": "5"}, withdrawn=True, virtual=True),
        "g": Promise(beats={"own": "1"}),
        "h": Promise(beats={"own": "6"}),
    }
    assert seal_plan.fresh_voters(promises, {"6": 99.0, "5": 85.0, "2": 84.9, "1": 45.0}, "own", 100.0, TIMES) == {"a", "f", "h"}


def test_what_follows() -> None:
    watch, majority = looked(EVERY_3), frozenset({"b", "c"})
    assert seal_plan.plan(watch, PROMISE, majority, TIMES) == Seal()
    assert seal_plan.plan(looked(EVERY_5), PROMISE, majority, TIMES) == Seal()
    assert seal_plan.plan(looked(EVERY_3[:5]), PROMISE, frozenset(), TIMES) == Nothing()
    assert seal_plan.plan(watch, replace(PROMISE, withdrawn=True), majority, TIMES) == Nothing()
    assert seal_plan.plan(replace(watch, fresh_since=50.0), PROMISE, majority, TIMES) == Nothing()
    few = seal_plan.plan(watch, PROMISE, frozenset({"c", "x", "y"}), TIMES)
    assert few == Refuse("only 1 of the 3 voters (a, b, c) report, less than a majority")
    four = seal_plan.plan(watch, replace(PROMISE, voters=("a", "b", "c", "d")), frozenset({"c", "d"}), TIMES)
    assert four == Refuse("only 2 of the 4 voters (a, b, c, d) report, less than a majority")
    none = seal_plan.plan(watch, replace(PROMISE, voters=("a", "b")), frozenset({"a", "b"}), TIMES)
    assert none == Refuse("its guardian names 2 voters, and at least 3 are needed (guardian.voters)")


def test_no_lease_of_a_virtual_machine_is_sealed() -> None:
    virtual, watch = replace(PROMISE, withdrawn=True, virtual=True), looked(EVERY_3)
    told = "promises nothing on a virtual machine, which may be paused"
    assert seal_plan.plan(watch, virtual, frozenset(VOTERS), TIMES) == Refuse(told, "VirtualNode")
    assert seal_plan.plan(looked(EVERY_3[:5]), virtual, frozenset(VOTERS), TIMES) == Nothing()


def test_a_replica_on_a_virtual_machine_seals_nothing() -> None:
    """It refuses once a replica elsewhere would have sealed."""
    late = tuple(float(each) for each in range(20, 121, 5))
    told = "virt-controller runs on a virtual machine, which may be paused"
    assert seal_plan.plan(looked(late[:-1]), PROMISE, frozenset(VOTERS), TIMES, allowed=False) == Nothing()
    for times in (late, (*late, 125.0)):
        assert seal_plan.plan(looked(times), PROMISE, frozenset(VOTERS), TIMES, allowed=False) == Refuse(told, "VirtualNode")
