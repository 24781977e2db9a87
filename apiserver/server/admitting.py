"""Build the enabled admission plug-ins; without a cluster, only the kinds' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from apiserver.admission import plugins
from apiserver.admission.chain import Chain, Plugin
from apiserver.admission.changes import Changes
from apiserver.admission.metrics import AdmissionMetrics, Type
from apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from apiserver.admission.namespaces import Namespaces
from apiserver.admission.policy import conditions, mutating, validating
from apiserver.admission.policy import source as policy_source
from apiserver.admission.policy.definitions import Policy
from apiserver.admission.policy.metrics import MutatingMetrics, ValidatingMetrics
from apiserver.admission.policy.plugin import PolicyDispatcher
from apiserver.admission.resource_quota import ResourceQuotas
from apiserver.admission.versions import ServedVersions
from apiserver.admission.webhook.calling import Caller
from apiserver.admission.webhook.conditions import Matcher
from apiserver.admission.webhook.mutating import MutatingWebhooks
from apiserver.admission.webhook.plugin import WebhookDispatcher
from apiserver.admission.webhook.source import Source
from apiserver.admission.webhook.validating import ValidatingWebhooks
from apiserver.apis.core.resources import (
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from apiserver.apis.meta.objects import Object, without_managed_fields
from apiserver.apis.meta.resources import Resource
from apiserver.cel.asking import Ask
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints.filters.authorization import CachingAuthorizer
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.admission import Admission, AdmitAll
from apiserver.registry.generic.store import Store
from apiserver.registry.generic.strategy import Strategy
from apiserver.server import policies
from apiserver.server.options import Options

_Compiled = TypeVar("_Compiled")


class OwnPlugin(Plugin, Protocol):
    """A kind's validating plug-in, named in ``plugins.ORDER``."""

    def follow(self, stores: Mapping[Resource, Store]) -> None:
        """Receive the stores of all served kinds, once, before the server starts."""
        ...


@dataclass(slots=True)
class Admitting:
    """The admission, and its parts that the process must run."""

    admission: Admission
    informers: list[Informer] = field(default_factory=list)
    """Must be synced first."""
    caller: Caller = field(default_factory=Caller)
    """To enter before the first request."""
    sources: list[policy_source.Source[Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Parts:
    client: Client
    strategies: Sequence[Strategy]
    metrics: AdmissionMetrics
    namespaces: Namespaces
    made: Admitting
    ask: Ask
    registry: Registry
    ready_seconds: float
    changes: Changes = field(default_factory=Changes)

    def follow(self, informer: Informer) -> None:
        """Register the informer: startup waits for it, and its changes reset cached plans."""
        self.made.informers.append(informer)
        self.changes.follow(informer)

    def informer(self, resource: Resource) -> Informer:
        informer = Informer(self.client, resource, trim=without_managed_fields)
        self.follow(informer)
        return informer

    def policies(
        self, policies: Resource, bindings: Resource, compile_: Callable[[Policy], _Compiled]
    ) -> policy_source.Source[_Compiled]:  # fmt: skip
        source = policy_source.Source(self.client, policies, bindings, ServedVersions(self.strategies), compile_)
        self.made.sources.append(source)
        source.subscribe(self.changes.note)
        self.changes.wait_for(source.known)
        return source

    def policy_dispatcher(self, source: policy_source.Source[_Compiled]) -> PolicyDispatcher[_Compiled]:
        return PolicyDispatcher(source, self.namespaces, ServedVersions(self.strategies), self.ask, self.metrics, self.ready_seconds)

    def webhook_dispatcher(self, type_: Type, resource: Resource) -> WebhookDispatcher:
        versions = ServedVersions(self.strategies)
        matcher = Matcher(conditions.for_webhooks(self.ask), self.metrics, type_)
        source = Source(self.informer(resource), versions)
        return WebhookDispatcher(type_, source, self.namespaces, versions, matcher, self.made.caller, self.metrics, self.ready_seconds)


def _lifecycle(parts: _Parts) -> Plugin:
    return NamespaceLifecycle(parts.namespaces)


def _mutating_webhooks(parts: _Parts) -> Plugin:
    return MutatingWebhooks(parts.webhook_dispatcher("admit", MUTATING_WEBHOOK_CONFIGURATIONS))


def _validating_webhooks(parts: _Parts) -> Plugin:
    return ValidatingWebhooks(parts.webhook_dispatcher("validating", VALIDATING_WEBHOOK_CONFIGURATIONS))


def _quotas(parts: _Parts) -> Plugin:
    quotas = ResourceQuotas(parts.client)
    parts.made.informers.append(quotas.informer)
    parts.changes.wait_for(quotas.informer.synced)

    def came_or_went(old: Object | None, new: Object | None) -> None:
        if old is None or new is None:  # usage changes often
            parts.changes.note()

    quotas.informer.subscribe(came_or_went)
    return quotas


def _mutating_policies(parts: _Parts) -> Plugin:
    source = parts.policies(MUTATING_POLICIES, MUTATING_POLICY_BINDINGS, mutating.compile_policy)
    metrics = MutatingMetrics()
    metrics.register(parts.registry)
    return mutating.MutatingPolicies(parts.policy_dispatcher(source), policies.schemas(parts.strategies), metrics)


def _validating_policies(parts: _Parts) -> Plugin:
    source = parts.policies(VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS, validating.compile_policy)
    metrics = ValidatingMetrics()
    metrics.register(parts.registry)
    return validating.ValidatingPolicies(parts.policy_dispatcher(source), metrics)


_MUTATING: Final[dict[str, Callable[[_Parts], Plugin]]] = {
    plugins.NAMESPACE_LIFECYCLE: _lifecycle,
    plugins.MUTATING_POLICY: _mutating_policies,
    plugins.MUTATING_WEBHOOK: _mutating_webhooks,
}
_VALIDATING: Final[dict[str, Callable[[_Parts], Plugin]]] = {
    plugins.VALIDATING_POLICY: _validating_policies,
    plugins.VALIDATING_WEBHOOK: _validating_webhooks,
    plugins.RESOURCE_QUOTA: _quotas,
}


def admitting(
    options: Options,
    client: Client | None,
    strategies: Sequence[Strategy],
    registry: Registry,
    authorizer: CachingAuthorizer,
    own: Sequence[OwnPlugin] = (),
) -> Admitting:
    """Build the chain of the plug-ins that the flags enable; without ``client``, only of those in ``own``."""
    on = plugins.enabled(options.enable_admission_plugins, options.disable_admission_plugins)
    brought = {each.name: each for each in own if each.name in on}
    if client is None and not brought:
        return Admitting(AdmitAll())
    metrics = AdmissionMetrics()
    metrics.register(registry)
    if client is None:
        return Admitting(Chain(mutating=(), validating=tuple(brought.values()), metrics=metrics, changes=Changes()))
    namespaces = Namespaces.of(client)
    made = Admitting(AdmitAll(), [namespaces.informer])
    parts = _Parts(
        client,
        strategies,
        metrics,
        namespaces,
        made,
        policies.asking(authorizer),
        registry,
        options.times.admission,
    )
    made.admission = Chain(
        mutating=[_MUTATING[each](parts) for each in on if each in _MUTATING],
        validating=[
            brought[each] if each in brought else _VALIDATING[each](parts) for each in on if each in brought or each in _VALIDATING
        ],
        metrics=metrics,
        changes=parts.changes,
    )
    return made
