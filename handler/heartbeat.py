"""The sign of life of this node: a Lease ``virt-handler-<node>``, renewed every ten seconds.

It lies in a namespace where there is nothing else, and a policy of the chart holds each virt-handler to the Lease of the node that its
token names. virt-controller reads it: a node is silent when its kubelet does not report and this Lease was not renewed in time. Its
annotation says whether guests are accelerated here, and why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import names
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import Clock
from handler.devices.acceleration import Verdict

logger = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
DURATION_SECONDS: Final = 40
"""As kubelets: a node counts as silent after four renewals that did not come."""
ACCELERATION_ANNOTATION: Final = f"{names.GROUP}/acceleration"


def lease(node: str, namespace: str, verdict: Verdict, now: str) -> Object:
    """Return the lease as it should be."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": names.handler_lease(node),
            "namespace": namespace,
            "labels": {names.COMPONENT_LABEL: names.HANDLER},
            "annotations": {ACCELERATION_ANNOTATION: f"{verdict.accelerator}: {verdict.reason}"},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now},
    }


async def run(client: Client, node: str, namespace: str, verdict: Callable[[], Verdict], clock: Clock) -> None:
    """Renew until cancelled; while the API server is away, try again at the next beat."""
    while True:
        wanted = lease(node, namespace, verdict(), times.to_rfc3339_micro(clock.now()))
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                await _write(client, wanted, namespace)
        except (errors.StatusError, TransportError, TimeoutError) as error:
            logger.warning("renew lease %s: %s", wanted["metadata"]["name"], str(error) or "no answer in time")
        await asyncio.sleep(RENEW_SECONDS)


async def _write(client: Client, wanted: Object, namespace: str) -> None:
    try:
        await client.patch(LEASES, wanted["metadata"]["name"], wanted, namespace)
    except errors.NotFound:
        await client.create(LEASES, wanted, namespace)
