"""ValidatingAdmissionPolicy: expressions that must hold; else the request is refused, warned about, or logged."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from apiserver.admission.errors import forbidden
from apiserver.admission.policy import activation, conditions, definitions, evaluating
from apiserver.admission.policy.activation import Input
from apiserver.admission.policy.definitions import Binding, Policy, Validation
from apiserver.admission.policy.evaluating import Compiled, Evaluation, OutOfBudget
from apiserver.admission.policy.metrics import ErrorType, ValidatingMetrics, error_type
from apiserver.admission.policy.plugin import Invocation, PolicyDispatcher, Problem
from apiserver.admission.webhook.conditions import ConditionsFailed
from apiserver.apis.meta.errors import Cause, Forbidden, Invalid, RequestEntityTooLarge, StatusError, Unauthorized
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.cel.cost import MAX_MESSAGE_BYTES, RUNTIME_BUDGET
from apiserver.cel.environment import Result
from apiserver.cel.library.authz import Answer, Question
from apiserver.registry.generic.admission import Attributes, Operation

_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"
_MAX_ANNOTATION: Final = 10 * 1024
_ERRORS: Final[dict[str, type[StatusError]]] = {
    "Forbidden": Forbidden,
    "Unauthorized": Unauthorized,
    "RequestEntityTooLarge": RequestEntityTooLarge,
}
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True, slots=True)
class Compilation:
    """A policy's compiled expressions."""

    variables: dict[str, Compiled]
    conditions: tuple[Compiled, ...]
    validations: tuple[Compiled, ...]
    messages: tuple[Compiled | None, ...]
    annotations: tuple[Compiled, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """A validation that failed or could not be evaluated."""

    position: int
    message: str
    reason: str = ""
    error: ErrorType = "no_error"
    seconds: float = 0.0
    ignored: bool = False
    """An error of a policy that fails open."""


def compile_policy(policy: Policy) -> Compilation:
    """Compile a policy; an error becomes the expression's ``problem``. Messages and annotations cannot use the authorizer."""
    params = policy.param_kind is not None
    variables = evaluating.compose(policy.variables, params=params, environment_of=activation.environment)
    asking = activation.environment(params=params, authorizer=True, variables=tuple(variables))
    plain = activation.environment(params=params, variables=tuple(variables))
    return Compilation(
        variables,
        tuple(Compiled.of(asking, each.expression) for each in policy.conditions),
        tuple(Compiled.of(asking, each.expression) for each in policy.validations),
        tuple(Compiled.of(plain, each.message_expression) if each.message_expression else None for each in policy.validations),
        tuple(Compiled.of(plain, each.expression) for each in policy.annotations),
    )


class ValidatingPolicies:
    """The admission plug-in that checks requests by ValidatingAdmissionPolicies."""

    name = "ValidatingAdmissionPolicy"

    def __init__(self, dispatcher: PolicyDispatcher[Compilation], metrics: ValidatingMetrics, budget: int = RUNTIME_BUDGET) -> None:
        """``budget``: cost limit per policy, binding and parameter."""
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._budget = budget

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether a policy may match the request."""
        return self._dispatcher.handles(operation, resource, subresource)

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Evaluate every matching policy, add warnings and audit annotations, and raise the first refusal afterwards."""
        answers: dict[Question, Answer] = {}
        inputs: dict[Resource, Input] = {}
        noted: dict[str, list[str]] = {}
        refusal: StatusError | None = None
        for each in await self._dispatcher.invocations(attributes):
            if isinstance(each, Problem):
                found = _configuration(each)
                refusal = refusal or (_refused(attributes, each.policy, each.binding, found) if found else None)
                continue
            if each.resource not in inputs:
                inputs[each.resource] = await self._dispatcher.input(attributes, each.resource, answers)
            for decision in await self._evaluate(each, inputs[each.resource], attributes, noted):
                refusal = refusal or _refused(attributes, each.policy, each.binding, decision)
        for key, values in noted.items():
            attributes.annotate(key, ", ".join(values))
        if refusal is not None:
            raise refusal

    async def _evaluate(
        self, invocation: Invocation[Compilation], given: Input, attributes: Attributes, noted: dict[str, list[str]]
    ) -> list[Decision]:
        policy, binding = invocation.policy, invocation.binding
        evaluated = _Evaluated(invocation, given, self._dispatcher.ask, self._budget)
        began = time.perf_counter()
        try:
            if not await evaluated.wanted():
                return []
        except ConditionsFailed as error:
            for _ in range(error.count):
                self._dispatcher.metrics.condition_error(policy.name, "policy", "validate", attributes.operation)
            return self._act(binding, attributes, [Decision(0, str(error), error=error_type(str(error)), ignored=policy.fails_open)])
        finally:
            if policy.conditions:
                about = (policy.name, "policy", "validate", attributes.operation)
                self._dispatcher.metrics.conditions(*about, time.perf_counter() - began)
        denied = self._act(binding, attributes, await evaluated.decisions())
        for key, value, problem in await evaluated.annotations():
            if problem:
                denied.append(Decision(0, problem))
                self._metrics.observe(policy.name, binding.name, error_type(problem), "deny", 0.0)
            else:
                values = noted.setdefault(f"{policy.name}/{key}", [])
                if value not in values:
                    values.append(value)
        return denied

    def _act(self, binding: Binding, attributes: Attributes, decisions: list[Decision]) -> list[Decision]:
        denied: list[Decision] = []
        for each in decisions:
            about = (binding.policy, binding.name, each.error)
            if each.ignored:
                self._metrics.observe(*about, "allow", each.seconds)
                continue
            for action in binding.actions:
                if action == definitions.DENY:
                    denied.append(each)
                    self._metrics.observe(*about, "deny", each.seconds)
                elif action == definitions.WARN:
                    by = f"ValidatingAdmissionPolicy '{binding.policy}' with binding '{binding.name}'"
                    attributes.warn(f"Validation failed for {by}: {each.message}")
                    self._metrics.observe(*about, "warn", each.seconds)
                elif action == definitions.AUDIT:
                    attributes.annotate(_FAILURE, _failure(binding, each))
                    self._metrics.observe(*about, "audit", each.seconds)
        return denied


class _Evaluated:
    def __init__(self, invocation: Invocation[Compilation], given: Input, ask: Any, budget: int) -> None:  # noqa: ANN401 - see asking.Ask
        self._budget = budget
        self._policy = invocation.policy
        self._compiled = invocation.compiled
        self._given = given
        self._param = invocation.param
        self._ask = ask

    async def wanted(self) -> bool:
        if not self._compiled.conditions:
            return True
        # match conditions lack the variable namespaceObject
        without = dataclasses.replace(self._given, namespace=None)
        return await conditions.hold(self._compiled.conditions, without, self._param, self._compiled.variables, self._ask)

    def _evaluation(self, budget: int, *, authorizer: bool) -> Evaluation:
        names = self._given.variables(self._param, authorizer=authorizer)
        return Evaluation(names, self._compiled.variables, budget, self._given.answers, self._ask)

    async def decisions(self) -> list[Decision]:
        evaluation = self._evaluation(self._budget, authorizer=True)
        results: list[tuple[Result, float]] = []
        try:
            for each in self._compiled.validations:
                began = time.perf_counter()
                results.append((await evaluation.evaluate(each), time.perf_counter() - began))
        except OutOfBudget as error:
            return [self._failed(0, str(error))]
        messages, problem = await self._messages(evaluation.remaining)
        found: list[Decision] = []
        for position, (validation, (result, seconds)) in enumerate(zip(self._policy.validations, results, strict=True)):
            if result.failed:
                found.append(self._failed(position, result.error, seconds))
            elif problem:
                found.append(self._failed(position, f"failed messageExpression: {problem}", seconds))
            elif result.value is not True:
                message = _message(validation, messages[position])
                found.append(Decision(position, message, validation.reason, "invalid_error", seconds))
        return found

    def _failed(self, position: int, message: str, seconds: float = 0.0) -> Decision:
        return Decision(position, message, "", error_type(message), seconds, self._policy.fails_open)

    async def _messages(self, budget: int) -> tuple[Sequence[Any], str]:
        if not any(self._compiled.messages):
            return [None] * len(self._compiled.messages), ""
        evaluation = self._evaluation(budget, authorizer=False)
        said: list[Any] = []
        try:
            for each in self._compiled.messages:
                result = await evaluation.evaluate(each) if each is not None else None
                said.append(result.value if result is not None and not result.failed else None)
        except OutOfBudget as error:
            return [], str(error)
        return said, ""

    async def annotations(self) -> list[tuple[str, str, str]]:
        if not self._compiled.annotations:
            return []
        evaluation = self._evaluation(self._budget, authorizer=False)
        found: list[tuple[str, str, str]] = []
        for expression, compiled in zip(self._policy.annotations, self._compiled.annotations, strict=True):
            try:
                result = await evaluation.evaluate(compiled)
            except OutOfBudget as error:
                return [] if self._policy.fails_open else [("", "", str(error))]
            if result.failed:
                if not self._policy.fails_open:
                    found.append((expression.name, "", result.error))
            elif isinstance(result.value, str):
                if value := result.value.strip()[:_MAX_ANNOTATION]:
                    found.append((expression.name, value, ""))
            elif result.value is not None:
                why = f"valueExpression '{expression.expression}' resulted in unsupported return type. "
                found.append((expression.name, "", why + "Return type must be either string or null."))
        return found


def _message(validation: Validation, said: object) -> str:
    text = said.strip() if isinstance(said, str) else ""
    if text and "\n" not in text and len(text.encode()) <= MAX_MESSAGE_BYTES:
        return text
    return validation.message.strip() or f"failed expression: {validation.expression.strip()}"


def _failure(binding: Binding, decision: Decision) -> str:
    value: Object = {
        "message": decision.message,
        "policy": binding.policy,
        "binding": binding.name,
        "expressionIndex": decision.position,
        "validationActions": list(binding.actions),
    }
    text = orjson.dumps([value]).decode()
    return "".join(_ESCAPED.get(each, each) for each in text)


def _configuration(problem: Problem) -> Decision | None:
    if problem.policy.fails_open:
        return None
    what = "policy" if problem.binding is None else "binding"
    return Decision(0, f"failed to configure {what}: {problem.message}")


def _refused(attributes: Attributes, policy: Policy, binding: Binding | None, decision: Decision) -> StatusError:
    by = f"ValidatingAdmissionPolicy '{policy.name}'" + (f" with binding '{binding.name}'" if binding is not None else "")
    message = f"{by} denied request: {decision.message}"
    refused = forbidden(attributes, message)
    details = dataclasses.replace(refused.details, causes=(*refused.details.causes, Cause("", message)))
    return _ERRORS.get(decision.reason, Invalid)(refused.message, details)
