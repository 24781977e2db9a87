from __future__ import annotations

import pytest
import yaml

from tests.component.apiserver.conftest import Api
from tests.component.apiserver.widgets import widget


async def test_a_read_answers_with_an_object_of_its_own_kind(api: Api) -> None:
    await api.make(widget(size=3))

    answer = await api.get("w1/shine")
    assert (answer.code, answer.json["kind"], answer.json["shine"]) == (200, "Sheen", 3)
    written = await api.get("w1/shine", Accept="application/yaml")
    assert yaml.safe_load(written.body)["shine"] == 3


async def test_unavailable_reads_are_explained(api: Api) -> None:
    await api.make(widget(size=0))

    assert (await api.get("nope/shine")).code == 404
    refused = await api.get("w1/shine")
    assert (refused.code, refused.json["message"]) == (400, "the widget is too small to shine")
    for form in ("application/json;as=Table;v=v1;g=meta.k8s.io", "image/png"):
        assert (await api.get("w1/shine", Accept=form)).code == 406


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
async def test_a_read_is_nothing_else(api: Api, method: str) -> None:
    await api.make(widget())
    assert (await api.call(method, "w1/shine", {})).code == 405


async def test_openapi_has_its_schema_and_its_operation(api: Api) -> None:
    document = (await api.get("/openapi/v3/apis/example.test/v1")).json
    operation = document["paths"]["/apis/example.test/v1/namespaces/{namespace}/widgets/{name}/shine"]["get"]

    assert operation["x-kubernetes-group-version-kind"] == {"group": "example.test", "version": "v1", "kind": "Sheen"}
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][schema]["properties"]["shine"]["type"] == "integer"
    v2 = (await api.get("/openapi/v2")).json
    assert schema in v2["definitions"]
