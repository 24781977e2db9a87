"""Descriptions of resources for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.strategy import QueryParameter, Strategy, answer_of


@dataclass(frozen=True, slots=True)
class Described:
    """One resource and its subresources, for OpenAPI."""

    resource: Resource
    model: type[Any]
    has_status: bool = True
    has_scale: bool = False
    verbs: Mapping[str, Resource] = field(default_factory=dict)
    """Actions, and their answers."""
    connects: Mapping[str, tuple[QueryParameter, ...]] = field(default_factory=dict)
    """Streams, and their query parameters."""
    segments: Mapping[str, tuple[QueryParameter, ...]] = field(default_factory=dict)
    """In the paths of streams, behind the subresource."""
    reads: Mapping[str, tuple[Resource, type[Any]]] = field(default_factory=dict)
    """Answer and pydantic model."""

    @classmethod
    def of(cls, strategy: Strategy) -> Described:
        """Describe a strategy's resource."""
        own = strategy.resource
        verbs = {name: answer_of(verb, own) for name, verb in strategy.verbs.items()}
        return cls(
            own,
            strategy.model,
            has_status=strategy.has_status,
            has_scale=strategy.scaling is not None,
            verbs=verbs,
            connects={name: stream.parameters for name, stream in strategy.connects.items()},
            segments={name: stream.segments for name, stream in strategy.connects.items() if stream.segments},
            reads={name: (part.answers, part.model) for name, part in strategy.reads.items()},
        )

    @property
    def prefix(self) -> str:
        """Prefix of the resource's schema names: ``io.kubevirt.v1alpha1``."""
        return ".".join([*reversed(self.resource.group.split(".")), self.resource.version])

    @property
    def component(self) -> str:
        """Name of the resource's schema."""
        return f"{self.prefix}.{self.resource.kind}"
