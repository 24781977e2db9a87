"""Admission policies; reference: ``k8s.io/apiserver/pkg/admission/plugin/policy``."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.server.options import Times
from tests.component.apiserver import webhooks
from tests.component.apiserver.conftest import Pki
from tests.component.apiserver.webhooks import REGISTRATION, World
from tests.component.apiserver.widgets import OLD_WIDGETS, widget

Json = dict[str, Any]
CONFIG_MAPS = "/api/v1/configmaps"
RULES = [{"apiGroups": ["example.test"], "apiVersions": ["*"], "operations": ["*"], "resources": ["widgets", "widgets/*"]}]


@pytest.fixture
async def world(pki: Pki, tmp_path: Path) -> AsyncIterator[World]:
    async with webhooks.world(pki, tmp_path) as made:
        yield made


async def put(world: World, effect: str, spec: Json, *, name: str = "p", binding: Json | None = None) -> None:
    constraints = {"resourceRules": RULES, "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    given = {"matchConstraints": constraints, "failurePolicy": "Fail"} | spec
    bound: Json = {"policyName": name}
    if effect == "validating":
        bound["validationActions"] = ["Deny"]
    await world.kube.put(f"{REGISTRATION}/{effect}admissionpolicies", {"metadata": {"name": name}, "spec": given})
    bindings = f"{REGISTRATION}/{effect}admissionpolicybindings"
    await world.kube.put(bindings, {"metadata": {"name": f"b-{name}"}, "spec": bound | (binding or {})})


async def test_validating_policy_denies_false_expressions(world: World) -> None:
    await put(world, "validating", {"validations": [{"expression": "object.spec.size == 1"}]})
    async with world.api() as api:
        answer = await api.call("POST", "", widget(size=2))
        by = "ValidatingAdmissionPolicy 'p' with binding 'b-p' denied request: failed expression: object.spec.size == 1"
        message = f'widgets.example.test "w1" is forbidden: {by}'
        assert (answer.code, answer.json["reason"], answer.json["message"]) == (422, "Invalid", message)
        assert answer.json["details"] == {"name": "w1", "group": "example.test", "kind": "widgets", "causes": [{"message": by}]}
        assert (await api.get("w1")).code == 404
        await api.make(widget(size=1))
        answer = await api.patch("w1", {"spec": {"size": 7}})
        assert answer.code == 422
        assert (await api.get("w1")).json["spec"]["size"] == 1


@pytest.mark.parametrize(
    ("reason", "code"), [("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413), ("Invalid", 422)]
)  # fmt: skip
async def test_a_validation_says_its_reason_and_its_message(world: World, reason: str, code: int) -> None:
    validations = [
        {"expression": "object.spec.size < 5", "message": " too large ", "messageExpression": "'size is %d'.format([object.spec.size])"}
    ]
    await put(world, "validating", {"validations": [validations[0] | {"reason": reason}]})
    await put(
        world,
        "validating",
        {"validations": [{"expression": "object.spec.size < 9", "message": "far", "messageExpression": "object.no"}]},
        name="q",
    )
    async with world.api() as api:
        answer = await api.call("POST", "", widget(size=6))
        assert (answer.code, answer.json["reason"]) == (code, reason)
        assert answer.json["message"].endswith("denied request: size is 6")
        await world.kube.remove(f"{REGISTRATION}/validatingadmissionpolicies", "", "p")
        async with asyncio.timeout(30):
            while (answer := await api.call("POST", "", widget(size=10))).json["message"].endswith("size is 10"):
                await asyncio.sleep(0.02)
        assert answer.json["message"].endswith("'q' with binding 'b-q' denied request: far")


async def test_warn_and_audit_let_the_request_pass(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    spec = {
        "validations": [{"expression": "object.spec.size < 5", "message": "large"}],
        "auditAnnotations": [{"key": "size", "valueExpression": "string(object.spec.size)"}],
    }
    await put(world, "validating", spec, binding={"validationActions": ["Warn", "Audit"]})
    async with world.api() as api:
        answer = await api.call("POST", "", widget(size=6))
        assert answer.code == 201
        text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b-p': large"
        assert answer.headers["Warning"] == f'299 - "{text}"'
    (noted,) = [vars(each)["annotations"] for each in caplog.records if "annotations" in vars(each)]
    assert noted["p/size"] == "6"
    assert json.loads(noted["validation.policy.admission.k8s.io/validation_failure"])[0]["message"] == "large"


async def test_parameters_come_from_config_maps_and_may_change(world: World) -> None:
    world.kube.discovery["/api/v1"] = [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]
    limits = {"metadata": {"name": "limits", "namespace": "acc", "labels": {"limit": "yes"}}, "data": {"size": "3"}}
    await world.kube.put(CONFIG_MAPS, limits)
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.size <= int(params.data.size)", "messageExpression": "'at most ' + params.data.size"}],
    }
    await put(world, "validating", spec, binding={"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}})
    async with world.api() as api:
        answer = await api.call("POST", "", widget(size=4))
        assert answer.json["message"].endswith("denied request: at most 3")
        await world.kube.edit(CONFIG_MAPS, "acc", "limits", lambda obj: obj["data"].update(size="9"))
        async with asyncio.timeout(30):
            while (await api.call("POST", "", widget(size=4))).code != 201:
                await asyncio.sleep(0.02)
        selector = {"paramRef": {"selector": {"matchLabels": {"limit": "no"}}, "parameterNotFoundAction": "Deny"}}
        await put(world, "validating", spec, binding=selector)
        async with asyncio.timeout(30):
            while (answer := await api.call("POST", "", widget(name="w2"))).code == 201:
                await api.call("DELETE", "w2")
        why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        assert answer.json["message"].endswith(f"denied request: {why}")


async def test_unknown_parameter_kind_fails_closed_unless_ignored(world: World) -> None:
    spec = {"paramKind": {"apiVersion": "toys.test/v1", "kind": "Rule"}, "validations": [{"expression": "false"}]}
    await put(world, "validating", spec, binding={"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}})
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        why = "failed to configure policy: failed to find resource referenced by paramKind: 'toys.test/v1, Kind=Rule'"
        message = f"ValidatingAdmissionPolicy 'p' denied request: {why}"
        assert (answer.code, answer.json["message"]) == (422, f'widgets.example.test "w1" is forbidden: {message}')
        await put(
            world, "validating", spec | {"failurePolicy": "Ignore"}, binding={"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}
        )
        async with asyncio.timeout(30):
            while (await api.call("POST", "", widget())).code != 201:
                await asyncio.sleep(0.02)


async def test_a_failing_expression_follows_the_failure_policy(world: World) -> None:
    await put(world, "validating", {"validations": [{"expression": "object.spec.none == 1"}]})
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        why = "expression 'object.spec.none == 1' resulted in error: no such key: none"
        assert answer.json["message"].endswith(f"denied request: {why}")
        await put(world, "validating", {"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.none == 1"}]})
        async with asyncio.timeout(30):
            while (await api.call("POST", "", widget())).code != 201:
                await asyncio.sleep(0.02)


async def test_variables_conditions_and_the_namespace(world: World) -> None:
    spec = {
        "matchConditions": [{"name": "not-me", "expression": "request.userInfo.username != 'nobody' && request.operation != 'DELETE'"}],
        "variables": [
            {"name": "team", "expression": "namespaceObject.metadata.labels[?'team'].orValue('none')"},
            {"name": "limit", "expression": "variables.team == 'a' ? 2 : 100"},
        ],
        "validations": [
            {
                "expression": "object.spec.size <= variables.limit",
                "messageExpression": "'team ' + variables.team + ' may have ' + string(variables.limit)",
            },
            {"expression": "oldObject == null || oldObject.spec.size <= object.spec.size", "message": "it may not shrink"},
        ],
    }
    await put(world, "validating", spec)
    async with world.api() as api:
        assert (await api.call("POST", "", widget(size=3))).json["message"].endswith("team a may have 2")
        await api.make(widget(size=2))
        assert (await api.patch("w1", {"spec": {"size": 1}})).json["message"].endswith("it may not shrink")
        assert (await api.call("DELETE", "w1")).code == 200


async def test_expressions_ask_the_authorizer(world: World) -> None:
    asked: list[Json] = []

    def review(path: str, obj: Json) -> None:
        if path.endswith("subjectaccessreviews"):
            asked.append(obj["spec"])
            attributes = obj["spec"].get("resourceAttributes") or {}
            allowed = attributes.get("verb") != "break-glass" or attributes.get("name") == "w2"
            obj["status"] = {"allowed": allowed, "reason": "because"}

    world.kube.admit = review
    pods = "authorizer.group('').resource('pods').namespace('x').check('get').allowed()"
    expression = f"authorizer.requestResource.check('break-glass').allowed() && {pods}"
    await put(world, "validating", {"validations": [{"expression": expression, "message": "glass"}], "matchConditions": [
        {"name": "creates", "expression": "request.operation == 'CREATE'"},
    ]})  # fmt: skip
    async with world.api("--authorization-mode=Delegated") as api:
        assert (await api.call("POST", "", widget())).json["message"].endswith("denied request: glass")
        await api.make(widget(name="w2"))
    (first,) = {repr(each) for each in asked if (each.get("resourceAttributes") or {}).get("verb") == "get" and "pods" in repr(each)}
    assert "'version': '*'" in first


async def test_a_policy_for_another_version_sees_the_object_converted(world: World) -> None:
    rules = [{"apiGroups": ["example.test"], "apiVersions": ["v1beta1"], "operations": ["CREATE"], "resources": ["widgets"]}]
    constraints = {"resourceRules": rules, "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    expression = "object.spec.extent < 3 && request.resource.version == 'v1beta1' && request.requestResource.version == 'v1'"
    await put(world, "validating", {"matchConstraints": constraints, "validations": [{"expression": expression}]})
    async with world.api(versions=True) as api:
        assert (await api.call("POST", "", widget(size=3))).code == 422
        await api.make(widget(size=2))
    assert OLD_WIDGETS.version == "v1beta1"


async def test_selectors_and_exclusions_narrow_a_policy(world: World) -> None:
    base: Json = {"resourceRules": RULES, "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    never = [{"expression": "false"}]
    narrowed: dict[str, Json] = {
        "team": {"namespaceSelector": {"matchLabels": {"team": "b"}}},
        "label": {"objectSelector": {"matchLabels": {"guarded": "yes"}}},
        "exclude": {"excludeResourceRules": RULES},
        "names": {"resourceRules": [RULES[0] | {"resourceNames": ["w9"]}]},
    }
    for name, more in narrowed.items():
        await put(world, "validating", {"matchConstraints": base | more, "validations": never}, name=name)
    narrow = base | {"namespaceSelector": {"matchLabels": {"team": "z"}}}
    await put(world, "validating", {"validations": never}, name="bound", binding={"matchResources": narrow})
    async with world.api() as api:
        await api.make(widget())
        guarded = widget(name="w2")
        guarded["metadata"]["labels"] = {"guarded": "yes"}
        assert "'label'" in (await api.call("POST", "", guarded)).json["message"]
        assert "'names'" in (await api.call("POST", "", widget(name="w9"))).json["message"]


async def test_mutating_policy_adds_a_label_by_apply_configuration(world: World) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'added': 'yes'}}, spec: Object.spec{size: object.spec.size + 1}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
    await put(world, "mutating", {"mutations": mutations, "reinvocationPolicy": "Never"})
    async with world.api() as api:
        given = widget(size=3)
        given["metadata"]["labels"] = {"mine": "too"}
        made = await api.make(given)
        assert (made["metadata"]["labels"], made["spec"]["size"]) == ({"mine": "too", "added": "yes"}, 4)


async def test_a_mutating_policy_adds_a_label_by_a_json_patch(world: World) -> None:
    expression = """
      !has(object.metadata.labels) ? [
        JSONPatch{op: 'add', path: '/metadata/labels', value: {'example.test/added': 'yes'}},
        JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.test/size'), value: string(object.spec.size)}
      ] : [JSONPatch{op: 'test', path: '/spec/size', value: 99}, JSONPatch{op: 'remove', path: '/metadata/labels'}]"""
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]
    await put(world, "mutating", {"mutations": mutations, "reinvocationPolicy": "Never"})
    async with world.api() as api:
        made = await api.make(widget(size=3))
        assert made["metadata"]["labels"] == {"example.test/added": "yes", "example.test/size": "3"}
        changed = await api.patch("w1", {"spec": {"color": "green"}})
        assert (changed.code, changed.json["metadata"]["labels"]) == (200, made["metadata"]["labels"])


async def test_a_mutation_that_cannot_be_applied_refuses_the_request(world: World) -> None:
    cases = {
        "Object{metadata: Object.metadata{managedFields: []}}": (
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .metadata.managedFields"
        ),
        "Object{spec: Object.wrong{size: 1}}": (
            'type mismatch: unexpected type name "Object.wrong", expected "Object.spec", '
            "which matches field name path from root Object type"
        ),
        "Object{spec: Object.spec{size: object.spec.nothing}}": None,
    }
    async with world.api() as api:
        for at, (expression, why) in enumerate(cases.items()):
            mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
            await put(world, "mutating", {"mutations": mutations, "reinvocationPolicy": "Never"}, name=f"m{at}")
            wanted = why or f"expression '{expression}' resulted in error: no such key: nothing"
            async with asyncio.timeout(30):
                while f"'m{at}'" not in (answer := await api.call("POST", "", widget(name=f"w{at}"))).json.get("message", ""):
                    await api.call("DELETE", f"w{at}")
            assert answer.json["message"] == f"policy 'm{at}' with binding 'b-m{at}' denied request: {wanted}"
            assert (answer.code, answer.json["reason"]) == (403, "Invalid")
            await world.kube.remove(f"{REGISTRATION}/mutatingadmissionpolicies", "", f"m{at}")


@pytest.mark.parametrize(
    ("operation", "failure", "code", "message"),
    [
        (
            "op: 'remove', path: '/metadata/nope'",
            "Fail",
            403,
            "policy 'p' with binding 'b-p' denied request: JSON Patch: error in remove for path: '/metadata/nope': "
            "Unable to remove nonexistent key: nope: missing value",
        ),
        (
            "op: 'add', path: '/spec/nope', value: 1",
            "Ignore",
            500,
            'Internal error occurred: strict decoding error: unknown field "spec.nope"',
        ),
        (
            "op: 'add', path: '/metadata/nope', value: 1",
            "Fail",
            500,
            'Internal error occurred: strict decoding error: unknown field "metadata.nope"',
        ),
        (
            "op: 'replace', path: '/metadata/namespace', value: 'other'",
            "Ignore",
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "op: 'replace', path: '/spec/size', value: 'large'",
            "Ignore",
            500,
            "Internal error occurred: policy 'p' with binding 'b-p' made the object invalid: "
            'Widget.example.test "w1" is invalid: spec.size: Invalid value: "large": Input should be a valid integer',
        ),
    ],
)
async def test_json_patch_of_a_policy_must_keep_the_objects_identity(
    world: World, operation: str, failure: str, code: int, message: str
) -> None:
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{{{operation}}}]"}}]
    await put(world, "mutating", {"mutations": mutations, "reinvocationPolicy": "Never", "failurePolicy": failure})
    async with world.api() as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["message"]) == (code, message)


async def test_apply_configuration_cannot_move_an_object(world: World) -> None:
    """Its key would name one namespace, and its metadata another."""
    expression = "Object{metadata: Object.metadata{namespace: 'other'}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
    await put(world, "mutating", {"mutations": mutations, "reinvocationPolicy": "Never"})
    async with world.api() as api:
        assert (await api.call("POST", "", widget())).code == 400


async def test_a_policy_may_be_about_how_something_is_deleted(world: World) -> None:
    expression = "request.operation != 'DELETE' || !has(request.options.gracePeriodSeconds) || request.options.gracePeriodSeconds > 0"
    await put(world, "validating", {"validations": [{"expression": expression}]})
    async with world.api() as api:
        await api.make(widget())
        assert (await api.call("DELETE", "w1", {"gracePeriodSeconds": 0})).code == 422
        assert (await api.call("DELETE", "w1?gracePeriodSeconds=0")).code == 422
        assert (await api.call("DELETE", "w1", {"gracePeriodSeconds": 3})).code == 200


async def test_mutating_policies_run_by_name_and_reinvoked_on_request(world: World) -> None:
    def appends(key: str) -> Json:
        value = f"object.metadata.?annotations[?'{key}'].orValue('') + '{key}' + string(size(object.metadata.?annotations.orValue({{}})))"
        expression = f"Object{{metadata: Object.metadata{{annotations: {{'{key}': {value}}}}}}}"
        return {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]}

    await put(world, "mutating", appends("b") | {"reinvocationPolicy": "Never"}, name="b")
    await put(world, "mutating", appends("a") | {"reinvocationPolicy": "IfNeeded"}, name="a")
    async with world.api() as api:
        made = await api.make(widget())
        assert made["metadata"]["annotations"] == {"a": "a0a2", "b": "b1"}


async def test_match_conditions_of_webhooks_are_evaluated(world: World) -> None:
    conditions = [{"name": "large", "expression": "object.spec.size > 3"}]
    await world.validating(world.hook("large", lambda review: webhooks.deny(review, message="large"), matchConditions=conditions))
    async with world.api() as api:
        await api.make(widget(size=3))
        assert (await api.call("POST", "", widget(name="w2", size=4))).json["message"].endswith("large")
        broken = [{"name": "broken", "expression": "object.spec.nothing > 3"}, {"name": "no", "expression": "object.spec.size > 99"}]
        await world.validating(world.hook("large", matchConditions=broken))
        async with asyncio.timeout(30):
            while (await api.call("POST", "", widget(name="w3", size=4))).code != 201:
                await asyncio.sleep(0.02)
        await world.validating(world.hook("large", matchConditions=broken[:1]))
        async with asyncio.timeout(30):
            while (answer := await api.call("POST", "", widget(name="w4"))).code == 201:
                await api.call("DELETE", "w4")
        assert (answer.code, "resulted in error: no such key: nothing" in answer.json["message"]) == (403, True)


async def test_nothing_is_admitted_before_the_policies_are_known(world: World) -> None:
    world.kube.authorize = lambda _method, path, _query: "admissionpolic" not in path
    async with world.api(times=Times(admission=0.2)) as api:
        answer = await api.call("POST", "", widget())
        assert (answer.code, answer.json["message"]) == (403, 'widgets.example.test "w1" is forbidden: not yet ready to handle request')
        world.kube.discovery[REGISTRATION] = [{"name": "mutatingwebhookconfigurations", "kind": "MutatingWebhookConfiguration"}]
        async with asyncio.timeout(10):
            while (await api.call("POST", "", widget())).code != 201:
                await asyncio.sleep(0.05)
