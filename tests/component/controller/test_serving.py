from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import MIGRATIONS
from apiserver.client.config import Config
from apiserver.client.delegated import REMEMBERED_SECONDS, Access
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs import files, issuing
from certs.issuing import Profile
from certs.reloading import Files
from controller.manager.metrics import Metrics
from controller.manager.namespace_labels import ENFORCE, NamespaceLabels
from controller.runtime.reconciling import Controller, Request, Result
from controller.serving.health import Health
from controller.serving.metrics import MetricsServer
from tests.fakes.kubeapi import FakeAPI

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Idle:
    async def reconcile(self, request: Request) -> Result:
        return Result()


class Reviewer:
    def __init__(self, api: FakeAPI) -> None:
        self.asked: list[str] = []
        self.reviewed: list[dict[str, Any]] = []
        api.admit = self._admit

    def _admit(self, collection: str, obj: dict[str, Any]) -> None:
        self.asked.append(collection)
        if collection == TOKENS:
            name = obj["spec"]["token"]
            known = name in {"prometheus", "somebody"}
            obj["status"] = {"authenticated": known, "user": {"username": name, "groups": ["readers"], "extra": {"a": ["b"]}}}
        elif collection == REVIEWS:
            self.reviewed.append(obj["spec"])
            obj["status"] = {"allowed": obj["spec"]["user"] == "prometheus"}


def certificate(directory: Path) -> Files:
    now = datetime.now(UTC)
    authority = issuing.new_authority("kubevirt-ca", timedelta(days=1), now)
    leaf = issuing.issue(authority, Profile("virt-controller", ("localhost",), server=True), timedelta(days=1), now)
    files.publish(directory, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate})
    return Files.in_directory(directory)


async def bound(server: Health | MetricsServer) -> int:
    async with asyncio.timeout(30):
        while not server.bound_port:
            await asyncio.sleep(0.01)
    return server.bound_port


Ask = Callable[..., Any]


async def up() -> bytes:
    return b"up 1\n"


@asynccontextmanager
async def served(api: FakeAPI, tmp_path: Path, render: Callable[[], Awaitable[bytes]] = up) -> AsyncIterator[Ask]:
    given = certificate(tmp_path / "tls")
    assert given.authorities is not None
    trust = ssl.create_default_context(cafile=str(given.authorities))
    async with api.serving() as config, Client(config, user_agent="test") as client, aiohttp.ClientSession() as session:
        server = MetricsServer(0, render, Access(client), Files(given.certificate, given.key), host="127.0.0.1")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run())
            port = await bound(server)

            async def ask(token: str = "", path: str = "/metrics") -> tuple[int, str]:
                headers = {"Authorization": token} if token else {}
                async with session.get(f"https://localhost:{port}{path}", headers=headers, ssl=trust) as response:
                    return response.status, await response.text()

            yield ask
            running.cancel()


async def test_health_tells_the_kubelet_and_nothing_else() -> None:
    ready = False
    health = Health(0, {"informers": lambda: ready}, host="127.0.0.1")
    async with asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as session:
        serving = tasks.create_task(health.run())
        base = f"http://127.0.0.1:{await bound(health)}"
        async with session.get(f"{base}/livez") as response:
            assert response.status == 200
        async with session.get(f"{base}/readyz") as response:
            assert (response.status, await response.text()) == (503, "not ready: informers\n")
        ready = True
        async with session.get(f"{base}/readyz") as response:
            assert response.status == 200
        async with session.get(f"{base}/metrics") as response:
            assert response.status == 404
        serving.cancel()


