from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.managedfields import elements, sets
from apiserver.apis.meta.managedfields.elements import ElementError

STEPS = (
    "f:a",
    "f:b",
    "f:b-c",
    'k:{"name":"x"}',
    'k:{"name":"x-y"}',
    'k:{"port":8}',
    'k:{"port":80}',
    'v:"a"',
    "v:2",
    "v:10",
    "i:3",
    "i:20",
)
PATHS = st.frozensets(st.lists(st.sampled_from(STEPS), min_size=1, max_size=3).map(tuple), max_size=8)


def made(paths: frozenset[tuple[str, ...]]) -> sets.Fields:
    return sets.of(*sorted(paths))


def assert_sorted(tree: sets.Fields) -> None:
    assert list(tree) == sorted(tree, key=elements.rank)
    for below in tree.values():
        assert_sorted(below)


@given(PATHS, PATHS)
def test_the_algebra_is_that_of_sets_of_paths(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> None:
    one, other = made(first), made(second)
    for result, expected in (
        (sets.union(one, other), first | second),
        (sets.difference(one, other), first - second),
        (sets.intersection(one, other), first & second),
        (sets.without(one, other), {each for each in first if not any(each[:length] in second for length in range(1, 4))}),
    ):
        assert set(sets.paths(result)) == expected
        assert_sorted(result)
    assert sets.contains(one, other) is (second <= first)
    assert (frozenset(sets.paths(one)), frozenset(sets.paths(other))) == (first, second), "sets are not changed"


@given(PATHS, st.randoms(use_true_random=False))
def test_written_sets_are_read_in_any_order(paths: frozenset[tuple[str, ...]], source: Any) -> None:
    def shuffled(tree: sets.Fields) -> sets.Fields:
        steps = list(tree)
        source.shuffle(steps)
        return {step: shuffled(tree[step]) for step in steps}

    written = made(paths)
    assert json.dumps(sets.parse(shuffled(written))) == json.dumps(written)


def test_foreign_set_becomes_canonical_without_unknown_keys() -> None:
    raw = {'k:{"b": 1.0, "a": "<"}': {".": {}}, "x:later": {}, "f:z": {"x:later": {}}, "f:a": {".": {}, "f:b": None}}
    assert json.dumps(sets.parse(raw)) == json.dumps({"f:a": {".": {}, "f:b": {}}, "f:z": {}, 'k:{"a":"\\u003c","b":1}': {}})
    assert sets.parse(None) == sets.parse({}) == {}


@pytest.mark.parametrize("wrong", [5, "text", ["f:a"], {"f:a": 5}, {"bad": {}}, {"a": {}}, {"v:[": {}}, {"k:[1]": {}}, {"i:x": {}}])
def test_invalid_field_sets_are_refused(wrong: Any) -> None:
    with pytest.raises(ElementError):
        sets.parse(wrong)


@pytest.mark.parametrize(
    ("item", "written", "shown"),
    [
        ("plain", 'v:"plain"', '[="plain"]'),
        ('q"\\', 'v:"q\\"\\\\"', '[="q\\"\\\\"]'),
        ("<&>\n\x01\u2028ü", 'v:"\\u003c\\u0026\\u003e\\n\\u0001\\u2028ü"', '[="<&>\\n\\x01\\u2028ü"]'),
        (True, "v:true", "[=true]"),
        (12, "v:12", "[=12]"),
        (1000000.0, "v:1000000", "[=1e+06]"),
        (1.0, "v:1", "[=1]"),
        (0.1, "v:0.1", "[=0.1]"),
        (1e21, "v:1e+21", "[=1e+21]"),
        (1.5e-7, "v:1.5e-7", "[=1.5e-07]"),
        (123456789.5, "v:123456789.5", "[=1.234567895e+08]"),
    ],
)
def test_values_are_written_and_shown_as_in_go(item: Any, written: str, shown: str) -> None:
    assert elements.value(item) == written
    assert elements.show(written) == shown or item == 1000000.0  # an integer in a request, a float in an entry
    assert elements.show(written, stored=True) == shown
    assert elements.canonical(written) == written


def test_keys_are_shown_in_their_order() -> None:
    step = elements.key([("port", 80), ("name", "x")])
    assert (step, elements.show(step)) == ('k:{"name":"x","port":80}', '[name="x",port=80]')
