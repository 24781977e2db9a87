"""The served versions of a kind, for plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

from apiserver.admission.errors import internal
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.strategy import Strategy


class Versions(Protocol):
    """Versions of a resource, and conversions of the stored one."""

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return all served versions of the resource, with ``resource`` itself."""
        ...

    def shown(self, obj: HubObject, target: Resource) -> Object:
        """Return ``obj`` in the version of ``target``: a copy; for the stored version ``obj`` itself."""
        ...

    def taken(self, obj: Object, source: Resource) -> HubObject:
        """Convert a changed object from the version of ``source`` to the stored one.

        Raises InternalError for an object that is invalid in another version; one in the stored version is not checked.
        """
        ...


class ServedVersions:
    """The :class:`Versions` of the kinds of ``strategies``."""

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        self._strategies = {each.resource: each for each in strategies}

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return every served version, in the strategies' order; only ``resource`` if it is unknown."""
        strategy = self._strategies.get(resource)
        if strategy is None:
            return (resource,)
        return [each.resource for each in self._strategies.values() if each.hub is strategy.hub]

    def shown(self, obj: HubObject, target: Resource) -> Object:
        """Return ``obj`` in the version of ``target``."""
        strategy = self._strategies[target]
        return obj if strategy.hub is strategy else strategy.from_hub(deepcopy(obj))

    def taken(self, obj: Object, source: Resource) -> HubObject:
        """Convert a changed object to the stored version."""
        strategy = self._strategies[source]
        if strategy.hub is strategy:
            return strategy.to_hub(obj)  # the registry validates it
        taken = deepcopy(obj)
        if errors := strategy.read(taken).errors:
            raise internal(f"admission changed an object of {source.api_version} into an invalid one: {errors[0]}")
        strategy.default(taken)
        return strategy.to_hub(taken)
