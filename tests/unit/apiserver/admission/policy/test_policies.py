from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.policy import mutating, validating
from apiserver.admission.policy.metrics import MutatingMetrics, ValidatingMetrics
from apiserver.admission.policy.mutating import MutatingPolicies
from apiserver.admission.policy.plugin import PolicyDispatcher
from apiserver.admission.policy.source import Source
from apiserver.admission.policy.validating import ValidatingPolicies
from apiserver.apis.meta.errors import NotFound, StatusError
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.users import User
from apiserver.cel.cost import RUNTIME_BUDGET
from apiserver.cel.library.authz import Answer, Question
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.admission import Attributes
from tests.fakes.admission import asking
from tests.fakes.versions import OneVersion

THINGS = Resource("g.test", "v1", "things", "Thing")
RULE = {"apiGroups": ["g.test"], "apiVersions": ["*"], "operations": ["*"], "resources": ["things", "things/*"]}
Json = dict[str, Any]


class Cluster(OneVersion):
    synced = asyncio.Event()

    async def get(self, name: str) -> Json:
        if name == "gone":
            raise NotFound('namespaces "gone" not found')
        return {"metadata": {"name": name, "labels": {"team": "a"}, "managedFields": []}}

    async def ask(self, question: Question) -> Answer:
        return Answer(question.verb == "get")


class World:
    def __init__(self, effect: str, budget: int = RUNTIME_BUDGET) -> None:
        cluster = Cluster()
        cluster.synced.set()
        self.registry = Registry()
        self.warnings: list[str] = []
        self.annotations: dict[str, str] = {}
        self.plugin: ValidatingPolicies | MutatingPolicies
        self.source: Source[Any]
        client: Any = None
        if effect == "validating":
            self.source = Source(client, THINGS, THINGS, cluster, validating.compile_policy)
            checks = ValidatingMetrics()
            checks.register(self.registry)
            self.plugin = ValidatingPolicies(self.dispatcher(cluster), checks, budget)
        else:
            self.source = Source(client, THINGS, THINGS, cluster, mutating.compile_policy)
            counted = MutatingMetrics()
            counted.register(self.registry)
            self.plugin = MutatingPolicies(self.dispatcher(cluster), no_schemas, counted)
        self.source.known.set()

    def dispatcher(self, cluster: Any) -> PolicyDispatcher[Any]:
        return PolicyDispatcher(self.source, cluster, cluster, cluster.ask, AdmissionMetrics())

    def put(self, name: str = "p", binding: Json | None = None, **spec: Any) -> None:
        given = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
        self.source._policy_changed(None, {"metadata": {"name": name}, "spec": given})
        bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
        self.source._binding_changed(None, {"metadata": {"name": f"b-{name}"}, "spec": bound})

    def attributes(self, obj: Json | None = None, **more: Any) -> Attributes:
        given: Json = {"operation": "CREATE", "namespace": "acc", "name": "t", "user": User("jane", ("dev",)), **more}
        return asking(resource=THINGS, obj=obj, warn=self.warnings.append, annotate=self.annotations.__setitem__, **given)

    async def refusal(self, obj: Json | None = None, **more: Any) -> StatusError | None:
        try:
            await self.plugin.validate(self.attributes(obj, **more))
        except StatusError as error:
            return error
        return None

    def count(self, start: str) -> list[str]:
        return [line for line in self.registry.page().decode().splitlines() if line.startswith(start)]


def no_schemas() -> Mapping[tuple[str, str], Atom]:
    return {}


