from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.registry.cacher import sharing
from apiserver.registry.cacher.canonical import Form, restamped
from apiserver.registry.cacher.items import Item

FORM = Form("kubevirt.io/v1alpha1", "VirtualMachine")
MANY: dict[str, Any] = {f"f:annotation-{number:02}": {} for number in range(20)}


def entry(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "time": f"of {manager}", "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def machine(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    metadata = {"labels": {"app": name}, "name": name, "managedFields": list(entries), "uid": f"uid of {name}"}
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": metadata, "spec": {"about": name}}


def read(name: str, *entries: dict[str, Any]) -> Item:
    item = FORM.item(name, 7, machine(name, *entries))
    assert item.object["metadata"]["managedFields"] == list(entries)
    assert item.size == len(item.data)
    return item


def test_fields_that_two_objects_have_alike_are_held_once() -> None:
    one, two = read("one", entry("kubectl", MANY)), read("two", entry("kubectl", MANY))
    assert one.pieces[0] is two.pieces[0]
    assert one.pieces[0] == b'{"apiVersion":"kubevirt.io/v1alpha1","kind":"VirtualMachine","metadata":{"resourceVersion":"'
    assert one.pieces[2] is two.pieces[2]
    assert one.pieces[2].startswith(b'"fieldsV1":{"f:annotation-00":{},')
    assert one.data != two.data


def test_managed_fields_are_shared_despite_other_times() -> None:
    status = entry("virt-handler", {"f:status": MANY}, subresource="status")
    one, two = read("one", entry("kubectl", MANY), status), read("two", entry("helm", MANY), status)
    assert len(one.pieces) == len(two.pieces) == 6
    assert [mine is other for mine, other in zip(one.pieces, two.pieces, strict=True)] == [True, False, True, False, True, False]


def test_small_or_too_many_fields_are_not_shared() -> None:
    assert len(read("x", entry("kubectl", {"f:spec": {}})).pieces) == 2
    assert len(read("x", entry("kubectl", {f"f:{number:04}": {} for number in range(2000)})).pieces) == 2
    assert len(read("x").pieces) == 2
    assert len(read("x", *(entry(f"m{number}", MANY) for number in range(40))).pieces) < 20


def test_text_resembling_managed_fields_is_harmless() -> None:
    text = '"managedFields":[{"fieldsV1":{' + "x" * 300 + '}]"manager":'
    item = read("x", entry(text, {f"v:{text}": MANY}), entry("a", {'k:{"a":"]"}': MANY}), entry("b", MANY))
    assert read("x", *item.object["metadata"]["managedFields"]).data == item.data


def test_no_more_is_remembered_than_the_bound() -> None:
    for number in range(3 * sharing._REMEMBERED):
        read("x", entry("hostile", {f"f:{number}": MANY}))
    assert sharing._shared.cache_info().currsize <= sharing._REMEMBERED


def test_another_revision_shares_what_the_one_before_did() -> None:
    item = read("x", entry("kubectl", MANY))
    later = restamped(item, 1234)
    assert later.pieces[2:] == item.pieces[2:]
    assert [later.pieces[shared] is item.pieces[shared] for shared in (0, 2)] == [True, True]
    assert later.object["metadata"]["resourceVersion"] == "1234"
    assert later.size == len(later.data)
    assert later.raw_labels == b'{"app":"x"}'


texts = st.text('"{}[]:,\\fieldsV1manager', max_size=12) | st.just('"managedFields":[{"manager":"fieldsV1":{')
fields: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(texts | st.sampled_from(sorted(MANY)), inner, max_size=8), max_leaves=40
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.builds(entry, texts, fields), max_size=5), st.binary(max_size=8), st.integers(0, 400))
def test_the_pieces_joined_are_the_object_wherever_they_were_cut(entries: list[dict[str, Any]], lead: bytes, at: int) -> None:
    value = FORM.stored(machine("x", *entries))
    assert b"".join(sharing.pieces(lead, value, at)) == lead + value[at:]
