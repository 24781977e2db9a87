from __future__ import annotations

import asyncio
import gzip
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
import yaml

from apiserver.apis.meta import errors
from apiserver.endpoints.filters.chain import Phase
from apiserver.server.options import Times
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.test_delegation import Cluster, cluster
from tests.component.apiserver.widgets import WIDGETS, widget

__all__ = ["cluster"]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


async def test_agg_05_many_and_idle_connections_are_kept(api: Api) -> None:
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(api.get("?limit=1")) for _ in range(200)]
    assert {each.result().code for each in answers} == {200}
    assert api.process.options.times.connections.idle_seconds > 90


async def test_dis_05_and_06_discovery_describes_each_resource(api: Api) -> None:
    listed = {each["name"]: each for each in (await api.get("/apis/example.test/v1")).json["resources"]}
    main = listed["widgets"]
    assert (main["singularName"], main["namespaced"], main["kind"], main["categories"]) == ("widget", True, "Widget", ["toys"])
    assert main["verbs"] == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert (listed["widgets/status"]["singularName"], listed["widgets/status"]["verbs"]) == ("", ["get", "patch", "update"])
    assert listed["widgets/tap"]["verbs"] == ["get"]
    assert listed["widgets/paint"]["verbs"] == ["create", "update"]
    assert (listed["widgets/shine"]["verbs"], listed["widgets/shine"]["kind"]) == (["get"], "Sheen")


async def test_oas_02_document_without_hash_is_uncached_and_has_a_tag(api: Api) -> None:
    plain = await api.get("/openapi/v3/apis/example.test/v1")
    assert (plain.code, "Expires" in plain.headers) == (200, False)
    again = await api.get("/openapi/v3/apis/example.test/v1", If_None_Match=plain.headers["ETag"])
    assert (again.code, again.body) == (304, b"")


async def test_cre_07_annotations_are_bounded_together(api: Api) -> None:
    body = widget()
    body["metadata"]["annotations"] = {"a": "x" * 200_000, "b": "x" * 70_000}
    answer = await api.call("POST", "", body)
    assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.annotations")


async def test_get_02_a_read_can_ask_for_any_or_for_a_recent_state(api: Api) -> None:
    made = await api.make(widget())
    for query in ("", "?resourceVersion=0", f"?resourceVersion={made['metadata']['resourceVersion']}"):
        assert (await api.get(f"w1{query}")).json == made


