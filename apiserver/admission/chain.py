"""The chain of plug-ins that the registry calls; the first refusal ends it.

Mutating plug-ins run in order. One that requests reinvocation (``reinvocationPolicy``) runs again if a later plug-in
changed the object. Then validating plug-ins run on the complete object.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from apiserver.admission import managed_fields
from apiserver.admission.changes import Changes
from apiserver.admission.metrics import AdmissionMetrics, Step
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Admission, Attributes, Operation


class Plugin(Admission, Protocol):
    """One plug-in of the chain: an Admission, with its name in flags and metrics."""

    name: str


@dataclass(frozen=True, slots=True)
class _Plan:
    mutating: tuple[Plugin, ...]
    validating: tuple[Plugin, ...]
    anybody: bool


class Chain:
    """The admission plug-ins in order. ``changes`` must count every change that may affect their ``handles``, which is cached."""

    def __init__(self, *, mutating: Sequence[Plugin], validating: Sequence[Plugin], metrics: AdmissionMetrics, changes: Changes) -> None:
        self._mutating = tuple(mutating)
        self._validating = tuple(validating)
        self._metrics = metrics
        self._changes = changes
        self._plans: dict[tuple[str, str, str, str, str], _Plan] = {}
        self._plans_at = changes.number

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether any plug-in handles such requests."""
        return self._plan(operation, resource, subresource).anybody

    async def mutate(self, attributes: Attributes) -> None:
        """Let the mutating plug-ins change ``attributes.obj``, twice if one requests reinvocation; raise the first refusal."""
        began = time.perf_counter()
        rejected = True
        owners = managed_fields.of(attributes.obj)
        try:
            for _ in range(2):
                for each in self._plan(attributes.operation, attributes.resource, attributes.subresource).mutating:
                    await self._ask(each.name, "admit", each.mutate, attributes)
                if not attributes.reinvocation.requested:
                    break
                attributes.reinvocation.again = True
            managed_fields.keep(attributes, owners)
            rejected = False
        finally:
            self._metrics.step("admit", attributes.operation, time.perf_counter() - began, rejected=rejected)

    async def validate(self, attributes: Attributes) -> None:
        """Run the validating plug-ins; raise the first refusal."""
        began = time.perf_counter()
        rejected = True
        try:
            for each in self._plan(attributes.operation, attributes.resource, attributes.subresource).validating:
                await self._ask(each.name, "validate", each.validate, attributes)
            rejected = False
        finally:
            self._metrics.step("validate", attributes.operation, time.perf_counter() - began, rejected=rejected)

    async def _ask(self, name: str, step: Step, ask: Callable[[Attributes], Awaitable[None]], attributes: Attributes) -> None:
        began = time.perf_counter()
        rejected = True
        try:
            await ask(attributes)
            rejected = False
        finally:
            self._metrics.plugin(name, step, attributes.operation, time.perf_counter() - began, rejected=rejected)

    def _plan(self, operation: Operation, resource: Resource, subresource: str) -> _Plan:
        if self._plans_at != self._changes.number:
            self._plans, self._plans_at = {}, self._changes.number
        key = (operation, resource.group, resource.version, resource.plural, subresource)
        found = self._plans.get(key)
        if found is None:
            mutating, validating = (
                tuple(each for each in plugins if each.handles(operation, resource, subresource))
                for plugins in (self._mutating, self._validating)
            )
            found = _Plan(mutating, validating, bool(mutating or validating))
            if self._changes.settled:
                self._plans[key] = found
        return found
