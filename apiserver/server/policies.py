"""Connect the policy plug-ins to the authorizer and to the schemas of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from apiserver.admission.policy.merging import Schemas
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.managedfields import openapi
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.cel.asking import Ask
from apiserver.cel.library.authz import Answer, Question
from apiserver.endpoints.filters.authorization import Authorizer
from apiserver.endpoints.openapi import version3
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.registry.generic.strategy import Strategy


def asking(authorizer: Authorizer) -> Ask:
    """Return a function that answers an expression's authorization question; an error of the authorizer denies, with its message."""

    async def ask(question: Question) -> Answer:
        try:
            decision = await authorizer.decide(question.who, _info(question))
        except StatusError as error:
            return Answer(allowed=False, error=error.message)
        return Answer(decision.allowed, decision.reason)

    return ask


def _info(question: Question) -> RequestInfo:
    if not question.resource:
        return RequestInfo("", question.path, question.verb)
    return RequestInfo(
        "",
        "",
        question.verb,
        is_resource=True,
        group=question.group,
        version="*",
        namespace=question.namespace,
        resource=question.resource,
        subresource=question.subresource,
        name=question.name,
        label_selector=question.label_selector,
        field_selector=question.field_selector,
    )


def schemas(strategies: Sequence[Strategy]) -> Schemas:
    """Return a function that returns all kinds' schemas by (apiVersion, kind), computed at its first call."""

    @cache
    def types() -> Mapping[tuple[str, str], Atom]:
        found: dict[tuple[str, str], Atom] = {}
        for version in {each.resource.api_version for each in strategies}:
            described = [Described.of(each) for each in strategies if each.resource.api_version == version]
            found |= openapi.types(version3.build(described, title="", version=""))
        return found

    return types
