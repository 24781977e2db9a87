"""The chain of plug-ins, which is the :class:`~apiserver.registry.generic.admission.Admission` that the registry asks.

Mutating plug-ins run one after the other in their order, and once more when one that ran late changed what an earlier one wants to see
(``reinvocationPolicy``); then, once the object is whole, the validating ones. The first refusal ends it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from apiserver.admission.metrics import AdmissionMetrics, Step
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Admission, Attributes, Operation


class Plugin(Admission, Protocol):
    """One plug-in of the chain."""

    name: str


class Chain:
    """See the module."""

    def __init__(self, *, mutating: Sequence[Plugin], validating: Sequence[Plugin], metrics: AdmissionMetrics) -> None:
        self._mutating = tuple(mutating)
        self._validating = tuple(validating)
        self._all = tuple(dict.fromkeys((*mutating, *validating)))
        self._metrics = metrics

    @property
    def names(self) -> tuple[str, ...]:
        """Return the plug-ins' names."""
        return tuple(each.name for each in self._all)

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether any plug-in wants to be asked."""
        for each in self._all:  # noqa: SIM110 - a generator costs twice as much
            if each.handles(operation, resource, subresource):
                return True
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Ask the mutating plug-ins.

        Raises:
            StatusError: one refuses.
        """
        await self._run("admit", self._mutate, attributes)

    async def _mutate(self, attributes: Attributes) -> None:
        for _ in range(2):
            for each in self._mutating:
                if each.handles(attributes.operation, attributes.resource, attributes.subresource):
                    await self._ask(each.name, "admit", each.mutate, attributes)
            if not attributes.reinvocation.requested:
                return
            attributes.reinvocation.again = True

    async def validate(self, attributes: Attributes) -> None:
        """Ask the validating plug-ins.

        Raises:
            StatusError: one refuses.
        """
        await self._run("validate", self._validate, attributes)

    async def _validate(self, attributes: Attributes) -> None:
        for each in self._validating:
            if each.handles(attributes.operation, attributes.resource, attributes.subresource):
                await self._ask(each.name, "validate", each.validate, attributes)

    async def _run(self, step: Step, ask: Callable[[Attributes], Awaitable[None]], attributes: Attributes) -> None:
        began = time.perf_counter()
        rejected = True
        try:
            await ask(attributes)
            rejected = False
        finally:
            self._metrics.step(step, attributes.operation, time.perf_counter() - began, rejected=rejected)

    async def _ask(self, name: str, step: Step, ask: Callable[[Attributes], Awaitable[None]], attributes: Attributes) -> None:
        began = time.perf_counter()
        rejected = True
        try:
            await ask(attributes)
            rejected = False
        finally:
            self._metrics.plugin(name, step, attributes.operation, time.perf_counter() - began, rejected=rejected)
