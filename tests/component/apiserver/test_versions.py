from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from storage.memory import MemoryStorage
from storage.port import Put
from tests.component.apiserver.conftest import NAMESPACE, Api, Pki, serving
from tests.component.apiserver.widgets import OLD_WIDGETS, widget

KEY = "/registry/example.test/widgets/acc/w1"
OLD = OLD_WIDGETS.path(NAMESPACE)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def both(pki: Pki) -> AsyncIterator[Api]:
    async with serving(pki, versions=True) as made:
        yield made


def old_widget(name: str = "w1", **spec: Any) -> Object:
    return {"apiVersion": "example.test/v1beta1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def stored(api: Api) -> Object:
    entry = await api.storage.get(KEY)
    assert entry is not None
    obj: Object = json.loads(entry.value)
    return obj


async def test_ver_01_object_has_one_uid_and_revision_in_all_versions(both: Api) -> None:
    made = (await both.call("POST", OLD, old_widget(extent=3, paint="green"))).json
    assert (made["apiVersion"], made["spec"]) == ("example.test/v1beta1", {"extent": 3, "paint": "green"})
    new, old = (await both.get("w1")).json, (await both.get(f"{OLD}/w1")).json
    assert (new["apiVersion"], new["spec"]) == ("example.test/v1", {"size": 3, "color": "green"})
    assert old == made
    assert new["metadata"] == old["metadata"]
    assert (await stored(both))["apiVersion"] == "example.test/v1"


async def test_ver_01_lists_tables_and_watches_have_the_asked_version(both: Api) -> None:
    revision = (await both.make(widget(size=3)))["metadata"]["resourceVersion"]
    listed = (await both.get(OLD)).json
    assert (listed["apiVersion"], listed["items"][0]["spec"]) == ("example.test/v1beta1", {"extent": 3})
    assert (await both.get(OLD, Accept=TABLE)).json["rows"][0]["cells"][:2] == ["w1", 3]
    await both.patch("w1", {"spec": {"size": 4}})
    async with both.session.get(f"{both.url}{OLD}?watch=1&timeoutSeconds=1&resourceVersion={revision}") as response:
        (event,) = [json.loads(line) async for line in response.content]
    assert (event["type"], event["object"]["apiVersion"], event["object"]["spec"]) == ("MODIFIED", "example.test/v1beta1", {"extent": 4})


async def test_ver_01_change_in_one_version_keeps_fields_of_the_other(both: Api) -> None:
    await both.make(widget(size=3, color="green", parts=[{"name": "a"}]))
    patched = await both.patch(f"{OLD}/w1", {"spec": {"extent": 5, "parts": [{"name": "b"}]}}, "strategic-merge-patch+json")
    assert patched.json["spec"]["extent"] == 5
    new = (await both.get("w1")).json
    assert (new["spec"]["size"], new["spec"]["color"], new["metadata"]["generation"]) == (5, "green", 2)
    assert sorted(each["name"] for each in new["spec"]["parts"]) == ["a", "b"]
    old = (await both.get(f"{OLD}/w1")).json
    old["spec"]["paint"] = "red"
    assert (await both.call("PUT", f"{OLD}/w1", old)).code == 200
    assert (await both.get("w1")).json["spec"]["color"] == "red"


async def test_ver_01_each_version_knows_its_own_fields_only(both: Api) -> None:
    refused = await both.call("POST", f"{OLD}?fieldValidation=Strict", old_widget(size=3))
    assert refused.code in {400, 422}
    assert 'unknown field "spec.size"' in refused.json["message"]
    assert (await both.call("POST", OLD, widget())).code == 400
    assert (await both.call("POST", OLD, old_widget(extent=-1))).code == 422


async def test_every_subresource_works_through_each_version(both: Api) -> None:
    await both.make(widget(size=3))
    shown = await both.get(f"{OLD}/w1/shine")
    assert (shown.json["apiVersion"], shown.json["shine"]) == ("example.test/v1beta1", 3)
    painted = await both.call("PUT", f"{OLD}/w1/paint", {})
    assert (painted.json["apiVersion"], painted.json["spec"]["paint"]) == ("example.test/v1beta1", "green")
    assert (await both.call("PUT", f"{OLD}/w1/paint", {})).code == 409
    twin = await both.call("POST", f"{OLD}/w1/twin", {"color": "red"})
    assert (twin.code, twin.json["apiVersion"], twin.json["spec"]) == (201, "example.test/v1beta1", {"extent": 3, "paint": "red"})
    assert (await both.get(f"{OLD}/w1/tap")).json["message"] == "the widget is off"


async def test_scale_works_in_a_version_with_other_replica_names(both: Api) -> None:
    await both.make(widget(size=3, replicas=1))
    scale = (await both.get(f"{OLD}/w1/scale")).json
    assert scale["spec"] == {"replicas": 1}
    assert (await both.call("PUT", f"{OLD}/w1/scale", {**scale, "spec": {"replicas": 2}})).json["spec"] == {"replicas": 2}
    assert (await both.patch(f"{OLD}/w1/scale", {"spec": {"replicas": 3}})).json["spec"] == {"replicas": 3}
    applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w1"}, "spec": {"replicas": 4}}
    answer = await both.patch(f"{OLD}/w1/scale?fieldManager=scaler&force=true", applied, "apply-patch+yaml")
    assert answer.json["spec"] == {"replicas": 4}
    new, old = (await both.get("w1")).json, (await both.get(f"{OLD}/w1")).json
    assert (new["spec"]["replicas"], old["spec"]["count"]) == (4, 4)
    (owned,) = [each for each in old["metadata"]["managedFields"] if each["manager"] == "scaler"]
    assert (owned["apiVersion"], owned["subresource"], owned["fieldsV1"]) == ("example.test/v1beta1", "scale", {"f:spec": {"f:count": {}}})


async def test_ver_02_discovery_and_openapi_prefer_the_stable_version(both: Api) -> None:
    group = (await both.get("/apis/example.test")).json
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    hashes = {(await both.get(f"/apis/example.test/{each}")).json["resources"][0]["storageVersionHash"] for each in ("v1", "v1beta1")}
    assert len(hashes) == 1
    assert {"apis/example.test/v1", "apis/example.test/v1beta1"} <= (await both.get("/openapi/v3")).json["paths"].keys()


async def test_ver_03_defaults_of_each_version_count_for_old_objects(both: Api) -> None:
    old = {"apiVersion": "example.test/v1beta1", "kind": "Widget", "metadata": {"name": "w1", "namespace": "acc", "uid": "u"}, "spec": {}}
    await both.storage.commit([], [Put(KEY, json.dumps(old).encode())])
    assert (await both.get("w1")).json["spec"] == {"size": 1}
    assert (await both.get(f"{OLD}/w1")).json["spec"] == {"extent": 1}


async def test_ver_04_empty_patch_rewrites_the_stored_version_once(pki: Pki) -> None:
    storage = MemoryStorage()
    old = {"apiVersion": "example.test/v1beta1", "kind": "Widget", "metadata": {"name": "w1", "namespace": "acc", "uid": "u"}}
    before = await storage.commit([], [Put(KEY, json.dumps({**old, "spec": {"extent": 3}}).encode())])
    async with serving(pki, storage=storage, versions=True) as api:
        first = (await api.patch("w1", {})).json["metadata"]["resourceVersion"]
        assert int(first) > before
        assert ((await stored(api))["apiVersion"], (await stored(api))["spec"]) == ("example.test/v1", {"size": 3})
        assert (await api.patch("w1", {})).json["metadata"]["resourceVersion"] == first


async def test_object_of_an_unknown_version_is_hidden_and_harmless(both: Api) -> None:
    await both.make(widget("w2"))
    strange = {"apiVersion": "example.test/v9", "kind": "Widget", "metadata": {"name": "w1", "namespace": "acc", "uid": "u"}}
    await both.storage.commit([], [Put(KEY, json.dumps(strange).encode())])
    assert [each["metadata"]["name"] for each in (await both.get()).json["items"]] == ["w2"]
