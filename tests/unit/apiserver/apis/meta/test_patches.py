from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import errors, json_patch, merge_patch, strategic_patch

SCALARS = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))
WITHOUT_NULL = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc", max_size=1), inner))
)
OBJECTS = st.dictionaries(st.text("abc", max_size=1), WITHOUT_NULL)
PATCHES = st.recursive(
    st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2)), lambda inner: st.dictionaries(st.text("abc", max_size=1), inner)
)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_rfc_says(document: Any, patch: Any, expected: Any) -> None:
    assert merge_patch.apply(document, patch) == expected


@given(document=OBJECTS, patch=st.dictionaries(st.text("abc", max_size=1), PATCHES))
def test_merge_patch_is_idempotent_and_mutates_no_argument(document: Any, patch: Any) -> None:
    before = copy.deepcopy((document, patch))
    once = merge_patch.apply(document, patch)
    assert merge_patch.apply(once, patch) == once
    assert (document, patch) == before


@given(document=OBJECTS, wanted=OBJECTS)
def test_a_merge_patch_can_make_anything_of_an_object(document: Any, wanted: Any) -> None:
    patch = {**dict.fromkeys(document), **{key: value for key, value in wanted.items() if not isinstance(value, dict)}}
    expected = {key: value for key, value in wanted.items() if not isinstance(value, dict)}
    assert merge_patch.apply(document, patch) == expected


def test_a_json_patch_runs_its_operations_in_order() -> None:
    document = {"spec": {"disks": [{"name": "a"}], "old": 1}}
    patch = [
        {"op": "test", "path": "/spec/old", "value": 1},
        {"op": "add", "path": "/spec/disks/-", "value": {"name": "b"}},
        {"op": "copy", "from": "/spec/disks/0", "path": "/spec/first"},
        {"op": "move", "from": "/spec/old", "path": "/spec/new~1one"},
        {"op": "replace", "path": "/spec/disks/0/name", "value": "c"},
        {"op": "remove", "path": "/spec/disks/1"},
    ]
    assert json_patch.apply(document, patch) == {"spec": {"disks": [{"name": "c"}], "first": {"name": "a"}, "new/one": 1}}
    assert document == {"spec": {"disks": [{"name": "a"}], "old": 1}}


@pytest.mark.parametrize("patch", [{"op": "add"}, ["x"], [{"op": ["add"], "path": "/a"}], [{"op": "copy", "path": "/a", "from": 7}]])
def test_malformed_json_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(errors.BadRequest, match="error decoding patch"):
        json_patch.apply({"a": 1}, patch)


@pytest.mark.parametrize(
    "operation",
    [None, {}, {"op": "frobnicate", "path": "/a"}, {"op": "add", "path": "a", "value": 1}, {"op": "add"}, {"op": "move", "path": "/a"}],
)
def test_unknown_json_patch_operation_is_invalid(operation: Any) -> None:
    with pytest.raises(errors.Invalid, match="operation 1: "):
        json_patch.apply({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, operation])


def test_null_is_a_patch_of_nothing_and_a_value_left_out_is_null() -> None:
    document = {"a": 1}
    assert json_patch.apply(document, None) == document
    assert json_patch.apply(document, [{"op": "add", "path": "/b"}, {"op": "test", "path": "/c"}]) == {"a": 1, "b": None}
    assert json_patch.apply(document, [{"op": "replace", "path": "/a"}]) == {"a": None}


def test_members_that_no_operation_has_are_found() -> None:
    patch = [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a", "frm": "/b", "x": 1}, "no operation"]
    assert json_patch.unknown_members(patch) == ["[1].frm", "[1].x"]
    assert json_patch.unknown_members(None) == []


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/x"},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/x", "value": 2},
        {"op": "replace", "path": "/x/y", "value": 2},
        {"op": "add", "path": "/l/7", "value": 2},
        {"op": "add", "path": "/l/x", "value": 2},
        {"op": "add", "path": "/a/b", "value": 2},
        {"op": "copy", "from": "/x/z", "path": "/y"},
        {"op": "copy", "from": "", "path": "/y"},
        {"op": "move", "from": "/d", "path": "/d/e"},
        {"op": "remove", "path": "/~2"},
        {"op": "remove", "path": "/l/-"},
    ],
)
def test_an_operation_that_cannot_be_done_is_invalid_and_named(operation: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid, match='operation 0, "') as caught:
        json_patch.apply({"a": 1, "l": [], "d": {}}, [operation])
    assert caught.value.details.causes[0].field == operation["path"]


