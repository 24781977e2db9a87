"""Hooks change objects in place, so no request may pass them cached ones."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.registry.cacher import items
from tests.component.apiserver.conftest import Api
from tests.component.apiserver.widgets import WidgetStrategy, widget

MERGE, JSON_PATCH, STRATEGIC, APPLY = "merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"
LABELS = {"metadata": {"labels": {"a": "b"}}}


def spoil(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["hooked"] = "yes"
    obj["metadata"].setdefault("annotations", {})["hooked"] = "yes"
    obj["spec"]["size"] += 1
    for each in obj["spec"].get("parts") or ():
        each["name"] += "x"
    status = obj.setdefault("status", {})
    status["phase"] = status.get("phase", "") + "x"


class Spoiling(WidgetStrategy):
    def prepare_for_update(self, obj: Object, old: Object) -> None:
        spoil(obj)

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        spoil(obj)

    def prepare_for_delete(self, obj: Object) -> None:
        spoil(obj)


@pytest.fixture
def strategy() -> WidgetStrategy:
    return Spoiling()


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("w1", MERGE, LABELS),
        ("w1", STRATEGIC, LABELS),
        ("w1", JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        ("w1?fieldManager=m", APPLY, {"apiVersion": "example.test/v1", "kind": "Widget", "metadata": {"name": "w1", **LABELS["metadata"]}}),
        ("w1/status", MERGE, {"status": {"phase": "y"}}),
        ("w1/scale", MERGE, {"spec": {"replicas": 3}}),
    ],
)
async def test_a_patch_gives_hooks_a_copy(api: Api, path: str, kind: str, body: Any) -> None:
    made = await api.make(widget(parts=[{"name": "p"}], size=1))
    held = items._warm[-1]
    assert held.object == made
    answer = await api.patch(path, body, kind)
    assert answer.code == 200, answer.body
    assert held.object == made


@pytest.mark.parametrize("how", ["update", "paint", "delete"])
async def test_other_writes_give_hooks_a_copy(api: Api, how: str) -> None:
    made = await api.make({**widget(parts=[{"name": "p"}], size=1), "metadata": {"name": "w1", "finalizers": ["example.test/x"]}})
    held = items._warm[-1]
    assert held.object == made
    if how == "update":
        answer = await api.call("PUT", "w1", made)
    elif how == "paint":
        answer = await api.call("PUT", "w1/paint", {})
    else:
        answer = await api.call("DELETE", "w1")
    assert answer.code == 200, answer.body
    assert held.object == made
