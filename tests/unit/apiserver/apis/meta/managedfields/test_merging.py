from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from apiserver.apis.meta.errors import Conflict, Invalid
from tests.unit.apiserver.apis.meta.managedfields.conftest import SPEC, World

New = Callable[..., World]


def test_an_applier_owns_what_it_says_and_may_change_it(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1, flag: false}")
    it.apply("a", "{name: y, size: 1, flag: false}")
    assert it.spec == {"name": "y", "size": 1, "flag": False}
    assert it.owned == {"a": ["flag", "name", "size"]}


def test_fields_an_applier_omits_are_removed(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1}")
    it.apply("a", "{name: x}")
    assert (it.spec, it.owned) == ({"name": "x"}, {"a": ["name"]})


def test_shared_fields_are_removed_with_their_last_applier(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1}")
    it.apply("b", "{size: 1}")
    assert it.owned == {"a": ["name", "size"], "b": ["size"]}
    it.apply("a", "{name: x}")
    assert it.spec == {"name": "x", "size": 1}
    it.apply("b", "{}")
    assert it.spec == {"name": "x"}


def test_a_field_of_another_applier_is_a_conflict_unless_forced(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1}")
    with pytest.raises(Conflict) as caught:
        it.apply("b", "{name: y}")
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "a": .spec.name'
    it.apply("b", "{name: y}", force=True)
    assert (it.spec, it.owned) == ({"name": "y", "size": 1}, {"a": ["size"], "b": ["name"]})


def test_field_taken_by_an_update_conflicts_with_its_applier(world: New) -> None:
    it = world()
    it.apply("a", "{name: x}")
    it.update("u", "{name: y}")
    assert it.owned == {"u": ["name"]}
    with pytest.raises(Conflict) as caught:
        it.apply("a", "{name: x}")
    assert caught.value.details.causes[0].message == 'conflict with "u" using g/v1'
    it.apply("a", "{name: y}")
    assert it.owned == {"a": ["name"], "u": ["name"]}


def test_fields_owned_by_an_update_stay_when_applier_omits_them(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1}")
    it.update("u", "{name: y, size: 1}")
    it.apply("a", "{size: 1}")
    assert it.spec == {"name": "y", "size": 1}


def test_unowned_fields_are_left_alone(world: New) -> None:
    it = world()
    it.update("u", "{name: x, set: [a]}")
    it.live["metadata"]["managedFields"] = []  # type: ignore[index]  # it lives
    it.apply("a", "{set: [b]}")
    assert it.spec == {"name": "x", "set": ["a", "b"]}
    assert it.owned["before-first-apply"] == [".", "name", "set", "set[a]"]


def test_an_update_that_removes_a_field_takes_it_from_everybody(world: New) -> None:
    it = world()
    it.apply("a", "{name: x, size: 1}")
    it.apply("b", "{size: 1}")
    it.update("u", "{name: x}")
    assert it.owned == {"a": ["name"]}