async def test_metrics_are_served_over_tls_to_authorized_users(tmp_path: Path) -> None:
    api, metrics = FakeAPI(), Metrics()
    reviewer = Reviewer(api)
    metrics.loops.reconciled("virtualmachines", "success", 0.01)
    loop = Controller("virtualmachines", Idle())
    metrics.watch_queue(loop)
    loop.enqueue(Request("ns", "vm"))
    async with Client(Config("http://unused"), user_agent="test") as client:
        migrations = Informer(client, MIGRATIONS)
    for number, phase in enumerate(("", "Pending", "Running", "Succeeded")):
        migrations.remember({"metadata": {"name": f"m{number}", "namespace": "ns", "resourceVersion": "1"}, "status": {"phase": phase}})
    metrics.watch_migrations(migrations)
    async with served(api, tmp_path, metrics.page) as ask:
        code, text = await ask("Bearer prometheus")

    assert code == 200
    assert 'controller_runtime_reconcile_total{controller="virtualmachines",result="success"} 1' in text
    assert 'controller_runtime_reconcile_time_seconds_bucket{controller="virtualmachines",le="0.025"} 1' in text
    assert 'kubevirt_workqueue_depth{controller="virtualmachines"} 1' in text
    shown = dict(re.findall(r'^kubevirt_migrations{phase="(\w+)"} (\S+)$', text, re.MULTILINE))
    assert shown == {"Pending": "2", "Scheduling": "0", "PreparingTarget": "0", "TargetReady": "0", "Running": "1"}
    assert reviewer.reviewed == [
        {
            "user": "prometheus",
            "uid": "",
            "groups": ["readers"],
            "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
    ]


@pytest.mark.parametrize(
    ("authorization", "code", "said"),
    [
        ("", 401, "Unauthorized"),
        ("Basic cHJvbWV0aGV1czp4", 401, "Unauthorized"),
        ("Bearer", 401, "Unauthorized"),
        ("Bearer stolen", 401, "Unauthorized"),
        ("Bearer somebody", 403, 'forbidden: User "somebody" cannot get path "/metrics"'),
    ],
)
async def test_unauthorized_users_get_no_metrics(tmp_path: Path, authorization: str, code: int, said: str) -> None:
    api = FakeAPI()
    Reviewer(api)
    async with served(api, tmp_path) as ask:
        answer = await ask(authorization)

    assert answer[0] == code
    assert said in answer[1]
    assert "up 1" not in answer[1]


async def test_metrics_are_unavailable_while_reviews_fail(tmp_path: Path) -> None:
    api = FakeAPI()
    Reviewer(api)
    api.refusals = [errors.InternalError("etcd is away")]
    async with served(api, tmp_path) as ask:
        assert (await ask("Bearer prometheus"))[0] == 503
        assert (await ask("Bearer prometheus"))[0] == 200


async def test_metrics_access_is_cached_for_some_seconds() -> None:
    api, now = FakeAPI(), 0.0
    reviewer = Reviewer(api)
    async with api.serving() as config, Client(config, user_agent="test") as client:
        access = Access(client, now=lambda: now)
        assert await access.refusal("Bearer prometheus", "/metrics") is None
        asked = len(reviewer.asked)
        assert await access.refusal("Bearer prometheus", "/metrics") is None
        assert len(reviewer.asked) == asked
        assert (await access.refusal("Bearer somebody", "/metrics")) is not None
        now = REMEMBERED_SECONDS
        assert await access.refusal("Bearer prometheus", "/metrics") is None
        assert len(reviewer.asked) == 3 * asked


async def test_metrics_wait_for_their_certificate(tmp_path: Path) -> None:
    api = FakeAPI()
    absent = Files(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
    async with api.serving() as config, Client(config, user_agent="test") as client:
        server = MetricsServer(0, up, Access(client), absent, host="127.0.0.1")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run())
            await asyncio.sleep(0.05)
            assert not running.done()
            assert server.bound_port == 0
            certificate(tmp_path / "tls")
            await bound(server)
            running.cancel()


@pytest.mark.parametrize(("labels", "after"), [({}, "privileged"), ({ENFORCE: "restricted"}, "restricted"), ({"a": "b"}, "privileged")])
async def test_namespace_without_a_level_is_labelled(labels: dict[str, str], after: str) -> None:
    api = FakeAPI()
    await api.put("/api/v1/namespaces", {"metadata": {"name": "kubevirt", "labels": labels}})
    async with api.serving() as config, Client(config, user_agent="test") as client:
        level = await NamespaceLabels(client, "kubevirt").ensure()

    assert level == after
    assert api.get("/api/v1/namespaces", "", "kubevirt")["metadata"]["labels"] == {**labels, ENFORCE: after}


async def test_without_the_right_to_label_it_goes_on_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeAPI()
    api.authorize = lambda *_: False
    async with api.serving() as config, Client(config, user_agent="test") as client, asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(NamespaceLabels(client, "kubevirt").run())
        while not said(caplog):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        running.cancel()

    assert said(caplog) == ["WARNING"]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if ENFORCE in record.message]
