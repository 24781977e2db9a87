"""The ValidatingWebhookConfiguration by which kube-apiserver asks virt-controller about evictions.

The chart says what is asked about; virt-controller keeps in it what only it knows: the authorities by which its own certificate is
verified, and the secret in the path. Neither stands in the chart, so that an upgrade leaves both.

kube-apiserver shows webhooks no certificate unless its administrator configures one, so the secret says who asks. It is short-lived,
because kube-apiserver names the whole address to whoever is evicting while nobody answers there, and that may be a tenant.
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
"""Of the path, before the secret."""
SECRET_BYTES: Final = 24
ROTATE_SECONDS: Final = 180.0
"""Seconds for which a secret stands in the path."""
RETRY_SECONDS: Final = 10.0
"""After a secret that could not be written."""


@dataclass(frozen=True, slots=True)
class EvictionWebhook:
    """``caBundle`` of the webhook, a consumer of the authorities' bundle."""

    client: Client
    name: str = NAME

    async def fingerprint(self) -> str | None:
        """Return the fingerprint of ``caBundle``, empty where webhooks differ; None without the configuration."""
        try:
            found = await self.client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self.name)
        except errors.NotFound:
            return None
        bundles = {str(dig(each, "clientConfig", "caBundle") or "") for each in webhooks_of(found)}
        return certificate_plan.fingerprint(certificate_plan.decoded(bundles.pop())) if len(bundles) == 1 else ""

    async def inject(self, bundle: bytes) -> None:
        """Write the bundle, and leave the path.

        Raises:
            Conflict: somebody else wrote meanwhile.
        """
        changed = copy.deepcopy(await self.client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self.name))
        for each in webhooks_of(changed):
            each["clientConfig"]["caBundle"] = certificate_plan.encoded(bundle)
        await self.client.update(VALIDATING_WEBHOOK_CONFIGURATIONS, changed, field_manager=FIELD_MANAGER)


class SecretRotation:
    """Writes a new secret into the path, at once and every few minutes; run it under the leader's lease."""

    def __init__(self, client: Client, *, interval: float = ROTATE_SECONDS, retry: float = RETRY_SECONDS, name: str = NAME) -> None:
        """``interval`` and ``retry`` are seconds."""
        self._client = client
        self._interval = interval
        self._retry = retry
        self._name = name

    async def run(self) -> None:
        """Rotate until cancelled."""
        while True:
            try:
                await self.rotate()
            except (errors.NotFound, errors.Conflict):  # not installed yet, or somebody wrote meanwhile
                pause = self._retry
            except (errors.StatusError, TransportError) as error:
                logger.warning("cannot change the path of the evictions' webhook, try again", extra={"error": str(error)})
                pause = self._retry
            else:
                pause = self._interval
            await asyncio.sleep(pause)

    async def rotate(self) -> None:
        """Write a new secret.

        Raises:
            StatusError: kube-apiserver refused the read or the write.
            TransportError: kube-apiserver did not answer.
        """
        changed = copy.deepcopy(await self._client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self._name))
        path = PREFIX + secrets.token_hex(SECRET_BYTES)  # each part of a path has to be the name of a subdomain
        for each in webhooks_of(changed):
            each["clientConfig"]["service"]["path"] = path
        await self._client.update(VALIDATING_WEBHOOK_CONFIGURATIONS, changed, field_manager=FIELD_MANAGER)


def secret_of(configuration: Object) -> str:
    """Return the secret in the path of a configuration's first webhook, or an empty string."""
    paths = [str(dig(each, "clientConfig", "service", "path") or "") for each in webhooks_of(configuration)]
    return paths[0].removeprefix(PREFIX) if paths and paths[0].startswith(PREFIX) else ""


def webhooks_of(configuration: Object) -> list[Object]:
    """Return the webhooks of a configuration that ask a Service."""
    return [each for each in configuration.get("webhooks") or () if dig(each, "clientConfig", "service")]