def test_an_update_by_the_same_manager_adds_to_its_entry(world: New) -> None:
    it = world()
    it.update("u", "{name: x}")
    it.update("u", "{name: x, size: 1}")
    assert it.owned == {"u": [".", "name", "size"]}
    assert it.entry("u")["time"] == "2026-01-01T00:00:02Z"
    it.update("u", "{name: x, size: 1}")
    assert it.entry("u")["time"] == "2026-01-01T00:00:02Z"


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("{set: [a, b]}", "{set: [c]}", "{set: [a, b, c]}"),
        ("{set: [a, b, c]}", "{set: [c, a]}", "{set: [b, c, a]}"),
        ("{set: [a, b, c, d]}", "{set: [x, b, d]}", "{set: [a, x, b, c, d]}"),
        ("{set: [a, b, c]}", "{set: [b, x, a]}", "{set: [b, c, x, a]}"),
        ("{order: [a, b]}", "{order: [c]}", "{order: [c]}"),
        ("{whole: {a: x, b: x}}", "{whole: {c: x}}", "{whole: {c: x}}"),
        ("{map: {a: x, b: x}}", "{map: {b: y, c: x}}", "{map: {a: x, b: y, c: x}}"),
        ("{pair: {a: x}}", "{pair: {b: y}}", "{pair: {a: x, b: y}}"),
        ("{list: [{name: a, value: x}, {name: b}]}", "{list: [{name: b, value: y}]}", "{list: [{name: a, value: x}, {name: b, value: y}]}"),
        (
            "{list: [{name: a}, {name: b}]}",
            "{list: [{name: c}, {name: a, value: z}]}",
            "{list: [{name: c}, {name: a, value: z}, {name: b}]}",
        ),
        (
            "{list: [{name: a, list: [{name: x, value: '1'}]}]}",
            "{list: [{name: a, list: [{name: y}]}]}",
            "{list: [{name: a, list: [{name: x, value: '1'}, {name: y}]}]}",
        ),
        ("{free: {a: 1, b: {c: 2}}}", "{free: {b: {d: 3}}}", "{free: {a: 1, b: {c: 2, d: 3}}}"),
        ("{free: {a: [1, 2]}}", "{free: {a: [3]}}", "{free: {a: [3]}}"),
        ("{free: {a: 1}}", "{free: text}", "{free: text}"),
        ("{name: x}", "{name: null}", "{name: null}"),
        ("{map: {a: x}}", "{map: null}", "{map: {a: x}}"),
    ],
)
def test_merging_keeps_granular_and_replaces_atomic_fields(world: New, live: str, applied: str, merged: str) -> None:
    it = world()
    it.update("u", live)
    it.apply("a", applied, force=True)
    assert it.spec == yaml.safe_load(merged)


def test_items_of_sets_and_keyed_lists_have_owners_of_their_own(world: New) -> None:
    it = world()
    it.apply("a", "{set: [a, b], list: [{name: x, value: '1'}, {name: y}]}")
    it.apply("b", "{set: [b, c], list: [{name: y, value: '2'}]}")
    assert it.owned == {
        "a": ["list[name=x]", "list[name=x].name", "list[name=x].value", "list[name=y]", "list[name=y].name", "set[a]", "set[b]"],
        "b": ["list[name=y]", "list[name=y].name", "list[name=y].value", "set[b]", "set[c]"],
    }
    it.apply("a", "{set: [b]}")
    assert it.spec == {"set": ["b", "c"], "list": [{"name": "y", "value": "2"}]}


def test_nested_items_go_with_their_last_owner(world: New) -> None:
    it = world()
    it.apply("a", "{list: [{name: x, list: [{name: i, value: '1'}, {name: j}]}]}")
    it.apply("b", "{list: [{name: x, list: [{name: i}]}]}")
    it.apply("a", "{}")
    assert it.spec == {"list": [{"name": "x", "list": [{"name": "i"}]}]}
    it.apply("b", "{}")
    assert not it.spec


def test_a_granular_map_keeps_what_others_put_into_it(world: New) -> None:
    it = world()
    it.apply("a", "{map: {x: '1'}, pair: {a: '1'}}")
    it.update("u", "{map: {x: '1', y: '2'}, pair: {a: '1', b: '2'}}")
    it.apply("a", "{}")
    assert it.spec == {"map": {"y": "2"}, "pair": {"b": "2"}}
    assert it.owned == {"a": ["."], "u": ["map.y", "pair.b"]}


def test_nested_map_is_removed_with_its_owner_despite_others(world: New) -> None:
    """As in Go: the other manager owns the fields in the item, but not the item."""
    it = world()
    it.apply("a", "{maps: {m: {x: '1'}}}")
    it.update("u", "{maps: {m: {x: '1', y: '2'}}}")
    it.apply("a", "{}")
    assert it.spec == {"maps": None}
    assert it.owned == {"a": ["."]}