def thing(**spec: Any) -> Json:
    return {"apiVersion": "g.test/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


async def test_audit_annotations_and_failures_use_gos_keys() -> None:
    world = World("validating")
    world.put(
        binding={"validationActions": ["Warn", "Audit"]},
        validations=[{"expression": "true"}, {"expression": "object.spec.size < 3", "message": "a < b & c"}],
        auditAnnotations=[{"key": "size", "valueExpression": "' ' + string(object.spec.size)"}, {"key": "none", "valueExpression": "null"}],
    )
    assert await world.refusal(thing(size=5)) is None
    assert world.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b-p': a < b & c"]
    assert world.annotations["p/size"] == "5"
    assert "p/none" not in world.annotations
    failure = world.annotations["validation.policy.admission.k8s.io/validation_failure"]
    assert '"message":"a \\u003c b \\u0026 c"' in failure
    assert json.loads(failure) == [
        {"message": "a < b & c", "policy": "p", "binding": "b-p", "expressionIndex": 1, "validationActions": ["Warn", "Audit"]}
    ]
    labels = 'policy="p",policy_binding="b-p",error_type="invalid_error"'
    assert f'apiserver_validating_admission_policy_check_total{{{labels},enforcement_action="warn"}} 1' in world.registry.page().decode()
    assert f'apiserver_validating_admission_policy_check_total{{{labels},enforcement_action="audit"}} 1' in world.registry.page().decode()


async def test_failing_audit_annotation_refuses_the_request() -> None:
    world = World("validating")
    annotations = [{"key": "size", "valueExpression": "object.spec.none"}]
    world.put(auditAnnotations=annotations)
    refusal = await world.refusal(thing())
    assert refusal is not None
    assert refusal.message.endswith("denied request: expression 'object.spec.none' resulted in error: no such key: none")
    world.put(auditAnnotations=annotations, failurePolicy="Ignore")
    assert await world.refusal(thing()) is None


async def test_deletes_show_the_old_object_alone() -> None:
    world = World("validating")
    world.put(validations=[{"expression": "request.operation != 'DELETE' || (object == null && oldObject.spec.size == 1)"}])
    assert await world.refusal(None, old=thing(size=1), operation="DELETE") is None
    assert await world.refusal(None, old=thing(size=2), operation="DELETE") is not None


async def test_streams_and_subresources_are_what_the_rules_say() -> None:
    world = World("validating")
    expression = "request.operation == 'CONNECT' ? request.subResource == 'console' : request.subResource == 'status'"
    rule = {**RULE, "resources": ["things/console", "things/status"]}
    world.put(matchConstraints={"resourceRules": [rule]}, validations=[{"expression": expression}])
    options = {"apiVersion": "v1", "kind": "PodAttachOptions"}
    assert await world.refusal(options, operation="CONNECT", subresource="console") is None
    assert await world.refusal(thing(), operation="UPDATE", subresource="status", old=thing()) is None
    assert not world.plugin.handles("CREATE", THINGS, "")
    assert not world.plugin.handles("CONNECT", THINGS, "vnc")


async def test_policies_about_policies_are_not_asked() -> None:
    """A policy that denies everything could not be deleted."""
    world = World("validating")
    world.put(matchConstraints={"resourceRules": [{**RULE, "apiGroups": ["*"], "resources": ["*"]}]}, validations=[{"expression": "false"}])
    group = "admissionregistration.k8s.io"
    for plural in ("validatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        assert not world.plugin.handles("CREATE", Resource(group, "v1", plural, "X", namespaced=False), "")
    assert world.plugin.handles("CREATE", THINGS, "")


async def test_a_policy_that_costs_too_much_fails() -> None:
    world = World("validating")
    loop = "object.spec.items.all(a, object.spec.items.all(b, object.spec.items.all(c, true)))"
    world.put(validations=[{"expression": loop}])
    refusal = await world.refusal(thing(items=list(range(100))))
    assert refusal is not None
    assert refusal.message.endswith("resulted in error: operation cancelled: actual cost limit exceeded")
    world = World("validating", budget=500_000)
    small = "object.spec.items.all(a, object.spec.items.all(b, a != 'x' && b != 'y'))"
    world.put(validations=[{"expression": small}] * 10)
    refusal = await world.refusal(thing(items=["z"] * 100))
    assert refusal is not None
    assert refusal.message.endswith("validation failed due to running out of cost budget, no further validation rules will be run")
    assert world.count('apiserver_validating_admission_policy_check_total{policy="p",policy_binding="b-p",error_type="out_of_budget"')


async def test_compile_error_counts_as_evaluation_error() -> None:
    """A policy that was stored earlier follows failurePolicy."""
    world = World("validating")
    world.put(validations=[{"expression": "object.spec.size <"}], variables=[{"name": "v", "expression": "nothing"}])
    refusal = await world.refusal(thing())
    assert refusal is not None
    assert "denied request: compilation error: compilation failed: ERROR: <input>:1:19: Syntax error" in refusal.message
    world.put(validations=[{"expression": "variables.v"}], variables=[{"name": "v", "expression": "nothing"}])
    refusal = await world.refusal(thing())
    assert refusal is not None
    assert 'composited variable "v" fails to compile: compilation failed' in refusal.message


async def test_a_message_cannot_ask_the_authorizer_and_is_kept_short() -> None:
    world = World("validating")
    for said in ("authorizer.path('/x').check('get').reason()", "'a\\nb'", "'   '", f"'{'x' * 6000}'", "object.none"):
        world.put(validations=[{"expression": "false", "message": "no", "messageExpression": said}])
        refusal = await world.refusal(thing())
        assert refusal is not None
        assert refusal.message.endswith("denied request: no"), said


async def test_match_conditions_see_no_namespace_and_false_one_decides() -> None:
    world = World("validating")
    never = [{"expression": "false"}]
    world.put(validations=never, matchConditions=[{"name": "a", "expression": "object.none"}, {"name": "b", "expression": "false"}])
    assert await world.refusal(thing()) is None
    world.put(validations=never, matchConditions=[{"name": "a", "expression": "namespaceObject == null"}])
    assert await world.refusal(thing()) is not None
    world.put(validations=never, matchConditions=[{"name": "a", "expression": "object.none"}])
    refusal = await world.refusal(thing())
    assert refusal is not None
    assert refusal.message.endswith("denied request: expression 'object.none' resulted in error: no such key: none")


async def test_absent_namespace_fails_only_policies_that_select_by_it() -> None:
    world = World("validating")
    narrow = {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"team": "a"}}}
    world.put(matchConstraints=narrow, validations=[{"expression": "true"}])
    refusal = await world.refusal(thing(), namespace="gone")
    assert refusal is not None
    assert refusal.message.endswith(
        """ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespaces "gone" not found"""
    )
    assert await world.refusal(thing()) is None


