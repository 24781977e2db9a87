"""Rules of webhooks and policies: operations on resources (``webhook/predicates/rules``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta.objects import Json
from apiserver.apis.meta.resources import Resource

ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests to match; each set may contain ``*``."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """(resource, subresource), the latter empty for the object: ``virtualmachines/*`` includes the object."""
    scope: str = ANY
    names: frozenset[str] = frozenset()
    """Empty: all. Webhooks' rules have none."""

    def matches(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether the rule matches a request, whatever the object's name."""
        return (
            self._in_scope(resource)
            and _holds(self.operations, operation)
            and _holds(self.groups, resource.group)
            and _holds(self.versions, resource.version)
            and any(plural in (ANY, resource.plural) and below in (ANY, subresource) for plural, below in self.resources)
        )

    def _in_scope(self, resource: Resource) -> bool:
        if self.scope in (ANY, ""):
            return True
        return self.scope == ("Namespaced" if resource.namespaced else "Cluster")

    @classmethod
    def read(cls, rule: Mapping[str, Json]) -> Rule:
        """Parse a ``RuleWithOperations`` or ``NamedRuleWithOperations``."""
        resources = tuple((plural, below) for plural, _, below in (each.partition("/") for each in rule.get("resources") or ()))
        return cls(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            resources,
            rule.get("scope") or ANY,
            frozenset(rule.get("resourceNames") or ()),
        )


def _holds(items: frozenset[str], wanted: str) -> bool:
    return ANY in items or wanted in items
