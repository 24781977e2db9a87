"""Shared part of both policy plug-ins."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from apiserver.admission import matching
from apiserver.admission.errors import forbidden
from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.namespaces import Namespaces
from apiserver.admission.policy.activation import Input
from apiserver.admission.policy.definitions import Binding, Policy
from apiserver.admission.policy.params import ConfigurationError, UnknownKind
from apiserver.admission.policy.source import Hook, Source
from apiserver.admission.versions import Versions
from apiserver.admission.webhook.review import VersionedAttributes
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.cel.asking import Ask
from apiserver.cel.library.authz import Answer, Question
from apiserver.registry.generic.admission import Attributes

Program = TypeVar("Program")


@dataclass(frozen=True, slots=True)
class Problem:
    """A policy or binding cannot be evaluated; the policy's ``failurePolicy`` applies."""

    policy: Policy
    binding: Binding | None
    message: str


@dataclass(frozen=True, slots=True)
class Invocation(Generic[Program]):
    """A policy to evaluate for a binding and a parameter."""

    policy: Policy
    binding: Binding
    compiled: Program
    resource: Resource
    """Requested, or an equivalent version to convert to."""
    param: Object | None


@dataclass(frozen=True, slots=True)
class PolicyDispatcher(Generic[Program]):
    """Selects the policies that match a request, for both policy plug-ins."""

    source: Source[Program]
    namespaces: Namespaces
    versions: Versions
    ask: Ask
    metrics: AdmissionMetrics = field(repr=False)
    ready_seconds: float = 10.0

    @property
    def ready(self) -> bool:
        """True if all policies, bindings and namespaces are loaded."""
        return self.source.known.is_set() and self.namespaces.synced.is_set()

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether a bound policy's rules match the request, or policies are not loaded."""
        if self.source.idle:
            return not self.ready
        return bool(self.source.hooks(operation, resource, subresource)) or not self.ready

    async def invocations(self, attributes: Attributes) -> list[Invocation[Program] | Problem]:
        """Return an Invocation, or a Problem, per matching policy, binding and parameter. Raises Forbidden if not loaded in time."""
        await self._wait(attributes)
        found: list[Invocation[Program] | Problem] = []
        for hook in self.source.hooks(attributes.operation, attributes.resource, attributes.subresource):
            try:
                resource = await matching.matches(hook.policy.matching, attributes, self.namespaces, self.versions)
            except StatusError as error:
                found.append(Problem(hook.policy, None, error.message))
                continue
            if resource is not None:
                found += await self._bound_each(hook, resource, attributes)
        return found

    async def _bound_each(self, hook: Hook[Program], resource: Resource, attributes: Attributes) -> list[Invocation[Program] | Problem]:
        found: list[Invocation[Program] | Problem] = []
        for binding in hook.bindings:
            try:
                found += await self._bound(hook, binding, resource, attributes)
            except UnknownKind as error:
                return [Problem(hook.policy, None, str(error))]
        return found

    async def _bound(
        self, hook: Hook[Program], binding: Binding, resource: Resource, attributes: Attributes
    ) -> list[Invocation[Program] | Problem]:
        try:
            bound = binding.matching
            if bound is not None and await matching.matches(bound, attributes, self.namespaces, self.versions) is None:
                return []
            params = await self.source.params.of(hook.policy, binding, attributes.namespace)
        except StatusError as error:
            return [Problem(hook.policy, binding, error.message)]
        except UnknownKind:
            raise
        except ConfigurationError as error:
            return [Problem(hook.policy, binding, str(error))]
        return [Invocation(hook.policy, binding, hook.compiled, resource, each) for each in params]

    async def _wait(self, attributes: Attributes) -> None:
        if self.ready:
            return
        try:
            async with asyncio.timeout(self.ready_seconds):
                await self.source.known.wait()
                await self.namespaces.synced.wait()
        except TimeoutError:
            raise forbidden(attributes, "not yet ready to handle request") from None

    async def input(self, attributes: Attributes, resource: Resource, answers: dict[Question, Answer]) -> Input:
        """Return the input of expressions: the request converted to ``resource``, and its namespace.

        ``answers``: to authorization questions so far; expressions of one request share them. Raises NotFound, ServiceUnavailable.
        """
        namespace = await self.namespaces.get(attributes.namespace) if attributes.namespace else None
        return Input(VersionedAttributes.of(attributes, resource, self.versions), namespace, answers)
