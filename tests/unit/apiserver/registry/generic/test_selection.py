from typing import Any

import pytest

from apiserver.apis.meta.resources import Resource
from apiserver.registry.cacher import canonical
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import selection
from apiserver.registry.generic.strategy import Strategy

FORM = canonical.Form("test/v1", "Thing")


class Things(Strategy):
    resource = Resource("test", "v1", "things", "Thing")
    singular = "thing"

    def selectable_fields(self, obj: dict[str, Any]) -> dict[str, str]:
        return {"spec.node": (obj.get("spec") or {}).get("node") or ""}


def thing(name: str, node: str, **labels: str) -> Item:
    return FORM.item(f"ns/{name}", 5, {"metadata": {"namespace": "ns", "name": name, "labels": labels}, "spec": {"node": node}})


ITEMS = [
    thing("a", "n1", app="web", zone="1"),
    thing("b", "n2", app="web", zone="2"),
    thing("c", "n1", zone="1"),
    thing("d", "n1", app="db"),
    thing("e", ""),
    Item("ns/f", 5, None, b'{"metadata":{"namespace":"ns","name":"f","labels":{"app":"web"}},"spec":{"node":"n1"}}'),
]


@pytest.mark.parametrize(
    ("labels", "fields", "expected", "trigger"),
    [
        ("app=web", "", "abf", "label app=web"),
        ("app in (web)", "", "abf", "label app=web"),
        ("app in (web,db)", "", "abdf", ""),
        ("app!=web", "", "cde", ""),
        ("!app", "", "ce", ""),
        ("app=web,zone=1", "", "a", "label app=web"),
        ("zone notin (1),app=web", "", "bf", "label app=web"),
        ("", "spec.node=n1", "acdf", "field spec.node=n1"),
        ("", "spec.node!=n1", "be", ""),
        ("", "spec.node=", "e", ""),
        ("app=web", "spec.node=n1", "af", "label app=web"),
        ("", "metadata.name=c", "c", ""),
        ("", "", "abcdef", ""),
    ],
)
def test_items_are_selected_one_by_one_and_together(labels: str, fields: str, expected: str, trigger: str) -> None:
    chosen = selection.parse(Things(), labels, fields)
    assert "".join(item.key[3:] for item in ITEMS if chosen(item)) == expected
    assert "".join(item.key[3:] for item in chosen.among(ITEMS)) == expected
    found = chosen.trigger
    assert (f"{found.field}={found.value}" if found else "") == trigger
    if found:
        having = {item.key for item in ITEMS if found.read(item) == found.value}
        assert having >= {item.key for item in ITEMS if chosen(item)}
        assert not chosen.is_trigger or having == {item.key for item in ITEMS if chosen(item)}


def test_further_field_selections_do_not_decode_the_object() -> None:
    item = thing("one", "node1")
    on_node1, on_node2 = (selection.parse(Things(), "", f"spec.node={node}") for node in ("node1", "node2"))
    assert on_node1(item)

    item.cool()
    item.pieces = (b"not JSON",)

    assert on_node1(item)
    assert not on_node2(item)
