from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.apis.meta.objects import Object
from apiserver.server import options, running
from apiserver.server.running import Kinds
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import NAMESPACE, Api, Pki, flags, serving
from tests.component.apiserver.test_delegation import Cluster, cluster
from tests.component.apiserver.widgets import WIDGETS, Shine, WidgetStrategy, widget

__all__ = ["cluster"]


async def test_hlt_02_every_check_has_gos_name(api: Api) -> None:
    lines = (await api.get("/readyz?verbose")).body.decode().splitlines()
    for name in ("ping", "log", "etcd", "etcd-readiness", "informer-sync", "poststarthook/generic-apiserver-start-informers", "shutdown"):
        assert f"[+]{name} ok" in lines
    assert lines[-1] == "readyz check passed"
    assert (await api.get("/readyz/poststarthook/storage-watch-caches")).body == b"ok"
    assert (await api.get("/healthz?verbose")).body.decode().endswith("healthz check passed\n")
    assert (await api.get("/readyz")).headers["X-Content-Type-Options"] == "nosniff"


async def test_hlt_01_what_cannot_be_left_out_is_said(api: Api) -> None:
    text = (await api.get("/readyz?verbose&exclude=nonsense&exclude=etcd")).body.decode()
    assert 'warn: some health checks cannot be excluded: no matches for "nonsense"' in text
    assert "[+]etcd excluded: ok" in text


async def test_met_03_checks_are_indicators(api: Api) -> None:
    await api.get("/readyz")
    text = (await api.get("/metrics/slis")).body.decode()
    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1' in text
    assert 'kubernetes_healthchecks_total{name="ping",type="readyz",status="success"}' in text


@pytest.mark.parametrize("text", ["abc", "5", "-"])
async def test_req_05_a_time_that_is_none_is_refused(api: Api, text: str) -> None:
    answer = await api.get(f"?timeout={text}")
    assert answer.code == 400
    assert answer.json["message"].startswith("invalid timeout specified in the request URL")


def reading(shine: Shine) -> WidgetStrategy:
    strategy = WidgetStrategy()
    strategy.reads = {"shine": shine}
    return strategy


@pytest.mark.parametrize(("flag", "query"), [("--request-timeout=1s", ""), ("--request-timeout=1m", "?timeout=100ms")])
async def test_tmo_01_slow_request_is_504_and_the_next_is_answered(pki: Pki, flag: str, query: str) -> None:
    cancelled = asyncio.Event()

    class Hanging(Shine):
        async def read(self, obj: Object) -> Object:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

    async with serving(pki, flag, strategy=reading(Hanging())) as api:
        await api.make(widget())
        answer = await api.get(f"w1/shine{query}")
        assert (answer.code, answer.json["reason"]) == (504, "Timeout")
        assert cancelled.is_set()
        assert (await api.get("")).code == 200
        metrics = (await api.get("/metrics")).body.decode()
        assert 'apiserver_request_terminations_total{verb="GET"' in metrics


async def test_tmo_01_a_watch_is_not_bounded_by_the_time_of_requests(pki: Pki) -> None:
    async with serving(pki, "--request-timeout=1s") as api, api.watch("timeoutSeconds=30") as events:
        await asyncio.sleep(1.5)
        await api.make(widget("late"))
        assert (await anext(events))["object"]["metadata"]["name"] == "late"


async def test_flw_01_beyond_the_limit_is_429_and_masters_are_answered(pki: Pki) -> None:
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    class Slow(Shine):
        async def read(self, obj: Object) -> Object:
            begun.release()
            await go.wait()
            return await super().read(obj)

    async with serving(pki, "--max-requests-inflight=2", strategy=reading(Slow())) as api, asyncio.TaskGroup() as tasks:
        await api.make(widget())
        waiting = [tasks.create_task(api.get("w1/shine")) for _ in range(2)]
        for _ in waiting:
            await begun.acquire()
        refused = await api.get("w1")
        assert (refused.code, refused.json["reason"], refused.headers["Retry-After"]) == (429, "TooManyRequests", "1")
        assert refused.json["message"] == "Too many requests, please try again later."
        assert (await api.call("POST", "", widget("w2"))).code == 201
        go.set()
        assert [(await each).code for each in waiting] == [200, 200]


async def test_flw_03_a_refused_body_is_not_read(pki: Pki) -> None:
    async with serving(pki, "--max-mutating-requests-inflight=1") as api:

        async def endless() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(api.session.post(api.url + api.path, data=endless(), headers={"Content-Type": "application/json"}))
            while 'inflight_requests{request_kind="mutating"} 1' not in (await api.get("/metrics")).body.decode():
                await asyncio.sleep(0.02)
            async with asyncio.timeout(30), api.session.post(api.url + api.path, data=endless()) as second:
                assert second.status == 429
            first.cancel()


