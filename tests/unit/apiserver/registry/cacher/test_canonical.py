from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.registry.cacher import canonical
from apiserver.registry.cacher.canonical import Form

FORM = Form("kubevirt.io/v1alpha1", "VirtualMachine")


def machine(**more: Any) -> dict[str, Any]:
    return {
        "spec": {"labels": {"x": "y"}},
        "kind": "VirtualMachine",
        "apiVersion": "kubevirt.io/v1alpha1",
        "metadata": {"name": "a", "resourceVersion": "3", "labels": {"b": "c"}},
        **more,
    }


def at(obj: dict[str, Any], revision: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=6
)
members = st.dictionaries(st.text(max_size=8), json, max_size=4)
texts = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)


@settings(max_examples=100, deadline=None)
@given(members, members, st.none() | texts, st.integers(1, 2**62), st.integers(1, 2**62))
def test_stored_bytes_are_served_with_their_revision(
    more: dict[str, Any], metadata: dict[str, Any], labels: dict[str, str] | None, revision: int, later: int
) -> None:
    obj = machine(**{**more, "metadata": {**metadata, "name": "a"}})
    obj |= {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1alpha1"}
    obj["metadata"].pop("labels", None)
    if labels is not None:
        obj["metadata"]["labels"] = labels
    value = FORM.stored(obj)
    stored = orjson.loads(value)
    assert stored == {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}}
    item = FORM.written("key", revision, obj, value)
    assert orjson.loads(item.data) == at(obj, revision)
    assert dict(item.labels) == (labels or {})
    assert item == FORM.item("key", revision, obj)
    assert canonical.restamped(item, later) == FORM.written("key", later, obj, value)


def test_a_value_begins_with_what_it_is() -> None:
    value = FORM.stored(machine())
    assert value.startswith(b'{"apiVersion":"kubevirt.io/v1alpha1","kind":"VirtualMachine",')
    assert b'"metadata":{"labels":{"b":"c"},"name":"a"},"spec"' in value


def test_an_object_that_is_not_stored_has_no_revision() -> None:
    obj = machine()
    del obj["metadata"]["resourceVersion"]
    assert orjson.loads(FORM.item("key", 0, machine()).data) == obj


def test_an_item_of_another_form_is_restamped_too() -> None:
    item = FORM.item("key", 7, machine())
    item.labels_at = 0
    assert orjson.loads(canonical.restamped(item, 12).data) == at(machine(), 12)
