"""This node's heartbeat: a Lease ``virt-handler-<node>``, renewed every ten seconds.

virt-controller judges by it whether the node is unreachable. Annotations show whether and why guests are accelerated, and this process's
versions of the node protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import node_protocol
from apiserver.apis.virt.places import names, node_states
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import Clock
from handler.devices.acceleration import Verdict
from handler.nodeuid import NodeUid

logger = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
DURATION_SECONDS: Final = 40
"""As for kubelets: four missed renewals make a node unreachable."""


def owner(node: str, uid: str) -> Object:
    """Return a node's ownerReference, which does not block deletion: that would need rights to the Node."""
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node, "uid": uid}


def lease(node: str, namespace: str, verdict: Verdict, now: str, uid: str = "", duration_seconds: int = DURATION_SECONDS) -> Object:
    """Return this node's Lease, renewed ``now``; the Node owns it if its ``uid`` is known.

    ``verdict``: whether guests are accelerated, and why; an annotation.
    """
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": names.handler_lease(node),
            "namespace": namespace,
            "labels": {names.COMPONENT_LABEL: names.HANDLER},
            "annotations": {
                node_states.ACCELERATION_ANNOTATION: f"{verdict.accelerator}: {verdict.reason}",
                node_protocol.ANNOTATION: node_protocol.written(),
            },
            **({"ownerReferences": [owner(node, uid)]} if uid else {}),
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": duration_seconds, "renewTime": now},
    }


async def run(
    client: Client,
    node: str,
    namespace: str,
    verdict: Callable[[], Verdict],
    clock: Clock,
    *,
    renew_seconds: float = RENEW_SECONDS,
    duration_seconds: int = DURATION_SECONDS,
) -> None:
    """Renew this node's Lease until cancelled; an unavailable API server delays it to the next interval."""
    uid, name = NodeUid(client, node), names.handler_lease(node)

    async def renew(send: Callable[[Object], Awaitable[Object]]) -> None:
        owner_uid = await uid.get()
        await _send(send, lease(node, namespace, verdict(), times.to_rfc3339_micro(clock.now()), owner_uid, duration_seconds))
        uid.given(owner_uid)

    while True:
        try:
            async with asyncio.timeout(renew_seconds):
                try:
                    await renew(lambda obj: client.patch(LEASES, name, obj, namespace))
                except errors.NotFound:
                    uid.lost()
                    await renew(lambda obj: client.create(LEASES, obj, namespace))
        except (errors.StatusError, TransportError, TimeoutError) as error:
            logger.warning("cannot renew lease %s: %s", name, str(error) or "no answer in time")
        await asyncio.sleep(renew_seconds)


async def _send(send: Callable[[Object], Awaitable[Object]], wanted: Object) -> None:
    """Send the Lease; if forbidden, without an owner: OwnerReferencesPermissionEnforcement may require the right to delete the object."""
    try:
        await send(wanted)
    except errors.Forbidden:
        metadata = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
        if metadata == wanted["metadata"]:
            raise
        await send({**wanted, "metadata": metadata})
