from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import deadlines

PAGE = Path(__file__).parents[5] / "docs" / "high-availability.md"
UID = "8f1d2c3b-0000-4000-8000-0123456789ab"
PROMISE = Promise("s", "boot", (UID,), ("a", "b", "c"), {"r": "1"}, "192.0.2.1:8446", "PEM")


def a_lease(node: str = "a", **changed: Any) -> dict[str, Any]:
    made = guards.lease(node, "ns", PROMISE, "2026-01-01T00:00:00.000000Z", None)
    given = json.loads(made["metadata"]["annotations"][guards.PROMISE_ANNOTATION])
    made["metadata"]["annotations"][guards.PROMISE_ANNOTATION] = json.dumps({**given, **changed})
    return made


def test_a_lease_replaces_one_version() -> None:
    made = a_lease()
    assert guards.promise_of(made) == PROMISE
    assert "resourceVersion" not in made["metadata"]
    before = guards.sealed({**made, "metadata": {**made["metadata"], "resourceVersion": "7"}}, "now")
    assert guards.is_sealed(before)
    assert guards.promise_of(before) == PROMISE
    after = guards.lease("a", "ns", PROMISE, "later", before)
    assert after["metadata"]["resourceVersion"] == "7"
    assert not guards.is_sealed(after)


@pytest.mark.parametrize(
    "changed",
    [
        {"serial": 1},
        {"pods": {}},
        {"pods": ["../x"]},
        {"pods": [UID] * (guards.MAX_PODS + 1)},
        {"voters": [1]},
        {"voters": {}},
        {"voters": ["v"] * (guards.MAX_VOTERS + 1)},
        {"beats": {str(each): "1" for each in range(guards.MAX_BEATS + 1)}},
        {"beats": {"a": 1}},
        {"beats": []},
        {"withdrawn": "no"},
        {"virtual": 1},
        {"address": "x" * (guards.MAX_TEXT + 1)},
        {"boot": None},
    ],
)
def test_an_invalid_promise_is_none(changed: dict[str, Any]) -> None:
    assert guards.promise_of(a_lease(**changed)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"pods": [UID] * guards.MAX_PODS},
        {"voters": ["v"] * guards.MAX_VOTERS},
        {"beats": {str(each): "1" for each in range(guards.MAX_BEATS)}},
        {"address": "x" * guards.MAX_TEXT},
    ],
)
def test_a_promise_at_a_limit_is_valid(changed: dict[str, Any]) -> None:
    assert guards.promise_of(a_lease(**changed)) is not None


def test_a_promise_has_a_limit_and_defaults() -> None:
    made = a_lease()
    longest = "{}".ljust(guards.MAX_PROMISE)
    for text, promise in ((longest, Promise()), (f"{longest} ", None)):
        made["metadata"]["annotations"] = {guards.PROMISE_ANNOTATION: text}
        assert guards.promise_of(made) == promise


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 0),
        ({"cut_off": 20.5}, 0),
        ({"cut_off": 20.0}, 1),
        ({"cut_off": 19.0}, 1),
        ({"wait": 47.5}, 0),
        ({"wait": (40.0 + 2.0) * guards.DRIFT + 3.0 + 2.0}, 0),
        ({"wait": 47.4}, 1),
        ({"cut_off": 0.0, "wait": 0.0}, 2),
    ],
)
def test_times_are_safe_up_to_their_limits(changed: dict[str, float], count: int) -> None:
    assert len(guards.faults(replace(guards.DEFAULT, **changed))) == count


def test_the_page_about_guardians_names_their_times() -> None:
    page, times = PAGE.read_text(encoding="utf-8"), guards.DEFAULT
    letters = {"T": times.promise, "D": times.cut_off, "W": times.wait, "F": times.fresh}
    stated = [f"{letter} = {seconds:g} s" for letter, seconds in letters.items()]
    stated += [f"renews a Lease every {times.renew:g} s", f"virt-controller one every {times.beat:g} s"]
    assert [each for each in stated if each not in page] == []


@pytest.mark.parametrize("text", [None, 5, "", "[]", "{", "[" * 100_000, "x" * 300_000])
def test_hostile_annotations_are_no_promise(text: Any) -> None:
    made = a_lease()
    made["metadata"]["annotations"] = {} if text is None else {guards.PROMISE_ANNOTATION: text}
    assert guards.promise_of(made) is None


def test_a_sealed_lease_ends_only_pods_of_its_node() -> None:
    sealed = guards.sealed(a_lease(), "now")
    assert guards.sealed_pods([sealed]) == {"a": frozenset({UID})}
    withdrawn, invalid = guards.sealed(a_lease("c", withdrawn=True), "now"), guards.sealed(a_lease("d", pods="x"), "now")
    assert guards.sealed_pods([a_lease("b"), withdrawn, invalid]) == {}
    foreign = {**sealed, "metadata": {**sealed["metadata"], "name": "virt-handler-a"}}
    assert guards.sealed_pods([foreign]) == {}


def test_a_majority_is_more_than_half_of_at_least_three() -> None:
    assert guards.majority({"a", "b"}, ("a", "b", "c"))
    assert guards.majority({"a", "b", "c"}, "abcde")
    assert not guards.majority({"a", "b", "c"}, "abcdefg")
    assert not guards.majority({"a", "x"}, ("a", "b", "c"))
    assert not guards.majority({"a", "b"}, ("a", "b", "c", "d"))
    assert not guards.majority({"a", "b"}, ("a", "b"))
    assert not guards.majority({"a", "b"}, ("a", "b", "b"))


def test_the_deadline_is_read_as_written() -> None:
    boot = "0d9e4e2e-51c6-4d1e-9d3c-0123456789ab"
    assert deadlines.decode(deadlines.encode(12.5, boot)) == (12.5, boot)
    assert deadlines.decode(deadlines.encode(0.0, boot)) == (1e-9, boot)
    assert deadlines.decode(deadlines.encode(None, boot)) == (None, boot)
    assert deadlines.decode(b"") is deadlines.decode(b"x" * 45) is None
