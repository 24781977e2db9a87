"""MutatingAdmissionPolicy: expressions that change the object, by ``ApplyConfiguration`` or JSON patch.

Policies, bindings and parameters run in the order of names, each on the result of earlier ones.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.admission import unapplied
from apiserver.admission.errors import forbidden, internal
from apiserver.admission.policy import activation, conditions, evaluating, merging
from apiserver.admission.policy.activation import Input
from apiserver.admission.policy.definitions import INVALID, Binding, Policy
from apiserver.admission.policy.evaluating import Compiled, Evaluation, OutOfBudget
from apiserver.admission.policy.merging import PatchFailed, Schemas
from apiserver.admission.policy.metrics import MutatingMetrics, error_type
from apiserver.admission.policy.plugin import Invocation, PolicyDispatcher, Problem
from apiserver.admission.webhook.conditions import ConditionsFailed
from apiserver.apis.meta import json_patch
from apiserver.apis.meta.errors import Cause, Forbidden, ServiceUnavailable, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.cel.cost import RUNTIME_BUDGET
from apiserver.cel.library.authz import Answer, Question
from apiserver.cel.values import Message, Value
from apiserver.registry.generic.admission import Attributes, Operation

_JSON_PATCH: Final = "JSONPatch"
Key = tuple[str, str, str, str]
"""Policy, binding, and the parameter's namespace and name."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """A policy's compiled expressions."""

    variables: dict[str, Compiled]
    conditions: tuple[Compiled, ...]
    mutations: tuple[Compiled, ...]


@dataclass(frozen=True, slots=True)
class _Refusal:
    policy: Policy
    binding: Binding | None
    message: str
    reason: str = ""

    def text(self) -> str:
        if self.binding is None:
            return f'policy "{self.policy.name}" denied request: {self.message}'
        return f"policy '{self.policy.name}' with binding '{self.binding.name}' denied request: {self.message}"


@dataclass(slots=True, eq=False)
class _Reinvocation:
    output: Object | None = None
    reinvocable: set[Key] = field(default_factory=set)
    due: set[Key] = field(default_factory=set)

    def changed(self) -> None:
        self.due |= self.reinvocable
        self.reinvocable.clear()


class _Denied(Forbidden):
    def __init__(self, error: StatusError, message: str, reason: str, causes: tuple[Cause, ...]) -> None:
        super().__init__(message, dataclasses.replace(error.details, causes=(*error.details.causes, *causes)))
        if reason:
            self.reason = reason  # type: ignore[misc]  # a class has one reason; Go changes that of this error alone


def compile_policy(policy: Policy) -> Compilation:
    """Compile a policy; an error becomes the expression's ``problem``."""
    params = policy.param_kind is not None
    variables = evaluating.compose(policy.variables, params=params, environment_of=activation.environment)
    plain = activation.environment(params=params, authorizer=True, variables=tuple(variables))
    patching = activation.environment(params=params, authorizer=True, patches=True, variables=tuple(variables))
    return Compilation(
        variables,
        tuple(Compiled.of(plain, each.expression) for each in policy.conditions),
        tuple(Compiled.of(patching, each.expression) for each in policy.mutations),
    )