async def test_upd_05_what_the_server_decided_stays(api: Api) -> None:
    made = await api.make(widget())
    wanted = {**made, "metadata": made["metadata"] | {"creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9}}
    wanted["metadata"] |= {"deletionTimestamp": None, "deletionGracePeriodSeconds": None, "selfLink": "/x"}
    assert (await api.call("PUT", "w1", wanted)).json == made
    for key, value in (("deletionTimestamp", "2000-01-01T00:00:00Z"), ("deletionGracePeriodSeconds", 5)):
        refused = await api.call("PUT", "w1", {**made, "metadata": {**made["metadata"], key: value}})
        assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, f"metadata.{key}")
    made["metadata"]["finalizers"] = ["example.test/hold"]
    await api.call("PUT", "w1", made)
    marked = (await api.call("DELETE", "w1")).json
    del marked["metadata"]["deletionTimestamp"]
    kept = (await api.call("PUT", "w1", marked)).json
    assert kept["metadata"]["deletionTimestamp"]


async def test_pat_03_and_06_patches_are_bounded_and_results_validated(api: Api) -> None:
    await api.make(widget())
    many = [{"op": "test", "path": "/spec/size", "value": 1}] * 10_001
    assert (await api.patch("w1", many, "json-patch+json")).code == 413
    assert (await api.patch("w1", [{"op": "test", "path": "/spec/size", "value": 2}], "json-patch+json")).code == 422
    wrong = await api.patch("w1", {"spec": {"size": -1}})
    assert (wrong.code, wrong.json["details"]["causes"][0]["field"]) == (422, "spec.size")


async def test_fm_01_a_field_manager_has_a_bounded_printable_name(api: Api) -> None:
    for manager in ("x" * 129, "a%07b"):
        assert (await api.call("POST", f"?fieldManager={manager}", widget())).code == 422, manager


async def test_wch_11_future_watch_is_silent_and_watch_list_an_error(api: Api) -> None:
    future = "?watch=1&resourceVersion=99999999999"
    async with asyncio.TaskGroup() as tasks:
        silent = tasks.create_task(api.get(f"{future}&timeoutSeconds=1"))
        read = tasks.create_task(api.get("w1?resourceVersion=99999999999"))
        refused = tasks.create_task(api.get(f"{future}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=9"))
    plain, listed = silent.result(), refused.result()
    assert (plain.code, plain.body) == (200, b"")
    assert (read.result().code, read.result().json["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    (frame,) = [json.loads(line) for line in listed.body.splitlines()]
    assert (frame["type"], frame["object"]["code"]) == ("ERROR", 504)
    assert frame["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_tbl_01_and_pom_02_writes_answer_in_the_requested_form(api: Api) -> None:
    made = await api.call("POST", "", json.dumps(widget()).encode(), Accept=TABLE, Content_Type="application/json")
    assert (made.code, made.json["kind"], made.json["rows"][0]["cells"][0]) == (201, "Table", "w1")
    patched = await api.call(
        "PATCH", "w1", b'{"metadata":{"labels":{"a":"b"}}}', Accept=PARTIAL, Content_Type="application/merge-patch+json"
    )
    assert (patched.json["kind"], "spec" in patched.json, patched.json["metadata"]["labels"]) == (
        "PartialObjectMetadata",
        False,
        {"a": "b"},
    )
    assert (await api.get("?includeObject=x", Accept=TABLE)).code == 400
    assert (await api.call("DELETE", "w1", Accept=TABLE)).json["kind"] == "Status"


async def test_meta_01_08_and_10_uids_finalizers_and_owners(api: Api) -> None:
    first = await api.make(widget())
    await api.call("DELETE", "w1")
    held = widget()
    held["metadata"]["finalizers"] = ["example.test/hold"]
    assert (await api.make(held))["metadata"]["uid"] != first["metadata"]["uid"]
    await api.call("DELETE", "w1")
    marked = (await api.call("DELETE", "w1?propagationPolicy=Foreground&gracePeriodSeconds=0")).json["metadata"]
    assert (sorted(marked["finalizers"]), marked["deletionGracePeriodSeconds"]) == (["example.test/hold", "foregroundDeletion"], 0)
    owned = widget("owned")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in ("a", "b")
    ]
    answer = await api.call("POST", "", owned)
    assert (answer.code, "Only one reference can have Controller set to true" in answer.json["message"]) == (422, True)


CODES = {
    errors.BadRequest: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.AlreadyExists: 409,
    errors.Conflict: 409,
    errors.Expired: 410,
    errors.RequestEntityTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Invalid: 422,
    errors.TooManyRequests: 429,
    errors.InternalError: 500,
    errors.ServiceUnavailable: 503,
    errors.Timeout: 504,
}


async def test_err_01_and_02_each_error_has_its_code_and_reason(api: Api) -> None:
    wrong: errors.StatusError

    def fail(_: Any) -> Any:
        raise wrong

    api.strategy.validate = fail  # type: ignore[method-assign,assignment]  # a mistake of ours
    for kind, code in CODES.items():
        wrong = kind("what went wrong")
        answer = await api.call("POST", "", widget(), Accept="text/html;q=0.5, */*;q=0.1")
        assert (answer.code, answer.json["code"], answer.json["reason"]) == (code, code, kind.__name__)
        assert set(answer.json) - {"details"} == {"kind", "apiVersion", "metadata", "status", "message", "reason", "code"}


async def test_err_07_an_error_is_yaml_for_whom_reads_yaml(api: Api) -> None:
    answer = await api.get("nope", Accept="application/yaml")
    assert (answer.code, answer.headers["Content-Type"]) == (404, "application/yaml")
    assert yaml.safe_load(answer.body)["details"] == {"name": "nope", "group": "example.test", "kind": "widgets"}


async def test_hlt_01_a_check_can_be_left_out(api: Api) -> None:
    text = (await api.get("/readyz?verbose&exclude=etcd")).body.decode()
    assert "[+]etcd excluded: ok" in text


async def test_shd_01_a_late_request_is_sent_elsewhere(api: Api) -> None:
    chain = api.process.assembly.chain
    chain.phase = Phase.DRAINING
    late = await api.get()
    assert (late.code, late.headers["Retry-After"], late.headers["Connection"]) == (429, "5", "close")
    chain.phase = Phase.SERVING


async def test_aun_09_no_credential_reaches_the_log(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Bearer SECRET-TOKEN"}
    assert (await cluster.ask(None, headers=headers))[0] == 401
    assert (await cluster.ask(None, method="DELETE", path=WIDGETS.path("acc") + "/x", headers={"Authorization": "Bearer good"}))[0] == 404
    text = "\n".join(repr(vars(each)) for each in caplog.records)
    assert "answered" in text
    assert "SECRET-TOKEN" not in text
    assert "Bearer" not in text


async def test_auz_01_05_and_06_forbidden_users_learn_nothing(cluster: Cluster) -> None:
    async def ask(user: str, method: str, path: str) -> int:
        code, _ = await cluster.ask(
            "front-proxy-client", cluster.proxies, method, path, headers={"X-Remote-User": user, "Content-Type": "application/json"}
        )
        return code

    base = WIDGETS.path("acc")
    for method, path in (("GET", f"{base}/x"), ("POST", f"{base}/x"), ("GET", f"{base}/x/nope"), ("GET", "/apis/example.test/v1/nope")):
        assert await ask("mallory", method, path) == 403, path
    assert await ask("mallory", "GET", "/nope") == 403
    assert cluster.reviews[-1]["nonResourceAttributes"] == {"path": "/nope", "verb": "get"}
    for method, path, verb, subresource in (
        ("GET", f"{base}/x/tap", "create", "tap"),
        ("PUT", f"{base}/x/paint", "update", "paint"),
        ("POST", f"{base}/x/paint", "create", "paint"),
        ("PATCH", f"{base}/x/status", "patch", "status"),
    ):
        await ask("alice", method, path)
        asked = cluster.reviews[-1]["resourceAttributes"]
        assert (asked["verb"], asked["subresource"], asked["name"]) == (verb, subresource, "x")
    asked_of_tap = [
        each["resourceAttributes"] for each in cluster.reviews if each.get("resourceAttributes", {}).get("subresource") == "tap"
    ]
    assert [each["verb"] for each in asked_of_tap] == ["get", "create"]


async def test_neg_16_a_connection_that_asks_nothing_is_dropped(pki: Pki) -> None:
    settings = Times().connections
    quick = Times(connections=replace(settings, verified=replace(settings.verified, head_seconds=1)))
    async with serving(pki, times=quick) as api:
        host, _, port = api.url.removeprefix("https://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=pki.client("developer"))
        writer.write(b"GET /livez HTTP/1.1\r\n")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        async with api.watch("timeoutSeconds=2") as frames:
            assert [each async for each in frames] == [], "who has asked is not silent"
        assert (await api.get("/livez")).code == 200


async def test_neg_11_a_compressed_body_is_not_unpacked(api: Api) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    answer = await api.call("POST", "", bomb, Content_Encoding="gzip")
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
