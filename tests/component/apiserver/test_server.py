from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from apiserver.apis.meta.errors import BadRequest
from apiserver.registry.generic.strategy import Destination
from certs.issuing import Profile, new_authority
from storage.memory import MemoryStorage
from storage.port import Condition, Delete, Put, Unavailable
from tests.component.apiserver.conftest import HOUR, Api, Pki, serving
from tests.component.apiserver.widgets import widget
from tests.own_time import within

UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
}  # fmt: skip
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_discovery_says_what_there_is(api: Api) -> None:
    assert (await api.get("/apis")).json["groups"][0]["name"] == "example.test"
    assert (await api.get("/apis/example.test")).json["preferredVersion"]["version"] == "v1"
    listed = (await api.get("/apis/example.test/v1")).json
    subresources = ["paint", "scale", "shine", "status", "tap", "twin"]
    assert [each["name"] for each in listed["resources"]] == ["widgets", *(f"widgets/{each}" for each in subresources)]
    assert listed["resources"][0]["shortNames"] == ["wd"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_unknown_path_is_404_and_read_only_path_405_on_writes(api: Api, method: str) -> None:
    for path in ("/nope", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "/apis/example.test/nope", "/openapi/v3/nope"):
        assert (await api.call(method, path, {})).code == 404, path
    for path in ("/version", "/apis", "/apis/example.test/v1", "/openapi/v3", "/livez/ping"):
        assert (await api.call(method, path, {})).code == 405, path


async def test_only_health_has_pages_below_it(api: Api) -> None:
    for path in ("/metrics/", "/metrics/x", "/version/x", "/livez/nope", "/livez/", "/livez/ping/", "/healthz/", "/openapi/v2/", "//livez"):
        assert (await api.get(path)).code == 404, path
    for path in ("/livez/ping", "/readyz/poststarthook/storage-watch-caches", "/version/", "/apis/", "/apis/example.test/v1/"):
        assert (await api.get(path)).code == 200, path
    listed = (await api.get("/")).json["paths"]
    assert {"/livez/ping", "/version", "/metrics/slis"} <= set(listed)
    assert "/version/" not in listed


async def test_discovery_is_indented_for_people_under_the_same_tag(api: Api) -> None:
    for path in ("/apis", "/apis/example.test", "/apis/example.test/v1"):
        plain, pretty = await api.get(path), await api.get(f"{path}?pretty=1")
        assert (plain.body.count(b"\n"), pretty.body[:4]) == (1, b"{\n  ")
        assert (plain.json, plain.headers["ETag"]) == (pretty.json, pretty.headers["ETag"])
    for path in ("/", "/version"):
        assert (await api.get(path)).body[:4] == b"{\n  "


async def test_aggregated_discovery_is_served_once_by_its_tag(api: Api) -> None:
    answer = await api.get(
        "/apis", Accept=f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )
    assert answer.headers["Content-Type"] == AGGREGATED
    resource = answer.json["items"][0]["versions"][0]["resources"][0]
    assert (resource["resource"], resource["scope"], len(resource["subresources"])) == ("widgets", "Namespaced", 6)
    assert {each["responseKind"]["kind"] for each in resource["subresources"]} == {"Scale", "Sheen", "Widget"}
    again = await api.get("/apis", Accept=AGGREGATED, If_None_Match=answer.headers["ETag"])
    assert (again.code, again.body) == (304, b"")
    beta = await api.get("/apis", Accept="application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json")
    assert beta.json["kind"] == "APIGroupList"


async def test_openapi_is_served_by_hash(api: Api) -> None:
    path = (await api.get("/openapi/v3")).json["paths"]["apis/example.test/v1"]["serverRelativeURL"]
    document = await api.get(path)
    assert document.headers["Cache-Control"] == "public, immutable"
    assert document.json["openapi"] == "3.0.0"
    moved = await api.get(path.partition("=")[0] + "=x")
    assert (moved.code, moved.headers["Location"]) == (301, path)
    assert (await api.get("/openapi/v2")).json["swagger"] == "2.0"
    assert (await api.get("/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")).code == 406
    assert (await api.get("/openapi/v3/nope")).code == 404


async def test_no_body_makes_the_server_fail(api: Api) -> None:
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    for body in (b"{", b"[]", b"5", b'{"a":NaN}', b'{"a":"\\ud800"}', deep, b"\xff", b'{"a":1e999}', b"null"):
        for method, path in (("POST", ""), ("PUT", "w1"), ("PATCH", "w1"), ("DELETE", "w1")):
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = await api.call(method, path, body, Content_Type=kind)
            code = 404 if (method, body) == ("DELETE", b"null") else 400
            assert (answer.code, answer.json["kind"]) == (code, "Status"), (method, body, answer.body)


async def test_numbers_beyond_64_bits_do_not_make_the_server_fail(api: Api) -> None:
    raw = json.dumps(widget()).replace('"spec": {}', '"spec": {"size": 123456789012345678901234567890}').encode()
    assert (await api.call("POST", "", raw)).code in {400, 422}


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json", "json-patch+json"])
async def test_deep_patches_do_not_make_the_server_fail(api: Api, kind: str) -> None:
    await api.make(widget())
    deep = b'{"spec":{"parts":' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}}"
    if kind.startswith("json"):
        deep = b'[{"op":"add","path":"/spec/x","value":' + deep + b"}]"
    answer = await api.call("PATCH", "w1", deep, Content_Type=f"application/{kind}")
    assert answer.code in {400, 422}, answer.body


