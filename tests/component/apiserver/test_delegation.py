from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.client.config import Config
from apiserver.server import options, running
from apiserver.server.running import Kinds
from certs.issuing import Pair, new_authority
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import HOUR, Pki
from tests.component.apiserver.widgets import WIDGETS, WidgetStrategy, widget
from tests.fakes.kubeapi import FakeAPI

CONFIG_MAPS = "/api/v1/configmaps"
NAMESPACES = "/api/v1/namespaces"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


def trusted(proxies: Pair, clients: Pair, allowed: list[str]) -> dict[str, Any]:
    data = {
        "client-ca-file": clients.certificate.decode(),
        "requestheader-client-ca-file": proxies.certificate.decode(),
        "requestheader-allowed-names": json.dumps(allowed),
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {"metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"}, "data": data}


@dataclass
class Cluster:
    kube: FakeAPI
    pki: Pki
    proxies: Pair
    url: str = ""
    allowed_users: set[str] = field(default_factory=lambda: {"alice"})
    reviews: list[dict[str, Any]] = field(default_factory=list)

    def admit(self, path: str, obj: dict[str, Any]) -> None:
        if path == REVIEWS:
            self.reviews.append(obj["spec"])
            obj["status"] = {"allowed": obj["spec"]["user"] in self.allowed_users, "reason": "says the test"}
        if path == TOKENS:
            good = obj["spec"]["token"] == "good"
            obj["status"] = {"authenticated": good, "user": {"username": "alice", "groups": ["token-holders"]}}

    async def ask(
        self, who: str | None, authority: Pair | None = None, method: str = "GET", path: str = "", **more: Any
    ) -> tuple[int, Any]:
        session = aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=self.pki.client(who, authority)))
        async with session, session.request(method, path or WIDGETS.path("acc"), **more) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text


def arguments(pki: Pki, kubeconfig: Path) -> options.Options:
    return options.parse(
        [
            "--bind-address=127.0.0.1", "--secure-port=0", "--storage=memory", "--shutdown-delay-duration=0s",
            f"--tls-cert-file={pki.directory / 'server.crt'}",
            f"--tls-private-key-file={pki.directory / 'server.key'}",
            f"--kubeconfig={kubeconfig}",
        ]
    )  # fmt: skip


def write_kubeconfig(path: Path, config: Config) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": config.server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
async def cluster(pki: Pki, tmp_path: Path) -> AsyncIterator[Cluster]:
    kube = FakeAPI()
    made = Cluster(kube, pki, new_authority("front-proxy", HOUR, datetime.now(UTC)))
    kube.admit = made.admit
    await kube.put(CONFIG_MAPS, trusted(made.proxies, pki.authority, ["front-proxy-client"]))
    await kube.put(NAMESPACES, {"metadata": {"name": "acc"}, "status": {"phase": "Active"}})
    async with kube.serving() as config:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", config)
        async with running.running(arguments(pki, kubeconfig), lambda _: Kinds((WidgetStrategy(),)), MemoryStorage()) as (host, port):
            made.url = f"https://{host}:{port}"
            async with asyncio.timeout(10):
                while (await made.ask(None, path="/readyz"))[0] != 200:
                    await asyncio.sleep(0.02)
            yield made


async def test_the_front_proxy_speaks_for_others(cluster: Cluster) -> None:
    headers = [("X-Remote-User", "alice"), ("X-Remote-Group", "a"), ("X-Remote-Group", "b"), ("X-Remote-Extra-Some%2Fkey", "v")]
    code, _ = await cluster.ask("front-proxy-client", cluster.proxies, headers=headers)
    assert code == 200
    review = cluster.reviews[-1]
    assert (review["user"], review["groups"], review["extra"]) == ("alice", ["a", "b", "system:authenticated"], {"some/key": ["v"]})
    assert review["resourceAttributes"] == {
        "namespace": "acc", "verb": "list", "group": "example.test", "version": "v1", "resource": "widgets",
    }  # fmt: skip
    code, status = await cluster.ask("front-proxy-client", cluster.proxies, headers={"X-Remote-User": "bob"})
    assert code == 403
    assert status["message"] == (
        'widgets.example.test is forbidden: User "bob" cannot list resource "widgets" in API group "example.test" in the namespace "acc": '
        "says the test"
    )


async def test_the_front_proxy_may_tell_of_hundreds_of_groups(cluster: Cluster) -> None:
    groups = [f"https://login.example.test/groups/{number:040}" for number in range(600)]
    headers = [("X-Remote-User", "alice"), *(("X-Remote-Group", each) for each in groups)]
    code, _ = await cluster.ask("front-proxy-client", cluster.proxies, headers=headers)
    assert (code, cluster.reviews[-1]["groups"]) == (200, [*groups, "system:authenticated"])
    code, status = await cluster.ask(None, headers=headers)
    assert (code, status["code"]) == (431, 431)


