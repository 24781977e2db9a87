"""``MutatingWebhookConfiguration`` and ``ValidatingWebhookConfiguration`` as frozen values; kube-apiserver validated them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import labels
from apiserver.apis.meta.objects import Json, Object, name_of
from apiserver.apis.meta.resources import Resource

ANY: Final = "*"
DEFAULT_SECONDS: Final = 10
DEFAULT_PORT: Final = 443
_SAFE_IN_DRY_RUN: Final = frozenset({"None", "NoneOnDryRun"})


@dataclass(frozen=True, slots=True)
class Rule:
    """What a webhook wants to see; each set may hold ``*``."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """(resource, subresource), the latter empty for the object itself: ``virtualmachines/*`` takes in the object, too."""
    scope: str = ANY

    def matches(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether it wants to see this."""
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
        """Return a ``RuleWithOperations``."""
        resources = tuple((plural, below) for plural, _, below in (each.partition("/") for each in rule.get("resources") or ()))
        return cls(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            resources,
            rule.get("scope") or ANY,
        )


def _holds(items: frozenset[str], wanted: str) -> bool:
    return ANY in items or wanted in items


@dataclass(frozen=True, slots=True)
class Address:
    """Where a webhook is served: a URL, or a Service of the cluster. Hashable: connections are kept by it."""

    url: str = ""
    service: str = ""
    namespace: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    authority: str = ""
    """PEM of the authorities that may have signed its certificate; empty: the system's."""
    problem: str = ""
    """Why it cannot be used."""

    @classmethod
    def read(cls, config: Mapping[str, Json]) -> Address:
        """Return a ``WebhookClientConfig``."""
        try:
            authority = base64.b64decode(config.get("caBundle") or "", validate=True).decode("ascii", errors="replace")
        except (binascii.Error, ValueError):
            return cls(problem="caBundle is no base64")
        if service := config.get("service"):
            port = service.get("port") or DEFAULT_PORT
            return cls("", service.get("name") or "", service.get("namespace") or "", port, service.get("path") or "", authority)
        if not config.get("url"):
            return cls(problem="webhook configuration must have either service or URL")
        return cls(config["url"], authority=authority)


@dataclass(frozen=True, slots=True)
class Wish:
    """A selector, or why it is none: whoever asks it hears of that."""

    selector: labels.Selector = labels.EVERYTHING
    problem: str = ""

    @classmethod
    def read(cls, selector: Mapping[str, Json] | None) -> Wish:
        """Return a ``LabelSelector``."""
        try:
            return cls(labels.from_json(selector))
        except (KeyError, TypeError, AttributeError) as error:
            return cls(problem=f"a label selector cannot be read: {error!r}")


@dataclass(frozen=True, slots=True)
class Expression:
    """A match condition in CEL."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration."""

    uid: str
    """``configuration/name/number``: names need not be unique."""
    configuration: str
    name: str
    rules: tuple[Rule, ...]
    address: Address
    namespaces: Wish = Wish()
    objects: Wish = Wish()
    conditions: tuple[Expression, ...] = ()
    equivalent: bool = True
    """``matchPolicy: Equivalent``: other versions of what the rules name count, too."""
    fails_open: bool = False
    """``failurePolicy: Ignore``."""
    side_effects: str = "None"
    seconds: int = DEFAULT_SECONDS
    review_versions: tuple[str, ...] = ("v1",)
    reinvoked: bool = False
    """``reinvocationPolicy: IfNeeded``."""

    @property
    def dry_runs(self) -> bool:
        """Whether it may be called for a dry run."""
        return self.side_effects in _SAFE_IN_DRY_RUN


def read(configuration: Object) -> tuple[Webhook, ...]:
    """Return the webhooks of a configuration, in its order."""
    counts: dict[str, int] = {}
    webhooks = []
    for each in configuration.get("webhooks") or ():
        name = each.get("name") or ""
        number = counts.get(name, 0)
        counts[name] = number + 1
        webhooks.append(_webhook(name_of(configuration), name, number, each))
    return tuple(webhooks)


def _webhook(configuration: str, name: str, number: int, given: Object) -> Webhook:
    return Webhook(
        uid=f"{configuration}/{name}/{number}",
        configuration=configuration,
        name=name,
        rules=tuple(Rule.read(each) for each in given.get("rules") or ()),
        address=Address.read(given.get("clientConfig") or {}),
        namespaces=Wish.read(given.get("namespaceSelector")),
        objects=Wish.read(given.get("objectSelector")),
        conditions=tuple(Expression(each.get("name", ""), each.get("expression", "")) for each in given.get("matchConditions") or ()),
        equivalent=(given.get("matchPolicy") or "Equivalent") == "Equivalent",
        fails_open=given.get("failurePolicy") == "Ignore",
        side_effects=given.get("sideEffects") or "",
        seconds=given.get("timeoutSeconds") or DEFAULT_SECONDS,
        review_versions=tuple(given.get("admissionReviewVersions") or ()),
        reinvoked=given.get("reinvocationPolicy") == "IfNeeded",
    )