def test_a_json_patch_is_bounded() -> None:
    with pytest.raises(errors.RequestEntityTooLarge, match="allowed maximum operations in a JSON patch is 10000, got 10001"):
        json_patch.apply({}, [{"op": "test", "path": "", "value": {}}] * 10_001)
    doubling = [{"op": "copy", "from": "/d", "path": f"/d/{number}"} for number in range(64)]
    with pytest.raises(errors.RequestEntityTooLarge, match="copy operations"):
        json_patch.apply({"d": {"a": "x" * 1000}}, doubling)


def test_json_patch_is_as_lenient_as_gos_and_mutates_nothing() -> None:
    document = {"a": {"l": [1, 2, 3]}}
    patch = [
        {"op": "test", "path": "/absent", "value": None},
        {"op": "copy", "from": "/absent", "path": "/null"},
        {"op": "add", "path": "/new", "value": {"x": []}},
        {"op": "add", "path": "/new/x/-", "value": 1},
        {"op": "replace", "path": "/a/l/-1", "value": 4},
        {"op": "remove", "path": "/a/l/0"},
    ]
    before = copy.deepcopy((document, patch))
    for _ in range(2):
        assert json_patch.apply(document, patch) == {"a": {"l": [2, 4]}, "null": None, "new": {"x": [1]}}
    assert (document, patch) == before
    with pytest.raises(json_patch.TestFailed):
        json_patch.apply({"a": 1}, [{"op": "test", "path": "/a", "value": True}])


