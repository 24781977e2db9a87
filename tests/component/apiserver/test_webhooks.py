"""Admission webhooks; reference: ``k8s.io/apiserver/pkg/admission/plugin/webhook``."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.component.apiserver import webhooks
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.test_delegation import NAMESPACES
from tests.component.apiserver.webhooks import RULE, VALIDATING, Json, World, allow, deny, label, patch
from tests.component.apiserver.widgets import OLD_WIDGETS, WIDGETS, widget
from tests.fakes import rbac

UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


@pytest.fixture
async def world(pki: Pki, tmp_path: Path) -> AsyncIterator[World]:
    async with webhooks.world(pki, tmp_path) as made:
        yield made


def no_means(review: Json) -> Json:
    return deny(review, message="no means no")


def only_creates(review: Json) -> Json:
    return allow(review) if review["request"]["operation"] == "CREATE" else deny(review, message="it stays")


async def test_a_validating_webhook_denies_a_creation(world: World) -> None:
    await world.validating(world.hook("deny", no_means))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["message"]) == (400, 'admission webhook "deny.example.test" denied the request: no means no')
        assert answer.json["status"] == "Failure"
        assert (await api.get("w1")).code == 404


async def test_the_request_that_a_webhook_sees(world: World) -> None:
    await world.validating(world.hook("see"))
    async with world.api() as api:
        made = await api.make(widget(size=3), "?fieldManager=me&fieldValidation=Strict")
    (review,) = world.hooks["see"].reviews
    request = review["request"]
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    kind = {"group": "example.test", "version": "v1", "kind": "Widget"}
    resource = {"group": "example.test", "version": "v1", "resource": "widgets"}
    shown = request.pop("object")
    assert request.pop("uid")
    assert request["userInfo"].pop("extra").keys() == {"authentication.kubernetes.io/credential-id"}
    assert request == {
        "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "w1", "namespace": "acc", "operation": "CREATE",
        "userInfo": {"username": "developer", "groups": ["system:authenticated"]},
        "oldObject": None, "dryRun": False,
        "options": {
            "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "me", "fieldValidation": "Strict",
        },
    }  # fmt: skip
    assert (shown["kind"], shown["metadata"]["uid"], shown["spec"]) == ("Widget", made["metadata"]["uid"], {"size": 3})
    (headers,) = world.hooks["see"].headers
    assert (headers["User-Agent"], headers["Content-Type"]) == ("kube-apiserver-admission", "application/json")
    assert world.hooks["see"].queries == ["timeout=10s"]


async def test_webhooks_mutate_in_order_then_validate_the_result(world: World) -> None:
    def grow(review: Json) -> Json:
        return patch(review, {"op": "replace", "path": "/spec/size", "value": review["request"]["object"]["spec"]["size"] + 1})

    await world.mutating(world.hook("b", lambda review: label(review, "b", "1")), name="second")
    await world.mutating(world.hook("a", grow), world.hook("c", grow), name="first")
    await world.validating(world.hook("judge", lambda review: deny(review, message=json.dumps(review["request"]["object"]["spec"]))))
    async with world.api() as api:
        answer = await api.call("POST", "", widget(size=1))
        assert answer.json["message"] == 'admission webhook "judge.example.test" denied the request: {"size": 3}'
    assert world.order == ["a", "c", "b", "judge"]
    assert "uid" not in world.hooks["a"].requests[0]["object"]["metadata"]
    assert world.hooks["judge"].requests[0]["object"]["metadata"]["labels"] == {"b": "1"}


async def test_mutating_webhooks_result_is_validated(world: World) -> None:
    bad: list[Json] = [{"op": "replace", "path": "/spec/size", "value": -1}]
    await world.mutating(world.hook("bad", lambda review: patch(review, *bad)))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "spec.size")
        for value, field in (("x", "/spec/size"), ("x", "/spec"), ([], "/metadata/labels"), (7, "/metadata/name"), (None, "/metadata")):
            bad[:] = [{"op": "add", "path": field, "value": value}]
            answer = await api.call("POST", "", widget())
            assert answer.code in {400, 422, 500}, answer.body
            assert answer.json["kind"] == "Status"
            assert "audit id" not in answer.json["message"], (field, answer.json)
        bad[:] = [{"op": "replace", "path": "/kind", "value": "Gadget"}]
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["reason"]) == (500, "InternalError")
        assert "changed apiVersion or kind" in answer.json["message"]


async def test_webhook_is_reinvoked_after_a_later_change_on_request(world: World) -> None:
    late = {"matchLabels": {"late": "yes"}}
    await world.mutating(
        world.hook("again", lambda review: label(review, "again", str(len(world.hooks["again"].reviews))), reinvocationPolicy="IfNeeded"),
        world.hook("never", allow),
        world.hook("early", lambda review: label(review, "early", "x"), objectSelector=late, reinvocationPolicy="IfNeeded"),
        world.hook("late", lambda review: label(review, "late", "yes")),
    )
    async with world.api() as api:
        made = await api.make(widget())
    assert world.order == ["again", "never", "late", "again"]
    assert made["metadata"]["labels"] == {"again": "2", "late": "yes"}


async def test_webhooks_are_not_reinvoked_without_a_change(world: World) -> None:
    await world.mutating(
        world.hook("first", lambda review: label(review, "x", "1"), reinvocationPolicy="IfNeeded"), world.hook("second", allow)
    )
    async with world.api() as api:
        await api.make(widget())
    assert world.order == ["first", "second"]


async def test_validating_webhooks_are_asked_at_once(world: World) -> None:
    await world.validating(*(world.hook(name, lambda review: deny(review, message=review["request"]["uid"])) for name in "abc"))
    for each in world.hooks.values():
        each.seconds = 1.5
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
    assert answer.json["message"].startswith('admission webhook "a.example.test" denied')
    began = [hook.times[0][0] for hook in world.hooks.values()]
    ended = [hook.times[0][1] for hook in world.hooks.values()]
    assert max(began) < min(ended)


async def test_a_refusal_may_choose_its_status(world: World) -> None:
    status: Json = {}
    await world.validating(world.hook("deny", lambda review: deny(review, **status)))
    async with world.api() as api:
        status |= {"code": 429, "reason": "TooManyRequests", "message": "later", "details": {"retryAfterSeconds": 7, "kind": "x"}}
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["code"], answer.json["reason"]) == (429, 429, "TooManyRequests")
        assert (answer.headers["Retry-After"], answer.json["details"]["kind"]) == ("7", "x")
        for code in (418, 599, 999):
            status.clear()
            status |= {"code": code}
            assert (await api.call("POST", "", widget())).code == code
        status.clear()
        status |= {"code": 200, "status": "Success", "reason": "Teapot"}
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["status"]) == (400, "Failure")
        assert answer.json["message"] == 'admission webhook "deny.example.test" denied the request: Teapot'
        status.clear()
        answer = await api.call("POST", "", widget())
        assert answer.json["message"] == 'admission webhook "deny.example.test" denied the request without explanation'


async def test_warnings_reach_the_client(world: World) -> None:
    await world.mutating(world.hook("m", lambda review: allow(review, warnings=["think again"])))
    await world.validating(world.hook("v", lambda review: deny(review) | {"x": 1}))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert answer.headers.getall("Warning") == ['299 - "think again"']
        assert answer.code == 400


async def test_deletions_are_seen_one_by_one(world: World) -> None:
    await world.mutating(world.hook("m"))
    await world.validating(world.hook("v", only_creates))
    async with world.api() as api:
        for name in ("w1", "w2"):
            await api.make(widget(name))
        answer = await api.call("DELETE", "w1", {"propagationPolicy": "Background"})
        assert (answer.code, answer.json["message"]) == (400, 'admission webhook "v.example.test" denied the request: it stays')
        request = world.hooks["v"].requests[-1]
        assert (request["operation"], request["object"], request["oldObject"]["metadata"]["name"]) == ("DELETE", None, "w1")
        assert request["options"] == {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        assert world.hooks["m"].requests[-1]["operation"] == "DELETE"
        assert (await api.call("DELETE", "")).code == 400
        assert len((await api.get()).json["items"]) == 2
        world.hooks["v"].reply = allow
        before = len(world.hooks["v"].reviews)
        assert (await api.call("DELETE", "")).code == 200
        assert [each["name"] for each in world.hooks["v"].requests[before:]] == ["w1", "w2"]


async def test_a_patch_of_a_deletion_is_an_error(world: World) -> None:
    await world.mutating(world.hook("m"))
    async with world.api() as api:
        await api.make(widget())
        world.hooks["m"].reply = lambda review: patch(review, {"op": "add", "path": "/metadata/labels", "value": {}})
        answer = await api.call("DELETE", "w1")
        assert (answer.code, answer.json["message"]) == (
            500,
            'Internal error occurred: admission webhook "m.example.test" attempted to modify the object, '
            "which is not supported for this operation",
        )


async def test_a_stream_is_refused_before_its_upgrade(world: World) -> None:
    await world.validating(world.hook("v", only_creates))
    async with world.api() as api:
        await api.make(widget())
        async with api.session.get(f"{api.url}{api.path}/w1/tap", headers=UPGRADE) as answer:
            assert (answer.status, (await answer.json())["message"]) == (
                400,
                'admission webhook "v.example.test" denied the request: it stays',
            )
    request = world.hooks["v"].requests[-1]
    assert (request["operation"], request["subResource"], request["requestSubResource"]) == ("CONNECT", "tap", "tap")
    assert (request["name"], request["oldObject"], request["options"]) == ("w1", None, None)


async def test_updates_of_all_kinds_are_updates(world: World) -> None:
    await world.validating(world.hook("v"))
    async with world.api() as api:
        made = await api.make(widget())
        assert (await api.call("PUT", "w1", made | {"spec": {"size": 2}})).code == 200
        assert (await api.patch("w1", {"spec": {"size": 3}})).code == 200
        assert (await api.patch("w1/status", {"status": {"phase": "On"}})).code == 200
        assert (await api.call("PUT", "w1/paint", {})).code == 200
    seen = [(each["operation"], each.get("subResource"), each["options"]["kind"]) for each in world.hooks["v"].requests]
    assert seen == [
        ("CREATE", None, "CreateOptions"),
        ("UPDATE", None, "UpdateOptions"),
        ("UPDATE", None, "UpdateOptions"),
        ("UPDATE", "status", "UpdateOptions"),
        ("UPDATE", "paint", "UpdateOptions"),
    ]
    sizes = [(each["oldObject"]["spec"]["size"], each["object"]["spec"]["size"]) for each in world.hooks["v"].requests[1:3]]
    assert sizes == [(1, 2), (2, 3)]


async def test_dry_runs_call_only_webhooks_without_side_effects(world: World) -> None:
    await world.mutating(world.hook("safe", sideEffects="NoneOnDryRun"))
    await world.validating(world.hook("unsafe", sideEffects="Some", failurePolicy="Ignore"))
    async with world.api() as api:
        answer = await api.call("POST", "?dryRun=All", widget())
        assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
        assert answer.json["message"] == 'admission webhook "unsafe.example.test" does not support dry run'
        assert (world.hooks["safe"].requests[0]["dryRun"], world.hooks["unsafe"].reviews) == (True, [])
        assert world.hooks["safe"].requests[0]["options"]["dryRun"] == ["All"]
        assert (await api.get("w1")).code == 404
        assert (await api.call("POST", "", widget())).code == 201
        assert (await api.call("DELETE", "w1?dryRun=All")).code == 400


async def test_selectors_choose(world: World) -> None:
    await world.validating(
        world.hook("team", namespaceSelector={"matchLabels": {"team": "a"}}),
        world.hook("red", objectSelector={"matchExpressions": [{"key": "color", "operator": "In", "values": ["red"]}]}),
    )
    async with world.api() as api:
        await api.make(widget())
        assert (await api.call("POST", WIDGETS.path("other"), widget())).code == 201
        assert world.order == ["team"]
        world.order.clear()
        other = f"{WIDGETS.path('other')}/w1"
        for labels in ({"color": "red"}, {"color": None}, {"size": "x"}):
            assert (await api.patch(other, {"metadata": {"labels": labels}})).code == 200
        assert world.order == ["red", "red"]
        await world.kube.edit(NAMESPACES, "", "other", lambda obj: obj["metadata"].update(labels={"team": "a"}))
        async with asyncio.timeout(30):
            while "team" not in world.order:
                await api.patch(other, {"metadata": {"annotations": {"n": str(len(world.order))}}})
                await asyncio.sleep(0.01)


async def test_equivalent_versions_match_and_are_converted(world: World) -> None:
    old = RULE | {"apiVersions": [OLD_WIDGETS.version]}

    def stretch(review: Json) -> Json:
        return patch(review, {"op": "replace", "path": "/spec/extent", "value": review["request"]["object"]["spec"]["extent"] + 1})

    await world.mutating(world.hook("equivalent", stretch, rules=[old]), world.hook("exact", rules=[old], matchPolicy="Exact"))
    async with world.api(versions=True) as api:
        made = await api.make(widget(size=4))
        assert (made["apiVersion"], made["spec"]) == (WIDGETS.api_version, {"size": 5})
        assert world.order == ["equivalent"]
        (request,) = world.hooks["equivalent"].requests
        assert (request["kind"]["version"], request["resource"]["version"]) == (OLD_WIDGETS.version, OLD_WIDGETS.version)
        assert (request["requestKind"]["version"], request["requestResource"]["version"]) == (WIDGETS.version, WIDGETS.version)
        assert request["object"]["apiVersion"] == OLD_WIDGETS.api_version
        path = f"{OLD_WIDGETS.path('acc')}/w1"
        assert (await api.patch(path, {"spec": {"extent": 7}})).json["spec"]["extent"] == 8
        assert world.order == ["equivalent", "equivalent", "exact"]


async def test_webhooks_result_must_match_the_version_it_was_shown(world: World) -> None:
    old = RULE | {"apiVersions": [OLD_WIDGETS.version], "resources": ["widgets", "widgets/scale"]}
    operations: list[Json] = [{"op": "add", "path": "/spec/extent", "value": "x"}]
    await world.mutating(world.hook("m", lambda review: patch(review, *operations), rules=[old]))
    async with world.api(versions=True) as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["reason"]) == (500, "InternalError")
        assert "admission changed an object of example.test/v1beta1 into an invalid one: spec.extent" in answer.json["message"]
        operations[:] = [{"op": "add", "path": "/spec/size", "value": 9}, {"op": "add", "path": "/spec/extent", "value": 2}]
        assert (await api.make(widget(color="green")))["spec"] == {"size": 2, "color": "green"}
        operations[:] = [{"op": "replace", "path": "/spec/replicas", "value": 5}]
        assert (await api.patch("w1/scale", {"spec": {"replicas": 4}})).json["spec"] == {"replicas": 5}
        (*_, request) = world.hooks["m"].requests
        assert (request["object"]["kind"], request["resource"]["version"], request["requestResource"]["version"]) == (
            "Scale",
            "v1beta1",
            "v1",
        )


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda review: allow(review) | {"response": {"uid": "other", "allowed": True}}, 'expected response.uid="UID", got "other"'),
        (lambda _: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, "webhook response was absent"),
        (
            lambda review: {"response": {"uid": review["request"]["uid"], "allowed": True}},
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (lambda review: allow(review, patch="e30="), "validating webhook may not return response.patch"),
        (lambda review: allow(review, patchType="JSONPatch"), "validating webhook may not return response.patchType"),
        (lambda review: allow(review, warnings="x"), "response.warnings must be a list of strings"),
        (lambda review: deny(review, code="x"), "code in the response must be of type int"),
        (lambda _: web.Response(text="<html>"), "the response is not valid JSON"),
        (lambda _: web.Response(text="[]", content_type="application/json"), "webhook response was absent"),
    ],
    ids=["uid", "no response", "no kind", "patch", "patch type", "warnings", "status", "no JSON", "a list"],
)
async def test_an_answer_that_is_none_fails_the_call(world: World, reply: Any, message: str) -> None:
    await world.validating(world.hook("v", reply))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        uid = world.hooks["v"].requests[0]["uid"]
        text = f'failed calling webhook "v.example.test": received invalid webhook response: {message.replace("UID", uid)}'
        assert (answer.code, answer.json["reason"]) == (500, "InternalError")
        assert answer.json["message"] == f"Internal error occurred: {text}"
        assert answer.json["details"]["causes"] == [{"message": text}]
    await world.validating(world.hook("v", reply, failurePolicy="Ignore"))
    async with world.api() as api:
        await api.make(widget())


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda review: allow(review, patch="W10="), "webhook returned response.patch but not response.patchType"),
        (lambda review: allow(review, patchType="JSONPatch"), "webhook returned response.patchType but not response.patch"),
        (lambda review: allow(review, patchType="JSONPatch", patch="%"), "response.patch is not valid base64"),
    ],
)
async def test_a_patch_needs_its_type(world: World, reply: Any, message: str) -> None:
    await world.mutating(world.hook("m", reply))
    async with world.api() as api:
        assert message in (await api.call("POST", "", widget())).json["message"]


async def test_unappliable_patch_fails_under_every_failure_policy(world: World) -> None:
    """Also an unknown operation. A patch that is not a list follows the failurePolicy."""
    world_hook = world.hook("m", failurePolicy="Ignore")
    await world.mutating(world_hook)
    async with world.api() as api:
        world.hooks["m"].reply = lambda review: patch(review, {"op": "test", "path": "/spec/size", "value": 99})
        assert (await api.call("POST", "", widget())).code == 500
        world.hooks["m"].reply = lambda review: patch(review, {"op": "conjure", "path": "/spec/size"})
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["message"]) == (500, "Internal error occurred: Unexpected kind: conjure")
        world.hooks["m"].reply = lambda review: allow(review, patchType="JSONPatch", patch="e30=")
        assert (await api.call("POST", "", widget())).code == 201


async def test_error_names_the_webhook_that_set_a_wrong_type(world: World) -> None:
    await world.mutating(world.hook("m", lambda review: patch(review, {"op": "replace", "path": "/spec/size", "value": "large"})))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["reason"]) == (500, "InternalError")
        assert 'admission webhook "m.example.test" made the object invalid' in answer.json["message"]
        assert "spec.size" in answer.json["message"]


async def test_a_webhook_that_does_not_answer_in_time(world: World) -> None:
    await world.validating(world.hook("slow", timeoutSeconds=1))
    world.hooks["slow"].seconds = 5
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        url = f"https://127.0.0.1:{world.port}/slow?timeout=1s"
        assert answer.json["message"] == (
            f'Internal error occurred: failed calling webhook "slow.example.test": failed to call webhook: Post "{url}": '
            "context deadline exceeded"
        )


async def test_webhooks_that_cannot_be_reached_follow_their_policy(world: World, pki: Pki) -> None:
    untrusted = world.hook("x")["clientConfig"] | {"caBundle": ""}
    cases: list[tuple[Json, Any, str]] = [
        ({"url": "https://127.0.0.1:9/x", "caBundle": world.bundle}, allow, "dial tcp 127.0.0.1:9: connect: connection refused"),
        ({"service": {"name": "nope", "namespace": "acc"}}, allow, 'Post "https://nope.acc.svc:443/?timeout=10s": dial tcp: lookup nope'),
        (untrusted, allow, "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        ({"url": f"http://127.0.0.1:{world.port}/x"}, allow, "a webhook's URL must begin with https://"),
        ({"url": f"https://127.0.0.1:{world.port}/x", "caBundle": "bm90IGEgcGVt"}, allow, "could not get REST client"),
        ({}, lambda _: web.Response(status=307, headers={"Location": "/elsewhere"}), "redirect (307), which is not followed"),
        ({}, lambda _: web.Response(body=b"x" * (9 << 20)), "the response is longer than 8388608 bytes"),
        ({}, lambda _: web.Response(status=500, text="boom"), 'an error on the server ("boom") has prevented the request from succeeding'),
        ({}, lambda _: web.Response(status=404), "failed to call webhook: the server could not find the requested resource"),
    ]
    for config, reply, message in cases:
        hook = world.hook("x", reply)
        hook["clientConfig"] = config or hook["clientConfig"]
        await world.validating(hook)
        async with world.api() as api:
            answer = await api.call("POST", "", widget())
            assert (answer.code, message in answer.json["message"]) == (500, True), (message, answer.json["message"])
    await world.validating(world.hook("x", lambda _: web.Response(status=500), failurePolicy="Ignore"))
    async with world.api() as api:
        await api.make(widget())


async def test_a_server_may_ask_for_another_try(world: World) -> None:
    await world.validating(world.hook("v"))

    def second(review: Json) -> Json | web.Response:
        again = len(world.hooks["v"].reviews) > 1
        return allow(review) if again else web.Response(status=503, headers={"Retry-After": "0"})

    world.hooks["v"].reply = second
    async with world.api() as api:
        await api.make(widget())
    assert len(world.hooks["v"].reviews) == 2


async def test_old_webhooks_are_spoken_to_in_v1beta1(world: World) -> None:
    def old(review: Json) -> Json:
        answer = label(review, "old", "yes")
        return {"response": {key: value for key, value in answer["response"].items() if key not in ("uid", "patchType")}}

    await world.mutating(world.hook("m", old, admissionReviewVersions=["v9", "v1beta1", "v1"]))
    await world.validating(world.hook("v", admissionReviewVersions=["v9"]))
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert "webhook does not accept known AdmissionReview versions (v1, v1beta1)" in answer.json["message"]
        await world.kube.remove(VALIDATING, "", "validating")
        async with asyncio.timeout(30):
            while (answer := await api.call("POST", "", widget())).code != 201:
                await asyncio.sleep(0.01)
        assert answer.json["metadata"]["labels"] == {"old": "yes"}
    assert world.hooks["m"].reviews[0]["apiVersion"] == "admission.k8s.io/v1beta1"


async def test_a_change_of_a_configuration_counts_at_once(world: World) -> None:
    async with world.api() as api:
        await api.make(widget())
        await world.validating(world.hook("deny", no_means))
        async with asyncio.timeout(30):
            while (await api.patch("w1", {"metadata": {"annotations": {"n": str(len(world.order))}}})).code != 400:
                await asyncio.sleep(0.01)
        await world.kube.remove(VALIDATING, "", "validating")
        async with asyncio.timeout(30):
            while (await api.patch("w1", {"spec": {"size": 2}})).code != 200:
                await asyncio.sleep(0.01)


async def test_unknown_configurations_admit_nothing(world: World) -> None:
    world.kube.authorize = lambda _, path, __: not path.startswith(VALIDATING)
    async with world.api(ready=False) as api:
        for _ in range(3):
            answer = await api.call("POST", "", widget())
            assert (answer.code, answer.json["reason"]) == (503, "ServiceUnavailable")
            await asyncio.sleep(0.05)
        assert (await api.get("/readyz")).code == 500


async def test_plugins_can_be_turned_off(world: World) -> None:
    await world.validating(world.hook("deny", no_means))
    async with world.api("--disable-admission-plugins=ValidatingAdmissionWebhook") as api:
        await api.make(widget())
        assert (await api.call("POST", WIDGETS.path("nope"), widget())).code == 404
    async with world.api("--disable-admission-plugins=NamespaceLifecycle") as api:
        answer = await api.call("POST", WIDGETS.path("nope"), widget())
        assert "no means no" in answer.json["message"]


async def test_metrics_have_gos_names(world: World) -> None:
    await world.mutating(world.hook("m", failurePolicy="Ignore", clientConfig={"url": "https://127.0.0.1:9/"}))
    await world.validating(world.hook("v", lambda review: deny(review, code=403)))
    async with world.api() as api:
        await api.call("POST", "", widget())
        page = (await api.get("/metrics")).body.decode()
    for line in (
        'apiserver_admission_webhook_rejection_count{name="v.example.test",type="validating",operation="CREATE",error_type="no_error",'
        'rejection_code="403"} 1',
        'apiserver_admission_webhook_fail_open_count{name="m.example.test",type="admit"} 1',
        'apiserver_admission_webhook_request_total{name="m.example.test",type="admit",operation="CREATE",code="503",rejected="false"} 1',
        'apiserver_admission_webhook_admission_duration_seconds_count{name="v.example.test",type="validating",operation="CREATE",'
        'rejected="true"} 1',
        'apiserver_admission_step_admission_duration_seconds_count{type="admit",operation="CREATE",rejected="false"} 1',
        'apiserver_admission_step_admission_duration_seconds_summary_count{type="validate",operation="CREATE",rejected="true"} 1',
        'apiserver_admission_controller_admission_duration_seconds_count{name="NamespaceLifecycle",type="admit",operation="CREATE",'
        'rejected="false"} 1',
    ):
        assert line in page


async def test_a_service_is_called_by_its_name_in_the_cluster(world: World) -> None:
    hook = world.hook("v")
    hook["clientConfig"] = {"service": {"name": "hooks", "namespace": "acc", "port": 8443, "path": "/v"}, "caBundle": world.bundle}
    await world.validating(hook)
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert 'Post "https://hooks.acc.svc:8443/v?timeout=10s"' in answer.json["message"]


async def test_webhook_is_called_once_per_change(world: World) -> None:
    await world.validating(world.hook("v", only_creates))
    async with world.api() as api:
        await api.make(widget())
        hook = world.hooks["v"]
        assert (await api.patch("w1", {"spec": {"size": 2}})).code == 400
        assert (await api.call("DELETE", "w1")).code == 400
        assert len(hook.reviews) == 3
        hook.reply = allow
        assert (await api.patch("w1?dryRun=All", {"spec": {"size": 2}})).code == 200
        assert (await api.patch("w1", {"spec": {"size": 1}})).code == 200
        assert len(hook.reviews) == 5


async def test_match_conditions_leave_requests_out(world: World) -> None:
    user = {"name": "user", "expression": "request.userInfo.username == 'developer'"}
    big = {"name": "big", "expression": "object.spec.size > 5"}
    wrong = {"name": "wrong", "expression": "object.spec.nope == 1"}
    await world.validating(
        world.hook("big", no_means, matchConditions=[user, big]),
        world.hook("false", no_means, matchConditions=[wrong, big, {"name": "no", "expression": "false"}]),
        world.hook("open", no_means, matchConditions=[wrong], failurePolicy="Ignore"),
        world.hook("closed", matchConditions=[wrong, user], objectSelector={"matchLabels": {"closed": "yes"}}),
    )
    async with world.api() as api:
        await api.make(widget(size=5))
        assert world.order == []
        answer = await api.call("POST", "", widget("w2", size=6))
        assert answer.json["message"] == 'admission webhook "big.example.test" denied the request: no means no'
        closed = widget("w3", size=1)
        closed["metadata"]["labels"] = {"closed": "yes"}
        answer = await api.call("POST", "", closed)
        assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
        assert answer.json["message"] == (
            "widgets.example.test \"w3\" is forbidden: expression 'object.spec.nope == 1' resulted in error: no such key: nope"
        )
        page = (await api.get("/metrics")).body.decode()
    about = 'name="big.example.test",kind="webhook",type="validating",operation="CREATE"'
    assert f"apiserver_admission_match_condition_exclusions_total{{{about}}} 2" in page
    assert f"apiserver_admission_match_condition_evaluation_seconds_count{{{about}}} 3" in page
    about = about.replace("big.", "closed.")
    assert f"apiserver_admission_match_condition_evaluation_errors_total{{{about}}} 1" in page


def answered(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    lines = [vars(each) for each in caplog.records if each.name == "apiserver.endpoints.filters.accounting"]
    return [each for each in lines if each["verb"] in ("create", "update")]


async def test_webhook_audit_annotations_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def speak(review: Json) -> Json:
        answer = label(review, "a", "b")
        if review["request"]["operation"] == "CREATE":
            answer["response"]["auditAnnotations"] = {"said": "yes", "not a name": "x", "too/many": "x"}
        return answer

    await world.mutating(world.hook("m", speak))
    failing = {"rules": [{**RULE, "operations": ["CREATE"]}], "failurePolicy": "Ignore"}
    await world.validating(world.hook("v", lambda _: web.Response(status=500), **failing))
    async with world.api() as api:
        made = await api.make(widget())
        assert (await api.call("PUT", "w1", made | {"spec": {"size": 2}})).code == 200
    (created,) = answered(caplog)
    place = "round_0_index_0"
    noted = {"m.example.test/said": "yes", f"failed-open.validating.webhook.admission.k8s.io/{place}": "v.example.test"}
    assert (created["verb"], created["annotations"]) == ("create", noted)


async def test_slow_webhooks_are_named_where_a_request_was_slow(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await world.mutating(world.hook("m"))
    await world.validating(world.hook("v"))
    world.hooks["m"].seconds, world.hooks["v"].seconds = 0.4, 0.2
    async with world.api() as api:
        await api.make(widget())
    (line,) = answered(caplog)
    waited = line["waited_milliseconds"]
    assert [400 <= waited["mutating-webhook"] < 5000, 200 <= waited["validating-webhook"] < 5000] == [True, True]


async def test_charts_rights_suffice_for_admission(world: World) -> None:
    granted = rbac.authorizer("virt-api")
    discovery = re.compile("/apis?(/[^/]+){0,2}/?")
    world.kube.authorize = lambda method, path, query: bool(discovery.fullmatch(path)) or granted(method, path, query)
    await world.validating(world.hook("v", no_means, namespaceSelector={"matchLabels": {"team": "a"}}))
    async with world.api() as api:
        assert "no means no" in (await api.call("POST", "", widget())).json["message"]
        assert (await api.call("POST", WIDGETS.path("nope"), widget())).code == 404
        assert (await api.call("POST", WIDGETS.path("other"), widget())).code == 201
    assert world.kube.forbidden == []


async def test_managed_fields_that_a_webhook_breaks_are_put_back(world: World) -> None:
    broken: list[Any] = []
    await world.mutating(
        world.hook("m", lambda review: patch(review, {"op": "add", "path": "/metadata/managedFields", "value": broken}))
    )  # fmt: skip
    async with world.api() as api:
        for number, (entry, why) in enumerate(
            (
                ({"operation": "Guess"}, "operation must be `Apply` or `Update`"),
                ({"operation": "Update", "apiVersion": "v1", "fieldsType": "X"}, 'invalid fieldsType "X" in managed fields entry 0'),
            )
        ):
            broken[:] = [entry]
            answer = await api.call("POST", "?fieldManager=me", widget(f"w{number}"))
            assert answer.code == 201, answer.body
            assert [each["manager"] for each in answer.json["metadata"]["managedFields"]] == ["me"]
            (warning,) = answer.headers.getall("Warning")
            assert ".metadata.managedFields was in an invalid state after admission" in warning
            assert why.replace('"', '\\"')[:20] in warning


async def test_applying_is_a_creation_or_an_update(world: World) -> None:
    await world.validating(world.hook("v"))
    async with world.api() as api:
        for color, expected in (("red", 201), ("green", 200)):
            body = json.dumps(widget(color=color)).encode()
            answer = await api.call("PATCH", "w1?fieldManager=me&force=true", body, Content_Type="application/apply-patch+yaml")
            assert answer.code == expected, answer.body
    options = {"apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    assert [(each["operation"], each["options"]) for each in world.hooks["v"].requests] == [
        ("CREATE", options | {"kind": "CreateOptions"}),
        ("UPDATE", options | {"kind": "UpdateOptions"}),
    ]


async def test_scaling_shows_the_scale(world: World) -> None:
    def limit(review: Json) -> Json:
        if review["request"]["operation"] != "UPDATE":
            return allow(review)
        return patch(review, {"op": "replace", "path": "/spec/replicas", "value": 3})

    rule = RULE | {"resources": ["widgets/scale"]}
    await world.mutating(world.hook("m", limit, rules=[rule]))
    async with world.api() as api:
        await api.make(widget())
        answer = await api.patch("w1/scale", {"spec": {"replicas": 9}})
        assert (answer.code, answer.json["spec"]["replicas"]) == (200, 3)
    (request,) = world.hooks["m"].requests
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (request["kind"], request["requestKind"], request["subResource"]) == (scale, scale, "scale")
    assert (request["resource"]["resource"], request["object"]["spec"]["replicas"]) == ("widgets", 9)


async def test_request_past_its_timeout_does_not_wait_for_a_webhook(world: World) -> None:
    await world.validating(world.hook("slow", failurePolicy="Ignore"))
    world.hooks["slow"].seconds = 5
    async with world.api() as api:
        answer = await api.call("POST", "?timeout=1s", widget())
        assert (answer.code, answer.json["reason"]) == (504, "Timeout")
        assert (await api.get("w1")).code == 404


async def test_while_a_server_starts_nothing_gets_past_a_webhook(world: World) -> None:
    await world.validating(world.hook("deny", no_means))
    for number in range(3):
        async with world.api(ready=False) as api:
            codes = set()
            while 400 not in codes:
                codes.add((await api.call("POST", "", widget(f"w{number}"))).code)
            assert codes <= {400, 503}
