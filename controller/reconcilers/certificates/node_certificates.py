"""Signs the certificates of virt-handlers, one per node.

The authority and the revocations are not cached, because a revocation or rotation must apply at once. kube-controller-manager removes
decided requests after an hour and pending ones after a day.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from datetime import datetime, timedelta
from typing import Final, assert_never

from apiserver.apis.core.resources import CERTIFICATE_SIGNING_REQUESTS, CONFIG_MAPS, SECRETS
from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.apis.virt.rights.trust import Revocations
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs import issuing, renewal
from certs.issuing import Pair
from certs.validity import SKEW
from controller.reconcilers.certificates import node_certificate_plan
from controller.reconcilers.certificates.certificate_plan import API_AUTHORITY, CERTIFICATE, KEY, decoded
from controller.reconcilers.certificates.node_certificate_plan import Approve, Deny, Fail, Nothing, Sign
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Observer, Request, Result

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0
MAX_STEPS: Final = 4
MAX_BYTES: Final = 32 << 10
"""JSON size of a pending request that is kept whole; virt-handlers' requests have 2 KiB."""


def signing_requests(client: Client) -> Informer:
    """Return a new informer of requests for our signer, which the caller runs."""
    selector = f"spec.signerName={names.HANDLER_SIGNER}"
    return Informer(client, CERTIFICATE_SIGNING_REQUESTS, field_selector=selector, trim=trim_request)


def trim_request(request: Object) -> Object:
    """Return a request trimmed for the cache, because nodes can create many large ones.

    A decided request keeps only the decision. An open one over ``MAX_BYTES`` loses its PKCS #10 and so is denied.
    """
    whole = objects.without_managed_fields(request)
    open_ = node_certificate_plan.is_open(whole)
    if open_ and len(json.dumps(whole)) <= MAX_BYTES:
        return whole
    metadata, spec, status = whole["metadata"], whole.get("spec") or {}, whole.get("status") or {}
    kept = ("signerName", "username", "extra") if open_ else ("signerName",)
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": {key: metadata[key] for key in ("name", "uid", "resourceVersion") if key in metadata},
        "spec": {key: spec[key] for key in kept if key in spec},
        "status": {key: status[key] for key in ("conditions", "certificate") if key in status},
    }


class NodeCertificates:
    """Reconciler of virt-handlers' certificate signing requests."""

    def __init__(self, client: Client, requests: Informer, namespace: str, lifetime: timedelta, clock: Clock) -> None:
        self._client = client
        self._requests = requests
        self._namespace = namespace
        self._lifetime = lifetime
        self._clock = clock

    async def reconcile(self, request: Request) -> Result:
        """Approve, sign or refuse one request, or retry after ``RETRY_SECONDS``."""
        for _ in range(MAX_STEPS):
            found = self._requests.get("", request.name)
            if found is None or not node_certificate_plan.is_open(found):
                return Result()
            revocations = await self._revocations()
            if revocations is None:
                break
            action = node_certificate_plan.plan(found, self._namespace, revocations, self._clock.now())
            if isinstance(action, Nothing):
                return Result()
            if not await self._apply(found, action, revocations):
                break
        return Result(requeue_after=RETRY_SECONDS)

    async def _apply(self, request: Object, action: Approve | Sign | Deny | Fail, revocations: Revocations) -> bool:
        match action:
            case Approve(node):
                await self._condition(request, "approval", "Approved", "NodeClaim", f"its token is bound to a pod on node {node}")
            case Sign():
                return await self._sign(request, action, revocations)
            case Deny(message):
                logger.warning("denied a certificate request", extra={**_about(request), "why": message})
                await self._condition(request, "approval", "Denied", "NotItsNode", message)
            case Fail(message):
                logger.warning(
                    "refused to sign an approved certificate request; marking it Failed", extra={**_about(request), "why": message}
                )
                await self._condition(request, "status", "Failed", "NotItsNode", message)
            case _:
                assert_never(action)
        return True

    async def _revocations(self) -> Revocations | None:
        """Return the revocations; None without the ConfigMap, which virt-controller creates again within a pass."""
        try:
            found = await self._client.get(CONFIG_MAPS, trust.CONFIG_MAP, self._namespace)
        except errors.NotFound:
            logger.info("certificate requests wait until the list of revoked nodes, ConfigMap %s, can be read", trust.CONFIG_MAP)
            return None
        return trust.revocations(found.get("data") or {})

    async def _sign(self, request: Object, action: Sign, revocations: Revocations) -> bool:
        now = self._clock.now()
        try:
            data = (await self._client.get(SECRETS, API_AUTHORITY, self._namespace)).get("data") or {}
        except errors.NotFound:
            data = {}
        authority = Pair(decoded(data.get(CERTIFICATE)), decoded(data.get(KEY)))
        if (reason := renewal.authority_unusable(authority.certificate, authority.key, now)) is not None:
            logger.info("a certificate request waits for a usable authority", extra={**_about(request), "why": f"the authority: {reason}"})
            return False
        begins = _begins(now, revocations.nodes.get(action.node))
        certificate = issuing.sign(authority, action.public_key, action.profile, begins, now + self._lifetime)
        logger.info("issued a certificate", extra={**_about(request), "node": action.node})
        status = {**(request.get("status") or {}), "certificate": base64.b64encode(certificate).decode()}
        await self._write({**request, "status": status}, "status")
        return True

    async def _condition(self, request: Object, subresource: str, kind: str, reason: str, message: str) -> None:
        status = request.get("status") or {}
        new = {"type": kind, "status": "True", "reason": reason, "message": message}
        await self._write({**request, "status": {**status, "conditions": [*(status.get("conditions") or []), new]}}, subresource)

    async def _write(self, request: Object, subresource: str) -> None:
        self._requests.remember(await self._client.update(CERTIFICATE_SIGNING_REQUESTS, request, subresource=subresource))


class Signing:
    """The informer and the loop of :class:`NodeCertificates`, for the leader."""

    def __init__(self, client: Client, namespace: str, lifetime: timedelta, clock: Clock, observer: Observer | None = None) -> None:
        self._requests = signing_requests(client)
        reconciler = NodeCertificates(client, self._requests, namespace, lifetime, clock)
        self.loop = Controller("nodecertificates", reconciler, workers=2, observer=observer)
        self._requests.subscribe(lambda _, new: self.loop.enqueue(objects.key_of(new)) if new is not None else None)

    async def run(self) -> None:
        """Run informer and loop until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._requests.run())
            tasks.create_task(self.loop.run(self._synced))

    async def _synced(self) -> None:
        await self._requests.synced.wait()


def _begins(now: datetime, revoked_before: datetime | None) -> datetime:
    """Return when a certificate's validity starts: in the past, for slow clocks, but not before a revocation."""
    begins = now - SKEW
    return max(begins, revoked_before) if revoked_before is not None else begins


def _about(request: Object) -> dict[str, str]:
    return {"request": objects.name_of(request), "requester": str(objects.dig(request, "spec", "username") or "")}
