from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from apiserver.admission.chain import Chain, Plugin
from apiserver.admission.changes import Changes
from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.namespaces import Namespaces
from apiserver.admission.webhook.calling import Caller
from apiserver.admission.webhook.conditions import ConditionsFailed, Matcher
from apiserver.admission.webhook.errors import CallFailed
from apiserver.admission.webhook.mutating import MutatingWebhooks
from apiserver.admission.webhook.plugin import WebhookDispatcher
from apiserver.admission.webhook.registrations import Expression, Webhook
from apiserver.admission.webhook.review import VersionedAttributes
from apiserver.admission.webhook.source import Source
from apiserver.admission.webhook.validating import ValidatingWebhooks
from apiserver.apis.meta.errors import Forbidden, InternalError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.store import Callback, Store
from apiserver.registry.generic.admission import Attributes, Operation
from tests.fakes.admission import asking
from tests.fakes.versions import OneVersion

THINGS = Resource("g.test", "v1", "things", "Thing")
Reply = Callable[[Object], Object]


class _Informer:
    def __init__(self, *objects: Object, synced: bool = True) -> None:
        self.store = Store({})
        list(self.store.replace_in_steps(objects, "1"))
        self.synced = asyncio.Event()
        if synced:
            self.synced.set()

    def subscribe(self, callback: Callback) -> None:
        self.store.subscribe(callback)


class _Namespaces:
    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        self.asked: list[str] = []

    async def get(self, name: str) -> Object:
        self.asked.append(name)
        return {"metadata": {"name": name, "labels": {"team": "a"}}}


class _Unknown:
    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._failures = [f"{each.name}: expressions cannot be evaluated here" for each in expressions]

    async def hold(self, versioned: VersionedAttributes) -> bool:
        raise ConditionsFailed(self._failures)


def _nothing(request: Object) -> Object:
    return {}


class _Caller:
    def __init__(self, replies: dict[str, Reply]) -> None:
        self.replies = replies
        self.asked: list[str] = []

    async def call(self, webhook: Webhook, body: bytes) -> bytes:
        self.asked.append(webhook.name)
        request = json.loads(body)["request"]
        reply = self.replies.get(webhook.name, _nothing)(request)
        response = {"uid": request["uid"], "allowed": True} | reply
        return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


def hook(name: str, **more: Any) -> Object:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    given = {"name": name, "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return given | {"clientConfig": {"url": "https://x"}} | more


def dispatcher(
    type_: Any, replies: dict[str, Reply], *hooks: Object, synced: bool = True
) -> tuple[WebhookDispatcher, _Caller, _Namespaces]:
    configuration = {"metadata": {"name": "c", "uid": "c", "resourceVersion": "1"}, "webhooks": list(hooks)}
    metrics, caller, namespaces = AdmissionMetrics(), _Caller(replies), _Namespaces()
    source = Source(cast(Informer, _Informer(configuration, synced=synced)), OneVersion())
    matcher = Matcher(_Unknown, metrics, type_)
    made = WebhookDispatcher(type_, source, cast(Namespaces, namespaces), OneVersion(), matcher, cast(Caller, caller), metrics)
    return made, caller, namespaces


def created() -> Attributes:
    obj = {"apiVersion": "g.test/v1", "kind": "Thing", "metadata": {"name": "t", "labels": {}}}
    return asking("CREATE", THINGS, "", "ns", "t", obj=obj)


def labels(key: str) -> Reply:
    def reply(request: Object) -> Object:
        value = str(int(request["object"]["metadata"]["labels"].get(key, "0")) + 1)
        patch = [{"op": "add", "path": f"/metadata/labels/{key}", "value": value}]
        return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}

    return reply


class Stamper:
    name = "Stamper"

    def __init__(self, *, second: bool) -> None:
        self._second = second

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        return True

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        if attributes.reinvocation.again or not self._second:
            attributes.obj["metadata"]["labels"]["stamped"] = "yes"

    async def validate(self, attributes: Attributes) -> None:
        raise AssertionError("it only mutates")


