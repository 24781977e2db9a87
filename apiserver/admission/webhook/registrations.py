"""``MutatingWebhookConfiguration`` and ``ValidatingWebhookConfiguration`` as frozen values, which kube-apiserver has validated."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.admission.matching import Matching
from apiserver.apis.meta.objects import Json, Object, name_of

DEFAULT_SECONDS: Final = 10
DEFAULT_PORT: Final = 443
_SAFE_IN_DRY_RUN: Final = frozenset({"None", "NoneOnDryRun"})


@dataclass(frozen=True, slots=True)
class Address:
    """A webhook's address: a URL, or a Service."""

    url: str = ""
    service: str = ""
    namespace: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    authority: str = ""
    """PEM; empty: the system's."""
    problem: str = ""
    """Empty if valid."""

    @classmethod
    def read(cls, config: Mapping[str, Json]) -> Address:
        """Parse a ``WebhookClientConfig``; an error becomes the result's ``problem``."""
        try:
            authority = base64.b64decode(config.get("caBundle") or "", validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            return cls(problem="caBundle is not valid base64")
        if service := config.get("service"):
            port = service.get("port") or DEFAULT_PORT
            return cls("", service.get("name") or "", service.get("namespace") or "", port, service.get("path") or "", authority)
        if not config.get("url"):
            return cls(problem="webhook configuration must have either service or URL")
        return cls(config["url"], authority=authority)


@dataclass(frozen=True, slots=True)
class Expression:
    """A named CEL expression: a match condition, or a policy's variable or annotation."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration; ``fails_open``: failed calls do not refuse the request."""

    uid: str
    """``configuration/name/number``, because names may repeat."""
    configuration: str
    name: str
    matching: Matching
    address: Address
    conditions: tuple[Expression, ...] = ()
    fails_open: bool = False
    side_effects: str = "None"
    seconds: int = DEFAULT_SECONDS
    review_versions: tuple[str, ...] = ("v1",)
    reinvoked: bool = False

    @property
    def dry_runs(self) -> bool:
        """True if dry runs may call the webhook."""
        return self.side_effects in _SAFE_IN_DRY_RUN


def read(configuration: Object) -> tuple[Webhook, ...]:
    """Parse a configuration's webhooks in order."""
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
        matching=Matching.of_webhook(given),
        address=Address.read(given.get("clientConfig") or {}),
        conditions=tuple(Expression(each.get("name", ""), each.get("expression", "")) for each in given.get("matchConditions") or ()),
        fails_open=given.get("failurePolicy") == "Ignore",
        side_effects=given.get("sideEffects") or "",
        seconds=given.get("timeoutSeconds") or DEFAULT_SECONDS,
        review_versions=tuple(given.get("admissionReviewVersions") or ()),
        reinvoked=given.get("reinvocationPolicy") == "IfNeeded",
    )
