"""The Pod Security label that admits virt-handler, which is privileged, to the installation's namespace.

An existing level is kept. If it is too strict, the log and the Events of the DaemonSet say so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from apiserver.apis.core.resources import NAMESPACES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import labels_of, resource_version_of
from apiserver.client.rest import Client, TransportError

logger = logging.getLogger(__name__)

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
LEVEL: Final = "privileged"
RESYNC_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 10.0


class NamespaceLabels:
    """Sets the Pod Security label of the installation's namespace if there is none; checks every ten minutes."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def run(self) -> None:
        """Call :meth:`ensure` periodically until cancelled; log failures."""
        told = ""
        while True:
            pause = RESYNC_SECONDS
            try:
                level = await self.ensure()
            except (errors.StatusError, TransportError) as error:
                found, pause = f"label namespace {self._namespace} {ENFORCE}={LEVEL}: {error}", RETRY_SECONDS
                if isinstance(error, errors.Forbidden):
                    pause = RESYNC_SECONDS
            else:
                found = (
                    "" if level == LEVEL else f"namespace {self._namespace} has {ENFORCE}={level}: Pod Security does not admit virt-handler"
                )
            if found and found != told:
                logger.warning(found)
            told = found
            await asyncio.sleep(pause)

    async def ensure(self) -> str:
        """Return the namespace's enforced Pod Security level; without one, set ``privileged``. Raises StatusError, TransportError."""
        namespace = await self._client.get(NAMESPACES, self._namespace)
        level = labels_of(namespace).get(ENFORCE)
        if level:
            return level
        patch = {"metadata": {"resourceVersion": resource_version_of(namespace), "labels": {ENFORCE: LEVEL}}}
        await self._client.patch(NAMESPACES, self._namespace, patch)
        logger.info("labelled namespace %s %s=%s: virt-handler is privileged", self._namespace, ENFORCE, LEVEL)
        return LEVEL