def test_missing_keys_of_a_list_are_their_defaults(world: New) -> None:
    it = world()
    it.apply("a", "{ports: [{port: 80, name: x}, {port: 80, protocol: UDP, name: y}]}")
    assert it.owned["a"][:4] == [
        "ports[port=80,protocol=TCP]",
        "ports[port=80,protocol=TCP].name",
        "ports[port=80,protocol=TCP].port",
        "ports[port=80,protocol=UDP]",
    ]
    it.apply("b", "{ports: [{port: 80, protocol: TCP, name: x}]}")
    assert it.spec["ports"][0] == {"port": 80, "protocol": "TCP", "name": "x"}
    assert len(it.spec["ports"]) == 2


def test_duplicates_have_one_owner_and_yield_to_applied_items(world: New) -> None:
    it = world()
    it.update("u", "{list: [{name: x, value: '1'}, {name: x, value: '2'}, {name: y}], set: [a, a]}")
    assert it.owned["u"] == [".", "list", "list[name=x]", "list[name=y]", "list[name=y].name", "set", "set[a]"]
    it.apply("a", "{list: [{name: x, value: '3'}], set: [a]}", force=True)
    assert it.spec == {"list": [{"name": "x", "value": "3"}, {"name": "y"}], "set": ["a"]}
    with pytest.raises(Invalid) as caught:
        it.apply("a", "{set: [a, a]}")
    assert '.spec.set: duplicate entries for key [="a"]' in caught.value.message


def test_removing_one_of_the_duplicates_is_a_change_of_the_item(world: New) -> None:
    it = world()
    it.update("u", "{list: [{name: x, value: '1'}, {name: x, value: '2'}]}")
    it.update("v", "{list: [{name: x, value: '2'}]}")
    assert it.owned["v"] == ["list[name=x]", "list[name=x].name", "list[name=x].value"]


def test_fields_that_an_endpoint_ignores_are_nobodys(world: New) -> None:
    it = world(ignored={"g/v1": {"f:spec": {"f:name": {}}}, "g/v2": {}})
    it.update("u", "{name: x, size: 1}")
    assert it.owned == {"u": [".", "size"]}
    it.apply("a", "{name: y, flag: true}")
    assert it.owned == {"a": ["flag"], "u": [".", "size"]}


def test_entries_of_served_versions_count_and_others_are_dropped(world: New) -> None:
    it = world()
    it.apply("a", "{name: x}", version="v2")
    with pytest.raises(Conflict):
        it.apply("b", "{name: y}")
    it.apply("a", "{size: 1}")
    assert (it.spec, it.entry("a")["apiVersion"]) == ({"size": 1}, "g/v1")
    it.update("u", "{size: 1, flag: true}", version="v2")
    it.serve(SPEC, ("v1",))
    it.apply("b", "{flag: false}")
    assert it.owned == {"a": ["size"], "b": ["flag"]}


def test_field_that_became_atomic_is_owned_as_a_whole(world: New) -> None:
    it = world()
    it.apply("a", "{map: {x: '1', y: '2'}, set: [a, b]}")
    atomic = {
        **SPEC["properties"],
        "map": {**SPEC["properties"]["map"], "x-kubernetes-map-type": "atomic"},
        "set": {"type": "array", "items": {"type": "string"}},
    }
    it.serve({"type": "object", "properties": atomic}, ("v1",))
    it.apply("b", "{name: n}")
    assert it.owned["a"] == ["map", "set"]


def test_a_number_is_no_truth_value(world: New) -> None:
    it = world()
    it.update("u", "{free: {a: 1}}")
    it.update("v", "{free: {a: true}}")
    assert it.owned["v"] == ["free.a"]
    it.update("w", "{free: {a: 1.0}}")
    it.update("x", "{free: {a: 1}}")
    assert "x" not in it.owned
