"""Policies and bindings as frozen values, which kube-apiserver has validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apiserver.admission.matching import Matching, ParsedSelector
from apiserver.admission.webhook.registrations import Expression
from apiserver.apis.meta.objects import Object, name_of

DENY: Final = "Deny"
WARN: Final = "Warn"
AUDIT: Final = "Audit"
INVALID: Final = "Invalid"


@dataclass(frozen=True, slots=True)
class ParamKind:
    """The kind of a policy's parameters."""

    api_version: str
    kind: str

    def __str__(self) -> str:
        """Return the kind as Go prints it."""
        return f"&ParamKind{{APIVersion:{self.api_version},Kind:{self.kind},}}"


@dataclass(frozen=True, slots=True)
class ParamRef:
    """A binding's reference to parameters, by name or selector; ``denies``: it is an error if none exists."""

    name: str
    namespace: str
    selector: ParsedSelector | None
    denies: bool
    """``parameterNotFoundAction: Deny``."""


@dataclass(frozen=True, slots=True)
class Validation:
    """A condition that requests must meet, with its refusal's message and reason."""

    expression: str
    message: str
    message_expression: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """An expression that changes the object, by ``ApplyConfiguration`` or ``JSONPatch``."""

    patch_type: str
    expression: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A validating policy (``validations``, ``annotations``) or a mutating one (``mutations``, ``reinvoked``)."""

    name: str
    matching: Matching
    param_kind: ParamKind | None
    conditions: tuple[Expression, ...]
    variables: tuple[Expression, ...]
    fails_open: bool
    validations: tuple[Validation, ...] = ()
    annotations: tuple[Expression, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    reinvoked: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """Activates a policy for matching requests; ``actions`` follow a failed validation."""

    name: str
    policy: str
    matching: Matching | None
    param_ref: ParamRef | None
    actions: tuple[str, ...]


def policy(obj: Object) -> Policy:
    """Parse a ``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``."""
    spec = obj.get("spec") or {}
    kind = spec.get("paramKind")
    return Policy(
        name=name_of(obj),
        matching=Matching.of_resources(spec.get("matchConstraints")),
        param_kind=ParamKind(kind.get("apiVersion", ""), kind.get("kind", "")) if kind else None,
        conditions=_named(spec.get("matchConditions"), "name", "expression"),
        variables=_named(spec.get("variables"), "name", "expression"),
        fails_open=spec.get("failurePolicy") == "Ignore",
        validations=tuple(_validation(each) for each in spec.get("validations") or ()),
        annotations=_named(spec.get("auditAnnotations"), "key", "valueExpression"),
        mutations=tuple(_mutation(each) for each in spec.get("mutations") or ()),
        reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def _named(given: list[Object] | None, name: str, expression: str) -> tuple[Expression, ...]:
    return tuple(Expression(each.get(name, ""), each.get(expression, "")) for each in given or ())


def _validation(given: Object) -> Validation:
    expression, reason = given.get("expression", ""), given.get("reason") or INVALID
    return Validation(expression, given.get("message") or "", given.get("messageExpression") or "", reason)


def _mutation(given: Object) -> Mutation:
    patch_type = given.get("patchType", "")
    part = given.get("jsonPatch" if patch_type == "JSONPatch" else "applyConfiguration") or {}
    return Mutation(patch_type, part.get("expression", ""))


def binding(obj: Object) -> Binding:
    """Parse a ``ValidatingAdmissionPolicyBinding`` or ``MutatingAdmissionPolicyBinding``."""
    spec = obj.get("spec") or {}
    ref = spec.get("paramRef")
    return Binding(
        name=name_of(obj),
        policy=spec.get("policyName", ""),
        matching=Matching.of_resources(spec["matchResources"]) if spec.get("matchResources") else None,
        param_ref=_param_ref(ref) if ref else None,
        actions=tuple(spec.get("validationActions") or ()),
    )


def _param_ref(given: Object) -> ParamRef:
    selector = given.get("selector")
    return ParamRef(
        given.get("name") or "",
        given.get("namespace") or "",
        ParsedSelector.read(selector) if selector is not None else None,
        given.get("parameterNotFoundAction") == "Deny",
    )