COMPONENTS: dict[str, Any] = {
    "Spec": {
        "type": "object",
        "properties": {
            "keyed": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
                "items": {"allOf": [{"$ref": "#/components/schemas/Item"}]},
            },
            "set": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "object"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
        },
    },
    "Item": {
        "type": "object",
        "properties": {
            "inner": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "id", "items": {}},
        },
    },
}
SHAPE = strategic_patch.Shape({"allOf": [{"$ref": "#/components/schemas/Spec"}]}, COMPONENTS)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "c": "3"}}, {"labels": {"c": "3"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {"labels": {}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "merge", "b": "2"}}, {"labels": {"a": "1", "b": "2"}}),
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"$retainKeys": ["b", "c"], "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
        ({"whole": {"a": 1}}, {"whole": {"b": 2}}, {"whole": {"b": 2}}),
        ({"atomic": [{"name": "a"}]}, {"atomic": [{"name": "b", "gone": None}]}, {"atomic": [{"name": "b"}]}),
        ({}, {"labels": {"a": None, "b": "2"}}, {"labels": {"b": "2"}}),
        ({"set": ["a", "b"]}, {"set": ["c", "b"]}, {"set": ["c", "a", "b"]}),
        ({"set": ["a", "b", "c"]}, {"$deleteFromPrimitiveList/set": ["b"]}, {"set": ["a", "c"]}),
        ({"set": ["a", "b", "c"]}, {"$setElementOrder/set": ["c", "a"]}, {"set": ["b", "c", "a"]}),
        ({"set": ["a", "a"]}, {"$setElementOrder/set": ["a", "a", "b"], "set": ["b"]}, {"set": ["a", "b"]}),
        ({"set": ["b", "a", "b"]}, {"set": []}, {"set": ["b", "a"]}),
        ({"set": ["b", "a", "b"]}, {"$setElementOrder/set": ["a", "b"]}, {"set": ["a", "b", "b"]}),
        ({}, {"set": ["a", "a"]}, {"set": ["a", "a"]}),
        (
            {"set": ["a", "b"]},
            {"$deleteFromPrimitiveList/set": ["a"], "$setElementOrder/set": ["c", "b"], "set": ["c"]},
            {"set": ["c", "b"]},
        ),
        (
            {"keyed": [{"name": "a", "x": 1}, {"name": "b", "x": 2}]},
            {"keyed": [{"name": "b", "x": 3, "y": 4}]},
            {"keyed": [{"name": "a", "x": 1}, {"name": "b", "x": 3, "y": 4}]},
        ),
        (
            {"keyed": [{"name": "a"}, {"name": "b"}]},
            {"keyed": [{"$patch": "delete", "name": "a"}, {"name": "c", "gone": None}]},
            {"keyed": [{"name": "c"}, {"name": "b"}]},
        ),
        ({"keyed": [{"name": "a"}]}, {"keyed": [{"$patch": "replace"}, {"name": "b"}]}, {"keyed": [{"name": "b"}]}),
        ({"keyed": [{"name": "a"}]}, {"keyed": [{"$patch": "replace"}]}, {"keyed": []}),
        (
            {"keyed": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
            {"$setElementOrder/keyed": [{"name": "c"}, {"name": "a"}], "keyed": [{"name": "c", "x": 1}]},
            {"keyed": [{"name": "b"}, {"name": "c", "x": 1}, {"name": "a"}]},
        ),
        (
            {"keyed": [{"name": "a", "inner": [{"id": 1}, {"id": 2}]}]},
            {"keyed": [{"name": "a", "inner": [{"$patch": "delete", "id": 1}]}]},
            {"keyed": [{"name": "a", "inner": [{"id": 2}]}]},
        ),
        ({"keyed": None}, {"keyed": [{"name": "a", "$patch": "merge"}]}, {"keyed": [{"name": "a"}]}),
        (
            {"set": ["a", "b", "d", "c"]},
            {"set": ["a"], "$setElementOrder/set": ["d", "a"], "$deleteFromPrimitiveList/set": ["d"]},
            {"set": ["b", "a", "c"]},
        ),
        ({}, {"labels": {"$patch": "delete"}}, {}),
        ({}, {"unheard": {"of": [1, None]}}, {"unheard": {"of": [1, None]}}),
    ],
)
def test_a_strategic_merge_patch_follows_the_schema(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((document, patch))
    assert strategic_patch.apply(document, patch, SHAPE) == expected
    assert (document, patch) == before


def test_the_garbage_collector_can_take_one_owner_away() -> None:
    schema = {
        "properties": {
            "ownerReferences": {
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
                "items": {"type": "object"},
            }
        }
    }
    document = {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}], "uid": "x"}
    patch = {"ownerReferences": [{"$patch": "delete", "uid": "1"}], "uid": "x"}
    patched = strategic_patch.apply(document, patch, strategic_patch.Shape(schema, {}))
    assert patched == {"ownerReferences": [{"uid": "2", "name": "b"}], "uid": "x"}


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        ([], "must be an object"),
        ({"labels": {"$patch": "explode"}}, "unknown patch type: explode"),
        ({"keyed": [{"x": 1}]}, "does not contain declared merge key: name"),
        ({"keyed": [{"$patch": "delete"}]}, "does not contain declared merge key: name"),
        ({"keyed": ["x"]}, "received a value in a list of maps"),
        ({"labels": {"$retainKeys": "a"}}, "retainKeys"),
        ({"labels": {"$retainKeys": ["a"], "b": "1"}}, "doesn't match retainKeys list"),
        ({"$setElementOrder/set": "a"}, "setElementOrder"),
        ({"$deleteFromPrimitiveList/set": {}}, "primitive list"),
    ],
)
def test_a_malformed_strategic_merge_patch_is_a_bad_request(patch: Any, text: str) -> None:
    with pytest.raises(errors.BadRequest, match=text.replace("(", r"\(")):
        strategic_patch.apply({"keyed": [{"name": "a"}], "labels": {"a": "1"}, "set": ["a"]}, patch, SHAPE)


@given(document=OBJECTS, patch=st.dictionaries(st.text("abc", max_size=1), PATCHES))
def test_strategic_patch_without_schema_is_a_merge_patch(document: Any, patch: Any) -> None:
    assert strategic_patch.apply(document, patch, strategic_patch.Shape({}, {})) == merge_patch.apply(document, patch)


def test_long_lists_are_looked_up_not_searched() -> None:
    many = [str(number) for number in range(20_000)]
    patched = strategic_patch.apply({"set": many}, {"set": many[::-1], "$deleteFromPrimitiveList/set": ["5"]}, SHAPE)
    assert len(patched["set"]) == 19_999


def test_replacing_an_absent_member_adds_it_as_in_go() -> None:
    assert json_patch.apply({"a": {}}, [{"op": "replace", "path": "/a/b", "value": 1}]) == {"a": {"b": 1}}
    assert json_patch.apply({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}
    for document, path in (({"a": {}}, "/b/c"), ({"a": []}, "/a/0"), ({"a": 1}, "/a/b")):
        with pytest.raises(errors.Invalid):
            json_patch.apply(document, [{"op": "replace", "path": path, "value": 1}])
