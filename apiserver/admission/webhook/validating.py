"""ValidatingAdmissionWebhook: webhooks that can refuse requests."""

from __future__ import annotations

import asyncio
import logging
import time

from apiserver.admission.webhook import annotating
from apiserver.admission.webhook.errors import CallFailed
from apiserver.admission.webhook.plugin import WebhookDispatcher
from apiserver.admission.webhook.registrations import Webhook
from apiserver.admission.webhook.review import VersionedAttributes
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes, Operation

logger = logging.getLogger(__name__)


class ValidatingWebhooks:
    """The admission plug-in that calls all matching validating webhooks at once; each can refuse the request."""

    name = "ValidatingAdmissionWebhook"

    def __init__(self, dispatcher: WebhookDispatcher) -> None:
        self._dispatcher = dispatcher

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether a webhook may match the request; True while webhooks are not loaded."""
        return bool(self._dispatcher.source.candidates(operation, resource, subresource)) or not self._dispatcher.ready

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Call all matching webhooks concurrently; after all answers, raise the refusal of the first one in their order."""
        chosen: list[tuple[Webhook, VersionedAttributes]] = []
        versions: dict[Resource, VersionedAttributes] = {}
        for each in await self._dispatcher.candidates(attributes):
            versioned = versions.get(each.resource)
            if versioned is None:
                versioned = versions[each.resource] = self._dispatcher.versioned(each, attributes)
            if await self._dispatcher.wants(each.webhook, versioned):
                chosen.append((each.webhook, versioned))
        if not chosen:
            return
        began = time.perf_counter()
        refusals = await self._all(chosen)
        attributes.wait("validating-webhook", time.perf_counter() - began)
        if refusals:
            raise refusals[min(refusals)]

    async def _all(self, chosen: list[tuple[Webhook, VersionedAttributes]]) -> dict[int, StatusError]:
        refusals: dict[int, StatusError] = {}

        async def one(position: int, webhook: Webhook, versioned: VersionedAttributes) -> None:
            refusal = await self._one(position, webhook, versioned)
            if refusal is not None:
                logger.info("a webhook refused a request", extra={"webhook": webhook.name, "code": refusal.code})
                refusals[position] = refusal

        if len(chosen) == 1:
            await one(0, *chosen[0])
            return refusals
        async with asyncio.TaskGroup() as tasks:
            for position, each in enumerate(chosen):
                tasks.create_task(one(position, *each))
        return refusals

    async def _one(self, position: int, webhook: Webhook, versioned: VersionedAttributes) -> StatusError | None:
        began = time.perf_counter()
        error: StatusError | CallFailed | None = None
        try:
            await self._dispatcher.ask(webhook, versioned)
        except (StatusError, CallFailed) as raised:
            error = raised
        self._dispatcher.count(webhook, versioned.attributes, began, error)
        if isinstance(error, CallFailed):
            return self._dispatcher.failed(webhook, versioned.attributes, error, annotating.VALIDATING, f"round_0_index_{position}")
        return error
