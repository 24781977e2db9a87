"""The served versions of a kind, as far as plug-ins need them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.strategy import Strategy


class Versions(Protocol):
    """Versions of a resource, and the ways from one to another."""

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return every served version of the resource, itself included."""
        ...

    def convert(self, obj: Object, source: Resource, target: Resource) -> Object:
        """Return a copy of ``obj`` as ``target`` has it."""
        ...


class ServedVersions:
    """The versions of strategies."""

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        self._strategies = {each.resource: each for each in strategies}

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return every served version of the resource, itself included, in the order of the strategies."""
        strategy = self._strategies.get(resource)
        if strategy is None:
            return (resource,)
        return [each.resource for each in self._strategies.values() if each.hub is strategy.hub]

    def convert(self, obj: Object, source: Resource, target: Resource) -> Object:
        """Return a copy of ``obj`` as ``target`` has it."""
        return self._strategies[target].from_hub(self._strategies[source].to_hub(deepcopy(obj)))