class MutatingPolicies:
    """The admission plug-in that changes objects by MutatingAdmissionPolicies."""

    name = "MutatingAdmissionPolicy"

    def __init__(self, dispatcher: PolicyDispatcher[Compilation], schemas: Schemas, metrics: MutatingMetrics) -> None:
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._schemas = schemas

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether a policy may match the request."""
        return self._dispatcher.handles(operation, resource, subresource)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing."""

    async def mutate(self, attributes: Attributes) -> None:
        """Apply matching policies' mutations to ``attributes.obj`` in order. In the second round, only those due run.

        Raises Forbidden afterwards, with the failures of all policies that fail closed.
        """
        round_ = attributes.reinvocation
        memory: _Reinvocation = round_.memory.setdefault(self.name, _Reinvocation())
        if round_.again and memory.output != attributes.obj:
            memory.changed()
        answers: dict[Question, Answer] = {}
        refusals: list[_Refusal] = []
        for each in await self._dispatcher.invocations(attributes):
            if isinstance(each, Problem):
                what = "policy" if each.binding is None else "binding"
                refusals.append(_Refusal(each.policy, each.binding, f"failed to configure {what}: {each.message}"))
                continue
            key = _key(each)
            if round_.again and key not in memory.due:
                continue
            given = await self._dispatcher.input(attributes, each.resource, answers)
            problem, changed = await self._invoke(each, given, attributes)
            refusals += [problem] if problem is not None else []
            if changed:
                memory.changed()
                round_.requested = True
            if each.policy.reinvoked:
                memory.reinvocable.add(key)
        memory.output = copy.deepcopy(attributes.obj) if memory.reinvocable and not round_.again else None
        _raise(attributes, [each for each in refusals if not each.policy.fails_open])

    async def _invoke(self, each: Invocation[Compilation], given: Input, attributes: Attributes) -> tuple[_Refusal | None, bool]:
        if each.compiled.conditions:
            about = (each.policy.name, "policy", "validate", attributes.operation)
            began = time.perf_counter()
            try:
                without = dataclasses.replace(given, namespace=None)
                ask, variables = self._dispatcher.ask, each.compiled.variables
                if not await conditions.hold(each.compiled.conditions, without, each.param, variables, ask):
                    return None, False
            except ConditionsFailed as error:
                for _ in range(error.count):
                    self._dispatcher.metrics.condition_error(*about)
                return _Refusal(each.policy, each.binding, str(error), INVALID), False
            finally:
                self._dispatcher.metrics.conditions(*about, time.perf_counter() - began)
        if attributes.obj is None:
            return None, False
        problem: _Refusal | None = None
        changed = False
        for position in range(len(each.policy.mutations)):
            began, failed = time.perf_counter(), ""
            try:
                changed |= await self._mutate(each, position, given, attributes)
            except PatchFailed as error:
                failed = str(error)
                problem = problem or _Refusal(each.policy, each.binding, str(error), INVALID)
            finally:
                self._metrics.observe(each.policy.name, each.binding.name, error_type(failed), time.perf_counter() - began)
        return problem, changed

    async def _mutate(self, each: Invocation[Compilation], position: int, given: Input, attributes: Attributes) -> bool:
        compiled, mutation = each.compiled.mutations[position], each.policy.mutations[position]
        if compiled.program is None:
            raise PatchFailed(compiled.problem)
        live = given.versioned.obj
        assert live is not None  # noqa: S101 - there is an object in this version where there is one in the other
        names = given.variables(each.param, authorizer=True)
        evaluation = Evaluation(names, each.compiled.variables, RUNTIME_BUDGET, given.answers, self._dispatcher.ask)
        try:
            result = await evaluation.evaluate(compiled)
        except OutOfBudget as error:
            raise PatchFailed(str(error)) from None
        if result.failed:
            raise PatchFailed(result.error)
        patched = self._patched(live, result.value) if mutation.patch_type == _JSON_PATCH else self._applied(live, result.value)
        if patched == live:
            return False
        if any(patched.get(name) != live.get(name) for name in ("apiVersion", "kind")) or not isinstance(patched.get("metadata"), dict):
            raise PatchFailed("a mutation must leave apiVersion, kind and metadata of the object")
        given.versioned = dataclasses.replace(given.versioned, obj=patched)
        attributes.mutators[f"policy '{each.policy.name}' with binding '{each.binding.name}'"] = None
        attributes.obj = given.versioned.taken(patched, self._dispatcher.versions)
        return True

    def _patched(self, live: Object, value: Value) -> Object:
        patched = _patched(live, value)
        atom = self._schemas().get((live.get("apiVersion", ""), live.get("kind", "")))
        if atom is None or not (unknown := merging.unknown_fields(atom, patched)):
            return patched
        there = set(merging.unknown_fields(atom, live))  # such as fields of an older schema: not the policy's error
        if listed := ", ".join(f'unknown field "{each.removeprefix(".")}"' for each in unknown if each not in there):
            raise internal(f"strict decoding error: {listed}")  # for any failurePolicy, as in Go
        return patched

    def _applied(self, live: Object, value: Value) -> Object:
        try:
            return merging.apply(self._schemas, live, value)
        except LookupError:
            kind = f"{live.get('apiVersion')}, Kind={live.get('kind')}"
            late = "There can be a delay between when CustomResourceDefinitions are created and when they are available."
            raise ServiceUnavailable(f"Resource kind {kind} not found. {late}") from None


def _patched(live: Object, value: Value) -> Object:
    if type(value) is not list or not all(isinstance(each, Message) and each.type_name == "JSONPatch" for each in value):
        raise PatchFailed("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    operations = [_operation(each) for each in value]
    try:
        patched = json_patch.apply(live, operations)
    except json_patch.TestFailed:
        return live
    except StatusError as error:
        raise PatchFailed(f"JSON Patch: {unapplied.why(error, operations)}") from None
    if not isinstance(patched, dict):
        raise PatchFailed("JSON Patch: it removed the object")
    return patched


def _operation(message: Message) -> dict[str, Any]:
    fields = message.fields
    operation: dict[str, Any] = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if fields.get("from"):
        operation["from"] = fields["from"]
    if "value" in fields:
        value = fields["value"]
        if isinstance(value, Message) and (problems := merging.check_type_names(value, value.type_name)):
            raise PatchFailed("type mismatch: " + "\n".join(problems))
        operation["value"] = merging.to_json(value)
    return operation


def _key(invocation: Invocation[Compilation]) -> Key:
    metadata = (invocation.param or {}).get("metadata") or {}
    return invocation.policy.name, invocation.binding.name, metadata.get("namespace") or "", metadata.get("name") or ""


def _raise(attributes: Attributes, refusals: list[_Refusal]) -> None:
    if refusals:
        texts = [each.text() for each in refusals]
        error = forbidden(attributes, "admission request denied by policy")
        raise _Denied(error, texts[0], refusals[0].reason, tuple(Cause("", each) for each in texts))
