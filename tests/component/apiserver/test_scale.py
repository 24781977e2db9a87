from __future__ import annotations

import json
from typing import Any

from tests.component.apiserver.conftest import Api
from tests.component.apiserver.widgets import widget


def scale(replicas: Any, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w1", **metadata}, "spec": {"replicas": replicas}}


async def test_sub_02_and_03_replicas_are_read_and_set_through_a_scale(api: Api) -> None:
    made = await api.make(widget(replicas=2))
    shown = (await api.get("w1/scale")).json
    assert (shown["kind"], shown["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (shown["spec"], shown["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "widget=w1"})
    assert {key: made["metadata"][key] for key in shown["metadata"]} == shown["metadata"]

    put = await api.call("PUT", "w1/scale", json.dumps({**shown, "spec": {"replicas": 3}}).encode(), Content_Type="")
    assert (put.code, put.json["spec"]) == (200, {"replicas": 3})
    assert (await api.call("PUT", "w1/scale", shown)).code == 409
    assert (await api.call("PUT", "w1/scale", scale(4))).json["spec"] == {"replicas": 4}
    assert (await api.patch("w1/scale", {"spec": {"replicas": 5}})).json["spec"] == {"replicas": 5}
    step = [{"op": "replace", "path": "/spec/replicas", "value": 6}]
    assert (await api.patch("w1/scale", step, "json-patch+json")).json["spec"] == {"replicas": 6}
    now = (await api.get("w1")).json
    assert (now["spec"]["replicas"], now["metadata"]["generation"]) == (6, 5)


async def test_sub_02_what_is_no_scale_of_the_object_is_refused(api: Api) -> None:
    await api.make(widget(replicas=2))
    assert (await api.call("PUT", "w1/scale", {**scale(1), "kind": "Widget"})).code == 400
    assert (await api.call("PUT", "w1/scale", scale(1, name="w2"))).code == 400
    for wrong in (-1, "three", 1.5, True, 1 << 31):
        refused = await api.call("PUT", "w1/scale", scale(wrong))
        assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "spec.replicas"), wrong
    largest = (1 << 31) - 1
    assert (await api.call("PUT", "w1/scale?dryRun=All", scale(largest))).json["spec"] == {"replicas": largest}
    malformed: Any
    for malformed in ("three", [], 0, False):  # they would scale to 0
        refused = await api.call("PUT", "w1/scale", {**scale(1), "spec": malformed})
        assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "spec"), malformed
    assert (await api.call("PUT", "nope/scale", scale(1, name="nope"))).code == 404
    assert (await api.call("PUT", "w1/scale", scale(1, uid="another"))).code == 409
    assert (await api.call("DELETE", "w1/scale")).code == 405
    assert (await api.call("PUT", "w1/scale?dryRun=All", scale(9))).json["spec"] == {"replicas": 9}
    assert (await api.get("w1/scale")).json["spec"] == {"replicas": 2}


async def test_dis_05_and_16_discovery_names_the_scale_kind(api: Api) -> None:
    resources = {each["name"]: each for each in (await api.get("/apis/example.test/v1")).json["resources"]}
    found = resources["widgets/scale"]
    assert (found["group"], found["version"], found["kind"], found["verbs"]) == ("autoscaling", "v1", "Scale", ["get", "patch", "update"])
