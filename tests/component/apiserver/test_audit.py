"""AUD-01: the audit log of a running server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from apiserver.apis.meta.objects import Object
from tests.component.apiserver.conftest import Api, Pki, serving
from tests.component.apiserver.widgets import WidgetStrategy, widget

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/readyz*", "/livez"]
- level: RequestResponse
  verbs: [create, patch]
- level: Request
  verbs: [update]
- level: Metadata
"""


@asynccontextmanager
async def audited(pki: Pki, path: Path, *more: str, strategy: WidgetStrategy | None = None) -> AsyncIterator[Api]:
    policy = path.parent / "policy.yaml"
    policy.write_text(POLICY)
    async with serving(pki, f"--audit-policy-file={policy}", f"--audit-log-path={path}", *more, strategy=strategy) as api:
        yield api


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_every_request_leaves_two_events_under_the_aggregators_id(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(pki, path) as api:
        answer = await api.get(Audit_Id="abc", X_Forwarded_For="192.0.2.7, 192.0.2.8", X_Real_Ip="192.0.2.9", User_Agent="kubectl/v1")
        assert answer.headers["Audit-Id"] == "abc"
    events = [each for each in read(path) if each["auditID"] == "abc"]
    assert [each["stage"] for each in events] == ["RequestReceived", "ResponseComplete"]
    last = events[1]
    assert last["user"].pop("extra").keys() == {"authentication.kubernetes.io/credential-id"}
    assert last["user"] == {"username": "developer", "groups": ["system:authenticated"]}
    assert last["sourceIPs"] == ["192.0.2.7", "192.0.2.8", "192.0.2.9", "127.0.0.1"]
    assert last["userAgent"] == "kubectl/v1"
    assert last["verb"] == "list"
    assert last["responseStatus"]["code"] == 200
    assert last["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert "responseStatus" not in events[0]


async def test_objects_are_kept_by_level_without_managed_fields(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(pki, path) as api:
        made = await api.make(widget("w", size=2))
        await api.call("PUT", "w", {**made, "spec": {"size": 3}})
        await api.patch("w", {"spec": {"size": 4}})
    complete = {each["verb"]: each for each in read(path) if each["stage"] == "ResponseComplete"}
    create, update, patch = complete["create"], complete["update"], complete["patch"]
    assert create["objectRef"]["name"] == "w"
    assert create["requestObject"]["spec"]["size"] == 2
    assert create["responseObject"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert "managedFields" not in create["responseObject"]["metadata"]
    assert update["objectRef"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert update["objectRef"]["uid"] == made["metadata"]["uid"]
    assert update["requestObject"]["spec"]["size"] == 3
    assert "responseObject" not in update
    assert patch["requestObject"] == {"spec": {"size": 4}}
    assert patch["responseObject"]["spec"]["size"] == 4


async def test_what_is_gone_is_told_with_its_uid(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(pki, path) as api:
        made = await api.make(widget("w"))
        await api.call("DELETE", "w")
    details = {"name": "w", "group": "example.test", "kind": "widgets", "uid": made["metadata"]["uid"]}
    assert read(path)[-1]["responseStatus"] == {"metadata": {}, "status": "Success", "details": details, "code": 200}


async def test_discovery_is_kept_and_other_documents_are_not(pki: Pki, tmp_path: Path) -> None:
    path, policy = tmp_path / "audit.log", tmp_path / "policy.yaml"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}")
    async with serving(pki, f"--audit-policy-file={policy}", f"--audit-log-path={path}") as api:
        for each in ("/apis", "/version"):
            assert (await api.get(each)).code == 200
    last = {each["requestURI"]: each for each in read(path)}
    assert last["/apis"]["responseObject"]["kind"] == "APIGroupList"
    assert "responseObject" not in last["/version"]


async def test_errors_are_recorded_with_their_reason(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(pki, path) as api:
        assert (await api.get("absent")).code == 404
    last = read(path)[-1]
    assert last["responseStatus"]["code"] == 404
    assert last["responseStatus"]["reason"] == "NotFound"
    assert last["responseStatus"]["details"]["name"] == "absent"


async def test_answers_that_are_indented_or_yaml_stay_on_one_line(pki: Pki, tmp_path: Path) -> None:
    path, policy = tmp_path / "audit.log", tmp_path / "whole.yaml"
    policy.write_text(POLICY.replace("omitManagedFields: true", ""))
    async with serving(pki, f"--audit-policy-file={policy}", f"--audit-log-path={path}") as api:
        await api.call("POST", "?pretty=1", widget("w"))
        await api.call("POST", "?pretty=1", widget("w"))
        await api.call("POST", "", widget("w"), Accept="application/yaml")
    kept = [each["responseObject"] for each in read(path) if each["stage"] == "ResponseComplete"]
    assert [each.get("reason", each["kind"]) for each in kept] == ["Widget", "AlreadyExists", "AlreadyExists"]


async def test_a_watch_is_told_when_it_starts_and_when_it_ends(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(pki, path) as api, api.watch("timeoutSeconds=1") as events:
        assert [each async for each in events] == []
    told = [each for each in read(path) if each["verb"] == "watch"]
    assert not any(key.startswith("apiserver.latency") for each in told for key in each.get("annotations", ()))
    stages = [each["stage"] for each in told]
    assert stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]


async def test_no_secret_reaches_the_log_and_failed_authentication_does(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    secret = {"Authorization": "Bearer SECRETX"}
    async with (
        audited(pki, path) as api,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client())) as nobody,
        nobody.get(api.url + "/version", headers=secret) as answer,
    ):
        assert answer.status == 401
    assert "SECRETX" not in path.read_text()
    event = read(path)[-1]
    assert event["stage"] == "ResponseStarted"
    assert event["user"] == {}
    assert event["responseStatus"] == {"metadata": {}, "code": 401, "message": "Authentication failed, attempted: bearer"}


async def test_a_mistake_of_ours_is_a_panic_and_the_server_goes_on(pki: Pki, tmp_path: Path) -> None:
    """REQ-11: status 500, and the server answers the next request."""

    class Mistaken(WidgetStrategy):
        def cells(self, obj: Object, now: datetime) -> list[Any]:
            raise RuntimeError("with a secret in it")

    path = tmp_path / "audit.log"
    async with audited(pki, path, strategy=Mistaken()) as api:
        await api.make(widget())
        assert (await api.get(Accept="application/json;as=Table;v=v1;g=meta.k8s.io")).code == 500
        assert (await api.get()).code == 200
    panic = next(each for each in read(path) if each["stage"] == "Panic")
    assert panic["responseStatus"]["code"] == 500
    assert "secret" not in json.dumps(panic)
    assert [each["stage"] for each in read(path) if each["auditID"] == panic["auditID"]] == ["RequestReceived", "Panic"]


async def test_a_webhook_gets_event_lists_and_the_rest_at_the_end(pki: Pki, tmp_path: Path) -> None:
    lists: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        if not lists:
            lists.append({})
            return web.Response(status=503)  # is sent again
        lists.append(await request.json())
        return web.Response()

    application = web.Application()
    application.router.add_post("/events", take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = tmp_path / "webhook.yaml"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}/events"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    hook = (f"--audit-webhook-config-file={config}", "--audit-webhook-initial-backoff=10ms", "--audit-webhook-batch-max-wait=50ms")
    async with serving(pki, f"--audit-policy-file={policy}", *hook) as api:
        await api.get(Audit_Id="first")
        async with asyncio.timeout(20):
            while len(lists) < 2:
                await asyncio.sleep(0.01)
        await api.get(Audit_Id="last")
    await runner.cleanup()
    assert all(each["kind"] == "EventList" and each["apiVersion"] == "audit.k8s.io/v1" for each in lists[1:])
    ids = [event["auditID"] for each in lists[1:] for event in each["items"]]
    assert ids == ["first", "first", "last", "last"]


async def test_nothing_is_recorded_without_a_policy(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with serving(pki, f"--audit-log-path={path}") as api:
        await api.get()
    assert not path.exists()