async def test_only_the_front_proxy_is_believed_about_other_users(cluster: Cluster) -> None:
    masters = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    assert (await cluster.ask("somebody-else", cluster.proxies, headers=masters))[0] == 401
    code, status = await cluster.ask("front-proxy-client", None, headers=masters)
    assert (code, cluster.reviews[-1]["user"]) == (403, "front-proxy-client")
    assert "front-proxy-client" in status["message"]
    code, _ = await cluster.ask(None, headers=masters)
    assert (code, cluster.reviews[-1]["user"], cluster.reviews[-1]["groups"]) == (403, "system:anonymous", ["system:unauthenticated"])


async def test_masters_and_health_need_no_review(cluster: Cluster) -> None:
    before = len(cluster.reviews)
    masters = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
    assert (await cluster.ask("front-proxy-client", cluster.proxies, headers=masters))[0] == 200
    assert (await cluster.ask(None, path="/livez"))[0] == 200
    assert len(cluster.reviews) == before
    assert (await cluster.ask(None, path="/readyz/etcd"))[0] == 403


async def test_answers_are_remembered_for_a_moment(cluster: Cluster) -> None:
    for _ in range(5):
        await cluster.ask("front-proxy-client", cluster.proxies, headers={"X-Remote-User": "alice"})
    assert len(cluster.reviews) == 1


async def test_bearer_tokens_are_reviewed_and_bad_ones_never_anonymous(cluster: Cluster) -> None:
    cluster.allowed_users.add("system:anonymous")
    assert (await cluster.ask(None, headers={"Authorization": "Bearer good"}))[0] == 200
    assert cluster.reviews[-1]["groups"] == ["token-holders", "system:authenticated"]
    assert (await cluster.ask(None, headers={"Authorization": "Bearer bad"}))[0] == 401
    assert (await cluster.ask(None, path="/livez", headers={"Authorization": "Bearer bad"}))[0] == 401
    assert (await cluster.ask(None))[0] == 200


async def test_reviews_of_tokens_are_counted_under_gos_names(cluster: Cluster) -> None:
    for token in ("good", "good", "bad"):
        await cluster.ask(None, headers={"Authorization": f"Bearer {token}"})
    cluster.allowed_users.add("alice")
    page = (await cluster.ask("alice", path="/metrics"))[1]
    for line in (
        'request_total{status="hit"} 1',
        'request_total{status="miss"} 2',
        'fetch_total{status="ok"} 1',
        'fetch_total{status="error"} 1',
    ):
        assert f"authentication_token_cache_{line}\n" in page
    assert 'authentication_token_cache_request_duration_seconds_count{status="miss"} 2\n' in page


async def test_a_change_of_the_config_map_counts_at_once(cluster: Cluster) -> None:
    alice = {"X-Remote-User": "alice"}
    assert (await cluster.ask("front-proxy-client", cluster.proxies, headers=alice))[0] == 200
    await cluster.kube.put(CONFIG_MAPS, trusted(cluster.proxies, cluster.pki.authority, ["other"]))
    async with asyncio.timeout(30):
        while (await cluster.ask("front-proxy-client", cluster.proxies, headers=alice))[0] != 401:
            await asyncio.sleep(0.02)
    rotated = new_authority("front-proxy-2", HOUR, datetime.now(UTC))
    await cluster.kube.put(CONFIG_MAPS, trusted(rotated, cluster.pki.authority, []))
    async with asyncio.timeout(30):
        while True:
            try:
                if (await cluster.ask("anything", rotated, headers=alice))[0] == 200:
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
    with pytest.raises(aiohttp.ClientError):
        await cluster.ask("front-proxy-client", cluster.proxies, headers=alice)


async def test_a_new_object_needs_a_living_namespace(cluster: Cluster) -> None:
    async def create(namespace: str) -> tuple[int, Any]:
        headers = {"X-Remote-User": "alice"}
        return await cluster.ask("front-proxy-client", cluster.proxies, "POST", WIDGETS.path(namespace), headers=headers, json=widget())

    assert (await create("acc"))[0] == 201
    code, status = await create("nope")
    assert (code, status["message"]) == (404, 'namespaces "nope" not found')
    await cluster.kube.edit(NAMESPACES, "", "acc", lambda obj: obj["status"].update(phase="Terminating"))
    async with asyncio.timeout(30):
        while (await create("acc"))[1].get("reason") == "AlreadyExists":
            await asyncio.sleep(0.02)
    code, status = await create("acc")
    assert (code, status["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert "because it is being terminated" in status["message"]


async def test_resources_are_503_not_404_while_the_cluster_is_away(pki: Pki, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", Config(server="http://127.0.0.1:9"))
    async with running.running(arguments(pki, kubeconfig), lambda _: Kinds((WidgetStrategy(),)), MemoryStorage()) as (host, port):
        session = aiohttp.ClientSession(f"https://{host}:{port}", connector=aiohttp.TCPConnector(ssl=pki.client()))
        async with session, session.get(WIDGETS.path("acc")) as answer, session.get("/livez") as live, session.get("/readyz") as ready:
            assert (answer.status, answer.headers["Retry-After"], (await answer.json())["reason"]) == (503, "5", "ServiceUnavailable")
            assert (live.status, ready.status) == (200, 500)
