"""Webhooks, indexed by operation, resource and subresource; a lookup allocates nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from apiserver.admission.versions import Versions
from apiserver.admission.webhook.registrations import Webhook, read
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer

_REGISTRATION: Final = "admissionregistration.k8s.io"
_EXEMPT: Final = frozenset(
    f"{effect}{kind}"
    for effect in ("Mutating", "Validating")
    for kind in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A webhook with matching rules."""

    position: int
    """Among all webhooks: part of annotations."""
    webhook: Webhook
    resource: Resource
    """Requested, or an equivalent version to convert to."""


class Source:
    """The webhooks of one kind of configuration."""

    def __init__(self, informer: Informer, versions: Versions) -> None:
        self._informer = informer
        self._versions = versions
        self._read: dict[str, tuple[Webhook, ...]] = {}
        self._webhooks: tuple[Webhook, ...] | None = None
        self._index: dict[tuple[str, str, str, str, str], tuple[Candidate, ...]] = {}
        informer.subscribe(self._changed)

    @property
    def synced(self) -> asyncio.Event:
        """Event that is set once every configuration is loaded."""
        return self._informer.synced

    @property
    def webhooks(self) -> tuple[Webhook, ...]:
        """Every webhook, sorted by configuration, then in its order."""
        if self._webhooks is None:
            self._webhooks = tuple(each for name in sorted(self._read) for each in self._read[name])
        return self._webhooks

    def candidates(self, operation: str, resource: Resource, subresource: str) -> tuple[Candidate, ...]:
        """Return the webhooks with matching rules, in order; none for requests about webhook configurations and policies."""
        key = (operation, resource.group, resource.version, resource.plural, subresource)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = self._matching(operation, resource, subresource)
        return found

    def _matching(self, operation: str, resource: Resource, subresource: str) -> tuple[Candidate, ...]:
        if resource.group == _REGISTRATION and resource.kind in _EXEMPT:
            return ()  # otherwise a webhook that refuses everything could not be removed
        equivalents = self._versions.equivalents(resource)
        found = []
        for position, webhook in enumerate(self.webhooks):
            matched = webhook.matching.named(operation, resource, subresource, equivalents)
            if matched is not None:
                found.append(Candidate(position, webhook, matched))
        return tuple(found)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._read[name_of(new)] = read(new)
        elif old is not None:
            self._read.pop(name_of(old), None)
        self._webhooks = None
        self._index = {}