async def test_imp_01_impersonation_is_authorized_then_applied(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "g"}
    code, status = await cluster.ask("carol", headers=headers)
    assert (code, status["reason"]) == (403, "Forbidden")
    assert 'cannot impersonate-on:user-info:list resource "widgets"' in status["message"]
    cluster.allowed_users |= {"alice", "bob"}
    code, _ = await cluster.ask("alice", headers=headers)
    assert code == 200
    last = cluster.reviews[-1]
    assert (last["user"], last["groups"]) == ("bob", ["g", "system:authenticated"])
    (line,) = [vars(each) for each in caplog.records if "annotations" in vars(each)]
    assert (line["user"], line["annotations"]) == ("bob", {"authentication.k8s.io/impersonator": "alice"})
    verbs = {each["resourceAttributes"]["verb"] for each in cluster.reviews if each["user"] == "alice"}
    assert {"impersonate-on:user-info:list", "impersonate:user-info"} <= verbs


async def test_aun_06_a_browser_gives_its_token_as_a_subprotocol(cluster: Cluster) -> None:
    token = base64.urlsafe_b64encode(b"good").decode().rstrip("=")
    upgrade = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
    }  # fmt: skip
    offered = f"base64url.bearer.authorization.k8s.io.{token}, v4.channel.k8s.io"
    assert (await cluster.ask(None, headers={**upgrade, "Sec-WebSocket-Protocol": offered}))[0] == 200
    assert cluster.reviews[-1]["user"] == "alice"
    for wrong in (offered.partition(",")[0], offered.replace(token, "!"), f"{offered}, base64url.bearer.authorization.k8s.io.{token}"):
        assert (await cluster.ask(None, headers={**upgrade, "Sec-WebSocket-Protocol": wrong}))[0] == 401


async def test_aun_10_unauthorized_is_a_status_without_challenge(cluster: Cluster) -> None:
    session = aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=cluster.pki.client(None)))
    async with session, session.get(WIDGETS.path(NAMESPACE), headers={"Authorization": "Bearer x"}) as answer:
        assert answer.status == 401
        assert "WWW-Authenticate" not in answer.headers
        assert (await answer.json())["reason"] == "Unauthorized"


async def test_agg_12_the_uid_comes_with_the_front_proxy(cluster: Cluster) -> None:
    headers = {"X-Remote-User": "alice", "X-Remote-Uid": "u1"}
    assert (await cluster.ask("front-proxy-client", cluster.proxies, headers=headers))[0] == 200
    assert cluster.reviews[-1]["uid"] == "u1"


async def test_auz_03_a_thousand_requests_are_one_review(cluster: Cluster) -> None:
    before = len(cluster.reviews)
    session = aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=cluster.pki.client("alice")))
    async with session:
        for _ in range(200):
            async with session.get(WIDGETS.path(NAMESPACE)) as answer:
                assert answer.status == 200
    assert len(cluster.reviews) == before + 1


async def test_auz_07_a_watch_outlives_the_right_to_it(cluster: Cluster) -> None:
    session = aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=cluster.pki.client("alice")))
    async with session, session.get(WIDGETS.path(NAMESPACE), params={"watch": "1", "timeoutSeconds": "5"}) as stream:
        cluster.allowed_users.clear()
        assert (await cluster.ask("alice", method="POST", json=widget("x")))[0] == 403
        cluster.allowed_users.add("bob")
        assert (await cluster.ask("bob", method="POST", json=widget("y")))[0] == 201
        assert json.loads(await stream.content.readline())["object"]["metadata"]["name"] == "y"