async def test_the_first_policy_by_name_is_what_the_client_reads() -> None:
    world = World("validating")
    for name in ("b", "a", "c"):
        world.put(name, validations=[{"expression": "false", "message": name}])
    refusal = await world.refusal(thing())
    assert refusal is not None
    assert "'a' with binding 'b-a' denied request: a" in refusal.message


async def test_a_policy_without_a_binding_does_nothing() -> None:
    world = World("validating")
    world.put(validations=[{"expression": "false"}])
    world.source._binding_changed({"metadata": {"name": "b-p"}}, None)
    assert (world.plugin.handles("CREATE", THINGS, ""), world.source.idle) == (False, True)


async def test_mutations_are_counted_and_follow_the_failure_policy() -> None:
    world = World("mutating")
    patch = "[JSONPatch{op: 'replace', path: '/spec/none/deep', value: 1}]"
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    world.put(mutations=mutations, failurePolicy="Ignore")
    attributes = world.attributes(thing(size=1))
    await world.plugin.mutate(attributes)
    assert attributes.obj == thing(size=1)
    world.put(mutations=mutations)
    with pytest.raises(StatusError, match="policy 'p' with binding 'b-p' denied request: JSON Patch: ") as raised:
        await world.plugin.mutate(world.attributes(thing(size=1)))
    assert (raised.value.to_json()["reason"], raised.value.to_json()["code"]) == ("Invalid", 403)
    counted = 'apiserver_mutating_admission_policy_check_total{policy="p",policy_binding="b-p",error_type="invalid_error"} 2'
    assert counted in world.registry.page().decode()


@pytest.mark.parametrize(
    ("expression", "spec"),
    [
        ("[JSONPatch{op: 'add', path: '/spec/list', value: [1, {'a': 'b'}]}]", {"size": 1, "list": [1, {"a": "b"}]}),
        ("[JSONPatch{op: 'copy', from: '/spec/size', path: '/spec/more'}]", {"size": 1, "more": 1}),
        ("[JSONPatch{op: 'test', path: '/spec/size', value: 2}, JSONPatch{op: 'remove', path: '/spec/size'}]", {"size": 1}),
        ("[JSONPatch{op: 'add', path: '/spec/o', value: Object.spec.o{a: 1}}]", {"size": 1, "o": {"a": 1}}),
        ("object.spec.size > 5 ? [JSONPatch{op: 'remove', path: '/spec'}] : []", {"size": 1}),
    ],
)
async def test_a_json_patch_may_hold_any_json(expression: str, spec: Json) -> None:
    world = World("mutating")
    world.put(mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
    attributes = world.attributes(thing(size=1))
    await world.plugin.mutate(attributes)
    assert attributes.obj is not None
    assert attributes.obj["spec"] == spec


async def test_a_mutation_must_leave_the_object_what_it_is() -> None:
    world = World("mutating")
    for patch in ("{op: 'replace', path: '/kind', value: 'Other'}", "{op: 'remove', path: '/metadata'}", "{op: 'add', path: '', value: 1}"):
        world.put(mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{patch}]"}}])
        with pytest.raises(StatusError, match="denied request"):
            await world.plugin.mutate(world.attributes(thing(size=1)))
