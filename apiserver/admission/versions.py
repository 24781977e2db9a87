"""The served versions of a kind, as far as plug-ins need them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

from apiserver.admission.errors import internal
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.strategy import Strategy


class Versions(Protocol):
    """Versions of a resource, and the ways from the stored one to each of them and back."""

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return every served version of the resource, itself included."""
        ...

    def shown(self, obj: HubObject, target: Resource) -> Object:
        """Return ``obj`` as ``target`` has it: itself in the stored version, else a copy."""
        ...

    def taken(self, obj: Object, source: Resource) -> HubObject:
        """Return what a webhook or a policy made of an object that it was shown as ``source``, as the stored version has it.

        Raises:
            InternalError: it does not have the shape of ``source``.
        """
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

    def shown(self, obj: HubObject, target: Resource) -> Object:
        """Return ``obj`` as ``target`` has it: itself in the stored version, else a copy."""
        strategy = self._strategies[target]
        return obj if strategy.hub is strategy else strategy.from_hub(deepcopy(obj))

    def taken(self, obj: Object, source: Resource) -> HubObject:
        """Return what was made of an object of ``source`` as the stored version has it; unknown fields are dropped.

        Raises:
            InternalError: it does not have the shape of ``source``, on which conversions rely.
        """
        strategy = self._strategies[source]
        if strategy.hub is strategy:
            return strategy.to_hub(obj)  # the registry holds it against the schema
        taken = deepcopy(obj)
        if errors := strategy.read(taken).errors:
            raise internal(f"admission left an object of {source.api_version} that cannot be read: {errors[0]}")
        strategy.default(taken)
        return strategy.to_hub(taken)
