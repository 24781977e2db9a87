from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.registry.cacher.items import WARM, Item, SortedItems

DATA = b'{"metadata":{"resourceVersion":"7","labels":{"a":"b"},"name":"x"},"spec":{"labels":{"c":"d"}}}'


def item(key: str, revision: int = 1, data: bytes = b"{}", labels_at: int = 0) -> Item:
    return Item(key, revision, None, b"", data, labels_at=labels_at)


keys = st.text("ab/", min_size=1, max_size=4)
operations = st.lists(st.tuples(st.sampled_from(("put", "put", "remove")), keys), max_size=60)


@settings(max_examples=200, deadline=None)
@given(operations, st.lists(keys, max_size=30), keys | st.just(""), keys | st.just(""), st.integers(0, 5))
def test_items_in_chunks_behave_as_a_sorted_dictionary(
    script: list[tuple[str, str]], first: list[str], prefix: str, start: str, limit: int
) -> None:
    model = {key: item(key) for key in first}
    kept = SortedItems(model.values(), chunk=4)
    for revision, (operation, key) in enumerate(script):
        if operation == "put":
            model[key] = item(key, revision)
            kept.put(model[key])
        else:
            model.pop(key, None)
            kept.remove(key)
        assert kept.get(key) is model.get(key)
    expected = [model[key] for key in sorted(model) if key.startswith(prefix) and key >= start]
    found, remaining = kept.slice(prefix, start=start, limit=limit)
    assert found == (expected[:limit] if limit else expected)
    assert remaining == len(expected) - len(found)
    assert len(kept) == len(model)
    assert kept.count(prefix) == sum(key.startswith(prefix) for key in model)
    assert all(kept.get(key) is value for key, value in model.items())


def test_labels_are_read_without_decoding_the_object() -> None:
    one = item("x", 7, DATA, DATA.index(b'"labels"'))
    assert one.labels == {"a": "b"}
    assert one._object is None
    assert one.object["spec"] == {"labels": {"c": "d"}}
    assert one.labels == {"a": "b"}


def test_labels_that_hold_a_brace_are_read_all_the_same() -> None:
    data = DATA.replace(b'"b"', b'"}"')
    assert item("x", 7, data, data.index(b'"labels"')).labels == {"a": "}"}


def test_an_object_without_labels_has_none_though_its_spec_does() -> None:
    data = DATA.replace(b'"labels":{"a":"b"},', b"")
    assert item("x", 7, data, data.index(b'"name"')).labels == {}
    assert item("x", 7, data).labels == {}


def test_only_recent_objects_stay_decoded() -> None:
    many = [item(str(number), number, b'{"n":%d}' % number) for number in range(WARM + 10)]
    assert [each.object["n"] for each in many] == list(range(len(many)))
    assert [each for each in many if each._object is not None] == many[10:]
    assert many[0].object == {"n": 0}