def chain(*mutating: Plugin) -> Chain:
    return Chain(mutating=mutating, validating=(), metrics=AdmissionMetrics(), changes=Changes())


@pytest.mark.parametrize("plugin", [MutatingWebhooks, ValidatingWebhooks])
async def test_nothing_is_admitted_before_the_webhooks_are_known(plugin: type[MutatingWebhooks | ValidatingWebhooks]) -> None:
    made, _, _ = dispatcher("admit", {}, synced=False)
    webhooks = plugin(dataclasses.replace(made, ready_seconds=0.01))
    assert webhooks.handles("CREATE", THINGS, "")
    with pytest.raises(Forbidden, match=r'things\.g\.test "t" is forbidden: not yet ready to handle request'):
        await (webhooks.mutate if isinstance(webhooks, MutatingWebhooks) else webhooks.validate)(created())
    made.source.synced.set()
    assert not webhooks.handles("CREATE", THINGS, "")


async def test_plugin_change_in_second_round_reinvokes_webhooks() -> None:
    made, caller, _ = dispatcher("admit", {"a": labels("a")}, hook("a", reinvocationPolicy="IfNeeded"), hook("b"))
    attributes = created()
    await chain(Stamper(second=True), MutatingWebhooks(made)).mutate(attributes)
    assert caller.asked == ["a", "b", "a"]
    assert attributes.obj is not None
    assert attributes.obj["metadata"]["labels"] == {"a": "2", "stamped": "yes"}


async def test_unchanged_second_round_calls_no_webhook() -> None:
    made, caller, _ = dispatcher("admit", {"a": labels("a")}, hook("a", reinvocationPolicy="IfNeeded"))
    await chain(Stamper(second=False), MutatingWebhooks(made)).mutate(created())
    assert caller.asked == ["a"]


async def test_labels_of_a_namespace_are_looked_up_only_for_selectors() -> None:
    made, caller, namespaces = dispatcher(
        "validating", {}, hook("all"), hook("team", namespaceSelector={"matchLabels": {"team": "a"}}),
        hook("other", namespaceSelector={"matchLabels": {"team": "b"}}, objectSelector={"matchLabels": {"x": "y"}}),
    )  # fmt: skip
    await ValidatingWebhooks(made).validate(created())
    assert (sorted(caller.asked), namespaces.asked) == (["all", "team"], ["ns", "ns"])


async def test_unreadable_selector_refuses_requests_that_match_rules() -> None:
    made, _, _ = dispatcher("validating", {}, hook("a", objectSelector={"matchExpressions": [{"key": "k", "operator": "Like"}]}))
    with pytest.raises(InternalError, match="Internal error occurred: cannot parse a label selector"):
        await ValidatingWebhooks(made).validate(created())


async def test_unevaluable_match_conditions_follow_failure_policy() -> None:
    conditions = [{"name": "c", "expression": "true"}]
    made, caller, _ = dispatcher("validating", {}, hook("open", matchConditions=conditions, failurePolicy="Ignore"))
    await ValidatingWebhooks(made).validate(created())
    assert caller.asked == []
    made, _, _ = dispatcher("validating", {}, hook("closed", matchConditions=conditions))
    with pytest.raises(Forbidden, match="expressions cannot be evaluated here"):
        await ValidatingWebhooks(made).validate(created())


async def test_cancelling_a_request_cancels_its_calls() -> None:
    made, caller, _ = dispatcher("validating", {}, hook("a"), hook("b"))
    ended: list[str] = []

    async def hang(webhook: Webhook, body: bytes) -> bytes:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(webhook.name)
        raise CallFailed(webhook.name, "late", 503)

    caller.call = hang  # type: ignore[method-assign]  # a caller that hangs
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ValidatingWebhooks(made).validate(created())
    assert sorted(ended) == ["a", "b"]
