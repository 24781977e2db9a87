from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apiserver.admission.policy import definitions
from apiserver.admission.policy.definitions import Binding, ParamKind, Policy
from apiserver.admission.policy.params import ConfigurationError, Params
from apiserver.client.rest import Client
from tests.fakes.kubeapi import FakeAPI

RULES = "/apis/toys.test/v1/rules"
SCOPES = "/apis/toys.test/v1/scopes"
RULE = ParamKind("toys.test/v1", "Rule")
SCOPE = ParamKind("toys.test/v1", "Scope")


def policy(kind: ParamKind | None) -> Policy:
    given = {"apiVersion": kind.api_version, "kind": kind.kind} if kind else None
    return definitions.policy({"metadata": {"name": "p"}, "spec": {"paramKind": given} if given else {}})


def binding(**ref: Any) -> Binding:
    return definitions.binding({"metadata": {"name": "b"}, "spec": {"policyName": "p", **({"paramRef": ref} if ref else {})}})


@asynccontextmanager
async def following(kube: FakeAPI, sync_seconds: float = 1.0) -> AsyncIterator[Params]:
    kube.discovery["/apis/toys.test/v1"] = [
        {"name": "rules", "kind": "Rule", "namespaced": True},
        {"name": "rules/status", "kind": "Rule", "namespaced": True},
        {"name": "scopes", "kind": "Scope", "namespaced": False},
    ]
    async with kube.serving() as config, Client(config, user_agent="test") as client:
        params = Params(client, sync_seconds)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(params.run())
            yield params
            running.cancel()


def names(found: Any) -> list[str]:
    return sorted(each["metadata"]["name"] for each in found)


async def test_parameters_are_found_by_name_or_selector() -> None:
    kube = FakeAPI()
    for namespace, name, labels in (("a", "x", {"use": "yes"}), ("a", "y", {}), ("b", "x", {"use": "yes"})):
        await kube.put(RULES, {"metadata": {"namespace": namespace, "name": name, "labels": labels}})
    async with following(kube) as params:
        params.want({RULE})
        assert names(await params.of(policy(RULE), binding(name="x"), "a")) == ["x"]
        assert names(await params.of(policy(RULE), binding(name="y", namespace="a"), "b")) == ["y"]
        assert names(await params.of(policy(RULE), binding(selector={}), "a")) == ["x", "y"]
        assert names(await params.of(policy(RULE), binding(selector={"matchLabels": {"use": "yes"}}), "a")) == ["x"]
        assert await params.of(policy(RULE), binding(name="none"), "a") == []
        assert await params.of(policy(RULE), binding(), "a") == [None]
        assert await params.of(policy(None), binding(name="x"), "a") == [None]
        with pytest.raises(ConfigurationError, match="no params found for policy binding with `Deny` parameterNotFoundAction"):
            await params.of(policy(RULE), binding(name="none", parameterNotFoundAction="Deny"), "a")
        with pytest.raises(ConfigurationError, match="cannot use namespaced paramRef in policy binding that matches cluster-scoped"):
            await params.of(policy(RULE), binding(name="x"), "")


async def test_parameters_of_the_cluster_are_in_no_namespace() -> None:
    kube = FakeAPI()
    await kube.put(SCOPES, {"metadata": {"name": "one"}})
    async with following(kube) as params:
        params.want({SCOPE})
        assert names(await params.of(policy(SCOPE), binding(name="one"), "a")) == ["one"]
        assert names(await params.of(policy(SCOPE), binding(selector={}), "a")) == ["one"]
        with pytest.raises(ConfigurationError, match=r"paramRef\.namespace must not be provided for a cluster-scoped `paramKind`"):
            await params.of(policy(SCOPE), binding(name="one", namespace="a"), "a")


async def test_unreadable_parameter_kind_fails_until_readable(caplog: pytest.LogCaptureFixture) -> None:
    kube = FakeAPI()
    await kube.put(RULES, {"metadata": {"namespace": "a", "name": "x"}})
    kube.authorize = lambda _method, path, _query: path != RULES
    async with following(kube, sync_seconds=0.05) as params:
        params.want({RULE})
        with pytest.raises(ConfigurationError) as raised:
            await params.of(policy(RULE), binding(name="x"), "a")
        assert str(raised.value) == "paramKind kind `&ParamKind{APIVersion:toys.test/v1,Kind:Rule,}` not yet synced to use for admission"
        assert "grant get, list and watch" in caplog.text
        kube.authorize = None
        async with asyncio.timeout(10):
            while True:
                try:
                    assert names(await params.of(policy(RULE), binding(name="x"), "a")) == ["x"]
                    break
                except ConfigurationError:
                    await asyncio.sleep(0.05)


async def test_unused_parameter_kind_is_not_followed() -> None:
    kube = FakeAPI()
    async with following(kube) as params:
        params.want({RULE, SCOPE})
        await params.of(policy(RULE), binding(selector={}), "a")
        await params.of(policy(SCOPE), binding(selector={}), "a")
        params.want({SCOPE})
        with pytest.raises(ConfigurationError, match=r"failed to find resource referenced by paramKind: 'toys\.test/v1, Kind=Rule'"):
            await params.of(policy(RULE), binding(selector={}), "a")
        kube.requests.clear()
        await kube.put(RULES, {"metadata": {"namespace": "a", "name": "x"}})
        params.want({RULE, SCOPE})
        assert names(await params.of(policy(RULE), binding(selector={}), "a")) == ["x"]
