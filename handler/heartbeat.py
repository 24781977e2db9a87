"""The sign of life of this node: a Lease ``virt-handler-<node>``, renewed every ten seconds.

It lies in a namespace where there is nothing else, and a policy of the chart holds each virt-handler to the Lease of the node that its
token names. virt-controller reads it: a node is silent when its kubelet does not report and this Lease was not renewed in time. Its
annotations say whether guests are accelerated here, and why, and which versions of the contract with virt-controller this process speaks.

The Node owns it, as it owns the kubelet's Lease, so that the garbage collector removes it with the Node. A Node that was made anew under
its name has another uid: a Lease that is gone is a reason to ask for the uid again, and one that went soon after it was given an owner has
none until the token names another (:mod:`handler.nodeuid`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from apiserver.apis.core.resources import LEASES, NODES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import contract
from apiserver.apis.virt.places import names
from apiserver.client.rest import Client, TransportError
from controller.runtime.clock import Clock
from handler.devices.acceleration import Verdict
from handler.nodeuid import NodeUid

logger = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
DURATION_SECONDS: Final = 40
"""As kubelets: a node counts as silent after four renewals that did not come."""
ACCELERATION_ANNOTATION: Final = f"{names.GROUP}/acceleration"


def owner(node: str, uid: str) -> Object:
    """Return the ownerReference to a node, which holds up no deletion: for that one needs rights to the Node."""
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node, "uid": uid}


def lease(node: str, namespace: str, verdict: Verdict, now: str, uid: str = "") -> Object:
    """Return the lease as it should be, with an owner where the node's uid is known."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": names.handler_lease(node),
            "namespace": namespace,
            "labels": {names.COMPONENT_LABEL: names.HANDLER},
            "annotations": {
                ACCELERATION_ANNOTATION: f"{verdict.accelerator}: {verdict.reason}",
                contract.ANNOTATION: contract.written(),
            },
            **({"ownerReferences": [owner(node, uid)]} if uid else {}),
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": now},
    }


async def run(
    client: Client, node: str, namespace: str, verdict: Callable[[], Verdict], clock: Clock, *, renew_seconds: float = RENEW_SECONDS
) -> None:
    """Renew until cancelled; while the API server is away, try again at the next beat."""
    uid, name = NodeUid(client, node), names.handler_lease(node)

    async def renew(send: Callable[[Object], Awaitable[Object]]) -> None:
        owner_uid = await uid.get()
        await _send(send, lease(node, namespace, verdict(), times.to_rfc3339_micro(clock.now()), owner_uid))
        uid.given(owner_uid)

    while True:
        try:
            async with asyncio.timeout(renew_seconds):
                try:
                    await renew(lambda obj: client.patch(LEASES, name, obj, namespace))
                except errors.NotFound:  # it is the first, or it went with its Node
                    uid.lost()
                    await renew(lambda obj: client.create(LEASES, obj, namespace))
        except (errors.StatusError, TransportError, TimeoutError) as error:
            logger.warning("renew lease %s: %s", name, str(error) or "no answer in time")
        await asyncio.sleep(renew_seconds)


async def _send(send: Callable[[Object], Awaitable[Object]], wanted: Object) -> None:
    """Send it, and where it may have no owner, without.

    Where the admission plugin OwnerReferencesPermissionEnforcement is on, only those who may delete an object give it one.
    """
    try:
        await send(wanted)
    except errors.Forbidden:
        metadata = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
        if metadata == wanted["metadata"]:
            raise
        await send({**wanted, "metadata": metadata})