async def test_bodies_may_be_yaml_or_have_no_type_but_nothing_else(api: Api) -> None:
    yaml = (
        b"apiVersion: example.test/v1\nkind: Widget\nmetadata:\n  name: why\n"
        b"  annotations: {a: 'on', when: '2001-01-01'}\nspec: {size: 3}\n"
    )
    made = await api.call("POST", "", yaml, Content_Type="application/yaml")
    assert (made.code, made.json["spec"]) == (201, {"size": 3})
    bomb = b"a: &a [1,1]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (x + 1, x + 1, x, x) for x in range(97, 121))
    assert (await within(5, api.call("POST", "", bomb, Content_Type="application/yaml"))).code == 400
    assert (await api.call("POST", "", b"x", Content_Type="text/plain")).code == 415
    async with api.session.post(api.url + api.path, data=json.dumps(widget()).encode(), skip_auto_headers=["Content-Type"]) as answer:
        assert answer.status == 201


async def test_a_body_that_is_too_large_is_413(api: Api) -> None:
    async with api.session.post(api.url + api.path, data=io.BytesIO(b" " * (3 * 1024 * 1024 + 1))) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_large_answer_is_compressed_for_who_takes_it(api: Api) -> None:
    body = widget()
    body["metadata"]["annotations"] = {"a": "x" * 200_000}
    await api.make(body)
    assert "Content-Encoding" not in (await api.get("w1", Accept_Encoding="identity")).headers
    assert (await api.get("w1", Accept_Encoding="gzip")).headers["Content-Encoding"] == "gzip"


async def test_every_answer_carries_the_audit_id(api: Api) -> None:
    assert (await api.get("nope", Audit_Id="abc")).headers["Audit-Id"] == "abc"
    assert len((await api.get("nope")).headers["Audit-Id"]) == 36


async def test_health_names_its_checks(api: Api) -> None:
    verbose = (await api.get("/readyz?verbose")).body.decode()
    assert "[+]etcd ok" in verbose
    assert verbose.endswith("readyz check passed\n")
    assert (await api.get("/livez")).body == b"ok"
    assert (await api.get("/readyz/etcd")).body == b"ok"
    assert (await api.get("/readyz/nope")).code == 404
    assert b"apiserver_request_total" in (await api.get("/metrics")).body
    assert (await api.get("/version")).json["gitVersion"].startswith("v")


WHERE = "it cannot be reached at http://192.0.2.1:2379"