async def test_dis_03_documents_have_gos_tags(api: Api) -> None:
    first = await api.get("/apis", Accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    tag = first.headers["ETag"]
    assert tag == f'"{hashlib.sha512(first.body).hexdigest().upper()}"'
    assert (first.headers["Vary"], first.headers["Cache-Control"]) == ("Accept", "public")
    again = await api.get("/apis", Accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", If_None_Match=tag)
    assert (again.code, again.body) == (304, b"")


async def test_dis_07_the_hash_of_the_storage_version_is_gos(api: Api) -> None:
    listed = (await api.get("/apis/example.test/v1")).json["resources"]
    expected = base64.b64encode(hashlib.sha256(b"example.test/v1/Widget").digest()[:8]).decode()
    assert [each["storageVersionHash"] for each in listed if each["name"] == "widgets"] == [expected]


async def test_dis_10_discovery_requires_authorization(cluster: Cluster) -> None:
    assert (await cluster.ask("alice", path="/apis"))[0] == 200
    assert cluster.reviews[-1]["nonResourceAttributes"] == {"path": "/apis", "verb": "get"}
    assert (await cluster.ask("carol", path="/apis"))[0] == 403


async def test_dis_11_the_root_lists_paths(api: Api) -> None:
    assert {"/apis", "/apis/example.test/v1", "/healthz", "/livez", "/metrics", "/readyz", "/version"} <= set(
        (await api.get("/")).json["paths"]
    )


async def test_oas_10_operation_ids_are_unique_and_gos(api: Api) -> None:
    paths = (await api.get("/openapi/v2")).json["paths"]
    ids = [each["operationId"] for path in paths.values() for each in path.values() if isinstance(each, dict) and "operationId" in each]
    assert len(ids) == len(set(ids))
    assert {
        "listExampleTestV1NamespacedWidget",
        "readExampleTestV1NamespacedWidgetStatus",
        "listExampleTestV1WidgetForAllNamespaces",
    } <= set(ids)


async def test_oas_11_openapi_is_compressed_when_asked(api: Api) -> None:
    for path in ("/openapi/v2", "/openapi/v3/apis/example.test/v1"):
        plain = await api.get(path, Accept_Encoding="identity")
        assert "Content-Encoding" not in plain.headers
        async with api.session.get(api.url + path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert (answer.headers["Content-Encoding"], answer.headers["ETag"]) == ("gzip", plain.headers["ETag"])
            assert "Accept-Encoding" in answer.headers["Vary"]
            assert int(answer.headers["Content-Length"]) < len(plain.body) / 4
            assert await answer.read() == plain.body
        again = await api.get(path, Accept_Encoding="gzip", If_None_Match=plain.headers["ETag"])
        assert (again.code, again.body) == (304, b"")


async def test_oas_13_the_version_has_every_field(api: Api) -> None:
    assert set((await api.get("/version")).json) >= {
        "major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
    }  # fmt: skip


async def test_agg_09_nothing_is_redirected(api: Api) -> None:
    for path in ("/apis/", f"{WIDGETS.path(NAMESPACE)}/", "/version/", "//apis", "/readyz/"):
        assert (await api.get(path)).code not in range(300, 400), path


async def test_agg_11_aggregators_discovery_poll_is_answered(api: Api) -> None:
    accept = ",".join(f"application/json;g=apidiscovery.k8s.io;v={each};as=APIGroupDiscoveryList" for each in ("v2", "v2beta1"))
    answer = await api.get("/apis", Accept=accept)
    assert answer.json["items"][0]["versions"][0]["freshness"] == "Current"
    assert (await api.get("/apis/example.test/v1")).json["kind"] == "APIResourceList"


async def test_flg_01_without_a_certificate_one_is_made(tmp_path: Path) -> None:
    given = options.parse(
        [
            "--storage=memory", "--bind-address=127.0.0.1", "--secure-port=0", f"--cert-dir={tmp_path / 'made'}",
            "--shutdown-delay-duration=0s", "--authentication-skip-lookup", "--authorization-mode=AlwaysAllow",
        ]
    )  # fmt: skip
    async with running.running(given, lambda _: Kinds((WidgetStrategy(),)), MemoryStorage()) as (_, port):
        context = ssl.create_default_context(cafile=str(tmp_path / "made" / "apiserver.crt"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session, asyncio.timeout(10):
            while True:
                async with session.get(f"https://localhost:{port}/readyz") as answer:
                    if answer.status == 200:
                        break
    assert (tmp_path / "made" / "apiserver.key").stat().st_mode & 0o077 == 0


async def test_shd_03_answers_are_503_until_caches_are_filled(pki: Pki) -> None:
    class Slow(MemoryStorage):
        go = asyncio.Event()

        async def range(self, *given: Any, **more: Any) -> Any:
            await self.go.wait()
            return await super().range(*given, **more)

    storage = Slow()
    connector = aiohttp.TCPConnector(ssl=pki.client("developer"))
    async with (
        running.running(flags(pki), lambda _: Kinds((WidgetStrategy(),)), storage) as (host, port),
        aiohttp.ClientSession(connector=connector) as session,
    ):
        api = Api(f"https://{host}:{port}", session, WidgetStrategy(), storage)
        for path in ("", "w1", "?watch=1&resourceVersion=0", "/apis/example.test/v1/nonsense", "/nothing", "/apis"):
            answer = await api.get(path)
            assert (answer.code, answer.headers["Retry-After"]) == (503, "5"), path
        assert (await api.get("/livez")).code == 200
        assert b"[-]informer-sync failed: reason withheld" in (await api.get("/readyz")).body
        storage.go.set()
        async with asyncio.timeout(10):
            while (await api.get("/readyz")).code != 200:
                await asyncio.sleep(0.01)
        assert (await api.get("")).code == 200
