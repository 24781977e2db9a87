"""The ValidatingWebhookConfiguration for evictions.

The chart defines what is reviewed. virt-controller fills in its authorities and the secret in the path. The chart has neither, so an
upgrade leaves both unchanged.

By default kube-apiserver presents no certificate to webhooks, so the secret authenticates it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
from dataclasses import dataclass
from typing import Final

from apiserver.apis.core.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, dig
from apiserver.client.rest import Client, TransportError
from controller.reconcilers.certificates import certificate_plan
from controller.reconcilers.settings import FIELD_MANAGER

logger = logging.getLogger(__name__)

NAME: Final = "evictions.kubevirt.io"
PREFIX: Final = "/evictions/"
SECRET_BYTES: Final = 24
ROTATE_SECONDS: Final = 180.0
RETRY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class EvictionWebhook:
    """Reads and writes ``caBundle`` in the configuration of the eviction webhook."""

    client: Client
    name: str = NAME

    async def fingerprint(self) -> str | None:
        """Return the fingerprint of the webhooks' ``caBundle``; empty if they differ, None without a configuration."""
        try:
            found = await self.client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self.name)
        except errors.NotFound:
            return None
        bundles = {str(dig(each, "clientConfig", "caBundle") or "") for each in webhooks_of(found)}
        return certificate_plan.fingerprint(certificate_plan.decoded(bundles.pop())) if len(bundles) == 1 else ""

    async def inject(self, bundle: bytes) -> None:
        """Write the bundle into each webhook; the URL path stays."""
        changed = copy.deepcopy(await self.client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self.name))
        for each in webhooks_of(changed):
            each["clientConfig"]["caBundle"] = certificate_plan.encoded(bundle)
        await self.client.update(VALIDATING_WEBHOOK_CONFIGURATIONS, changed, field_manager=FIELD_MANAGER)


class SecretRotation:
    """Writes a new secret into the eviction webhook's path at start and every few minutes, on the leader."""

    def __init__(self, client: Client, *, interval: float = ROTATE_SECONDS, retry: float = RETRY_SECONDS, name: str = NAME) -> None:
        self._client = client
        self._interval = interval
        self._retry = retry
        self._name = name

    async def run(self) -> None:
        """Write a new secret periodically until cancelled; after an error, retry sooner."""
        while True:
            try:
                await self.rotate()
            except (errors.NotFound, errors.Conflict):  # not installed yet, or a concurrent write
                pause = self._retry
            except (errors.StatusError, TransportError) as error:
                logger.warning("cannot write the path of the eviction webhook, retrying", extra={"error": str(error)})
                pause = self._retry
            else:
                pause = self._interval
            await asyncio.sleep(pause)

    async def rotate(self) -> None:
        """Write a new secret into the URL path of the webhooks. Raises StatusError, TransportError."""
        changed = copy.deepcopy(await self._client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self._name))
        path = PREFIX + secrets.token_hex(SECRET_BYTES)
        for each in webhooks_of(changed):
            each["clientConfig"]["service"]["path"] = path
        await self._client.update(VALIDATING_WEBHOOK_CONFIGURATIONS, changed, field_manager=FIELD_MANAGER)


def secret_of(configuration: Object) -> str:
    """Return the secret in the URL path of the configuration's first webhook that calls a Service; empty without one."""
    paths = [str(dig(each, "clientConfig", "service", "path") or "") for each in webhooks_of(configuration)]
    return paths[0].removeprefix(PREFIX) if paths and paths[0].startswith(PREFIX) else ""


def webhooks_of(configuration: Object) -> list[Object]:
    """Return the configuration's webhooks that call a Service."""
    return [each for each in configuration.get("webhooks") or () if dig(each, "clientConfig", "service")]