class Broken(MemoryStorage):
    out = False

    async def revision(self) -> int:
        if self.out:
            raise Unavailable(WHERE)
        return await super().revision()

    async def commit(self, conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
        if self.out:
            raise Unavailable(WHERE)
        return await super().commit(conditions, writes)


async def test_an_outage_of_storage_is_503_or_504_and_heals(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    storage = Broken()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        storage.out = True
        read = await api.get("w1")
        assert (read.code, read.json["reason"], "Retry-After" in read.headers) == (503, "ServiceUnavailable", True)
        assert (await api.get("?resourceVersion=0")).code == 200
        written = await api.patch("w1", {"spec": {"size": 2}})
        assert (written.code, written.json["reason"]) == (504, "Timeout")
        assert "192.0.2.1" not in read.json["message"] + written.json["message"]
        logged = {getattr(each, "doing", "") for each in caplog.records if getattr(each, "error", "") == WHERE}
        assert logged == {"read its revision", 'write widgets.example.test "w1" in namespace "acc"'}
        assert "Retry-After" not in (await api.call("PUT", "w1/paint", {})).headers
        assert (await api.get("/readyz")).code == 500
        assert (await api.get("/livez")).code == 200
        storage.out = False
        assert (await api.get("w1")).code == 200


async def test_retry_after_is_sent_only_for_repeatable_requests(pki: Pki) -> None:
    storage = Broken()
    async with serving(pki, storage=storage) as api:
        await api.make(widget())
        storage.out = True
        harmless = [
            await api.call("POST", "", widget("w2")),
            await api.patch("w1", {"spec": {"size": 2}}),
            await api.patch("w1", {"spec": {"size": 2}}, "strategic-merge-patch+json"),
        ]
        assert [(each.code, each.headers.get("Retry-After")) for each in harmless] == [(504, "1")] * 3
        twice = [
            await api.call("POST", "", {**widget(), "metadata": {"generateName": "w-"}}),
            await api.patch("w1", [{"op": "add", "path": "/spec/parts", "value": []}], "json-patch+json"),
            await api.call("POST", "w1/paint", {}),
        ]
        assert [(each.code, each.headers.get("Retry-After")) for each in twice] == [(504, None)] * 3
        assert "may have succeeded" in twice[0].json["message"]


async def test_unexpected_error_is_an_internal_error_without_traceback(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.strategy.validate = lambda _: 1 // 0  # type: ignore[method-assign,assignment,return-value]  # a mistake of ours
    answer = await api.call("POST", "", widget(), Audit_Id="find-me")
    assert (answer.code, answer.json["reason"]) == (500, "InternalError")
    assert "find-me" in answer.json["message"]
    assert "ZeroDivision" not in answer.body.decode()
    assert [each for each in caplog.records if each.exc_info]


async def test_credentials_decide_who_asks(pki: Pki) -> None:
    async with serving(pki, "--no-anonymous-auth") as api:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client())) as nobody:
            for headers in ({}, {"Authorization": "Bearer x"}, {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}):
                async with nobody.get(f"{api.url}/apis", headers=headers) as answer:
                    assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
                    assert "WWW-Authenticate" not in answer.headers
        stranger = new_authority("stranger", HOUR, datetime.now(UTC))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client("eve", stranger))) as eve:
            with pytest.raises(aiohttp.ClientError):
                await eve.get(f"{api.url}/apis")


async def test_requests_beyond_the_limit_are_429(pki: Pki) -> None:
    async with serving(pki, "--max-mutating-requests-inflight=1") as api:
        blocked = asyncio.Event()
        entered = asyncio.Event()
        commit = api.storage.commit

        async def slow(conditions: Sequence[Condition], writes: Sequence[Put | Delete]) -> int:
            entered.set()
            await blocked.wait()
            return await commit(conditions, writes)

        api.storage.commit = slow  # type: ignore[method-assign]  # of this storage
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(api.call("POST", "", widget("a")))
            await entered.wait()
            refused = await api.call("POST", "", widget("b"))
            assert (await api.get()).code == 200
            blocked.set()
        assert (refused.code, refused.headers["Retry-After"]) == (429, "1")
        assert first.result().code == 201


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/off":
        return web.json_response(BadRequest("the guest is off").to_json(), status=400)
    socket = web.WebSocketResponse(protocols=("plain.example.test",))
    await socket.prepare(request)
    async for message in socket:
        if message.data == b"bye":
            await socket.close(code=1000, message=b"the guest is off")
        else:
            await socket.send_bytes(message.data)
    return socket


async def test_a_stream_is_joined_both_ways_and_says_why_it_ends(pki: Pki, api: Api) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.authority_file))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*pki.issued("handler", Profile("handler", dns_names=("handler",), server=True)))
    server = web.Server(echo)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    await api.make(widget())
    assert (await api.get("nope/tap")).code == 404
    assert (await api.get("w1/tap")).json["message"] == "the widget is off"
    api.strategy.tap.destination = Destination(f"https://127.0.0.1:{port}/x", "handler", pki.client("virt-api"))
    plain = await api.get("w1/tap")
    assert (plain.code, plain.json["message"]) == (400, "Upgrade request required")
    assert (await api.call("POST", "w1/tap")).code == 405
    assert (await api.get("w1/tap?dryRun=All")).code == 400
    async with api.session.ws_connect(f"{api.url}{api.path}/w1/tap", protocols=("other", "plain.example.test")) as socket:
        assert socket.protocol == "plain.example.test"
        await socket.send_bytes(b"\x00hello")
        assert await socket.receive_bytes() == b"\x00hello"
        await socket.send_bytes(b"bye")
        closed = await socket.receive()
        assert (closed.type, closed.data, closed.extra) == (aiohttp.WSMsgType.CLOSE, 1000, "the guest is off")
    api.strategy.tap.destination = Destination(f"https://127.0.0.1:{port}/off", "handler", pki.client("virt-api"))
    async with api.session.get(f"{api.url}{api.path}/w1/tap", headers=UPGRADE) as answer:
        assert (answer.status, (await answer.json())["message"]) == (400, "the guest is off")
    listening.close()
    await server.shutdown(0.05)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.session.ws_connect(f"{api.url}{api.path}/w1/tap")
    assert refused.value.status == 503
