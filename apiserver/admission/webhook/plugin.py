"""Shared part of both webhook plug-ins."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass

from apiserver.admission.errors import forbidden, internal
from apiserver.admission.matching import selects
from apiserver.admission.metrics import AdmissionMetrics, Type
from apiserver.admission.namespaces import Namespaces
from apiserver.admission.versions import Versions
from apiserver.admission.webhook import annotating, review
from apiserver.admission.webhook.calling import Caller
from apiserver.admission.webhook.conditions import Matcher
from apiserver.admission.webhook.errors import CallFailed, Denied, denied, no_dry_run
from apiserver.admission.webhook.registrations import Webhook
from apiserver.admission.webhook.review import Answer, VersionedAttributes
from apiserver.admission.webhook.source import Candidate, Source
from apiserver.apis.meta.errors import StatusError
from apiserver.registry.generic.admission import Attributes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookDispatcher:
    """Selects and calls webhooks for the mutating or the validating plug-in."""

    type_: Type
    source: Source
    namespaces: Namespaces
    versions: Versions
    matcher: Matcher
    caller: Caller
    metrics: AdmissionMetrics
    ready_seconds: float = 10.0

    @property
    def ready(self) -> bool:
        """True if all webhooks and namespaces are loaded."""
        return self.source.synced.is_set() and self.namespaces.synced.is_set()

    async def candidates(self, attributes: Attributes) -> tuple[Candidate, ...]:
        """Return the webhooks with matching rules, in order. Raises Forbidden if they are not loaded in time."""
        if not self.ready:
            try:
                async with asyncio.timeout(self.ready_seconds):
                    await self.source.synced.wait()
                    await self.namespaces.synced.wait()
            except TimeoutError:
                raise forbidden(attributes, "not yet ready to handle request") from None
        return self.source.candidates(attributes.operation, attributes.resource, attributes.subresource)

    async def wants(self, webhook: Webhook, versioned: VersionedAttributes) -> bool:
        """Return whether the request matches a webhook's selectors and ``matchConditions``.

        Raises NotFound, InternalError or Forbidden if that cannot be evaluated.
        """
        if not await selects(webhook.matching, versioned.attributes, self.namespaces):
            return False
        return await self.matcher.wanted(webhook, versioned)

    def versioned(self, candidate: Candidate, attributes: Attributes) -> VersionedAttributes:
        """Return the request converted to the version of the webhook's rules."""
        return VersionedAttributes.of(attributes, candidate.resource, self.versions)

    async def ask(self, webhook: Webhook, versioned: VersionedAttributes) -> Answer:
        """Call a webhook, add its warnings and annotations to the request, and return its answer if it allows the request.

        Raises Denied, CallFailed, or BadRequest for a dry run if the webhook may have side effects.
        """
        attributes = versioned.attributes
        if attributes.dry_run:
            if not webhook.side_effects:
                raise CallFailed(webhook.name, "Webhook SideEffects is nil", 400)
            if not webhook.dry_runs:
                raise no_dry_run(webhook.name)
        speaks = review.version(webhook.review_versions)
        if speaks is None:
            why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallFailed(webhook.name, why, 400)
        uid = str(uuid.uuid4())
        raw = await self.caller.call(webhook, review.question(uid, versioned, speaks))
        try:
            answer = review.answer(raw, uid, speaks, mutating=self.type_ == "admit")
        except review.WrongAnswer as wrong:
            raise CallFailed(webhook.name, f"received invalid webhook response: {wrong}", 503) from wrong
        for key, value in answer.annotations.items():
            annotating.given(attributes, webhook, key, value)
        for each in answer.warnings:
            attributes.warn(each)
        if not answer.allowed:
            raise denied(webhook.name, answer.result)
        return answer

    def count(self, webhook: Webhook, attributes: Attributes, began: float, error: Exception | None) -> None:
        """Record a webhook's call in the metrics; ``began``: its ``time.perf_counter()``; no ``error`` means allowed."""
        seconds = time.perf_counter() - began
        about = (webhook.name, self.type_, attributes.operation)
        match error:
            case None:
                self.metrics.webhook(*about, seconds, 200, rejected=False)
            case CallFailed():
                if not webhook.fails_open:
                    self.metrics.rejection(*about, "calling_webhook_error", error.code)
                self.metrics.webhook(*about, seconds, error.code, rejected=not webhook.fails_open)
            case Denied():
                self.metrics.rejection(*about, "no_error", error.code)
                self.metrics.webhook(*about, seconds, error.code, rejected=True)
            case _:
                self.metrics.rejection(*about, "apiserver_internal_error", 0)
                self.metrics.webhook(*about, seconds, 0, rejected=True)

    def failed(self, webhook: Webhook, attributes: Attributes, error: CallFailed, prefix: str, place: str) -> StatusError | None:
        """Log a failed call; return the client's error, or None if ``failurePolicy`` ignores it.

        An ignored one is counted, and annotated as by :func:`annotating.failed_open`.
        """
        about = {"webhook": webhook.name, "configuration": webhook.configuration, "error": str(error)}
        if not webhook.fails_open:
            logger.warning("cannot call a webhook: the request is rejected", extra=about)
            return internal(str(error))
        logger.warning("cannot call a webhook: ignored", extra=about)
        self.metrics.failed_open(webhook.name, self.type_)
        annotating.failed_open(attributes, webhook, prefix, place)
        return None
