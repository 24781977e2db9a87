"""The certificate of this node's virt-handler: requests it, and renews it without a restart.

virt-controller signs it for our token's node only. Peers refuse an expired certificate: consoles and migrations of this node stop, but its
guests run.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import random
from datetime import datetime
from pathlib import Path
from typing import Final

from apiserver.apis.core.resources import CERTIFICATE_SIGNING_REQUESTS
from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import names
from apiserver.client.backoff import Backoff
from apiserver.client.rest import Client, TransportError
from certs.reloading import Files
from controller.runtime.clock import Clock
from handler.identity import examining, keys
from handler.identity.plan import Action, Held, Observed, RequestCertificate, Requeue, plan, problem
from handler.identity.store import AUTHORITIES, CERTIFICATE, KEY, Store
from handler.identity.trust import Trust

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
MAX_LOOK_SECONDS: Final = 10.0
"""Interval of checks of a pending request, which is answered in a tenth of a second, or after another process starts."""
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 120.0


class NotSigned(Exception):
    """The CertificateSigningRequest was refused or is gone; the message says why."""


class Identity:
    """This node's certificate and trust; :meth:`run` keeps both up to date."""

    def __init__(self, client: Client, node: str, namespace: str, directory: Path, clock: Clock) -> None:
        self.ready = asyncio.Event()
        """Set once there is a certificate."""
        self._client = client
        self._node = node
        self._clock = clock
        self._store = Store(directory)
        self._store.load()
        self.trust = Trust(client, namespace, self._store)
        self.trust.subscribe(self._reload)
        self._changed = asyncio.Event()
        self._spread = random.random()  # noqa: S311  not a secret
        self._held: Held | None = None
        self._load()

    @property
    def files(self) -> Files:
        """Paths of certificate, key and authorities; the files exist once :attr:`ready` is set."""
        return self._store.files

    @property
    def not_after(self) -> datetime | None:
        """When the certificate expires; None without one that others accept."""
        return self._held.not_after if self._held is not None else None

    def problem(self) -> str:
        """Return why others do not accept this node's certificate; else empty."""
        return problem(self._observe(), self._clock.now())

    async def run(self) -> None:
        """Watch ConfigMap ``kubevirt-trust`` and renew the certificate, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.trust.run())
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        backoff = Backoff(RETRY_SECONDS, MAX_RETRY_SECONDS)
        while True:
            self._changed.clear()
            pause = await self._apply(plan(self._observe(), self._clock.now()), backoff)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _apply(self, action: Action, backoff: Backoff) -> float:
        match action:
            case RequestCertificate():
                await self._renew(action.reason)
                return backoff.next()  # also after success: with different clocks, a new certificate may be due at once
            case Requeue():
                backoff.reset()
                return action.seconds

    async def _renew(self, reason: str) -> None:
        logger.info("requesting a certificate", extra={"node": self._node, "reason": reason})
        try:
            made = await keys.make(self._node)
            certificate = await self._signed(made.request)
            examining.examine(certificate, made.key, self._store.get(AUTHORITIES), self._node)
            self._store.put({CERTIFICATE: certificate, KEY: made.key})
        except (errors.StatusError, TransportError, keys.KeyFailed, NotSigned, examining.Unacceptable, OSError, ValueError) as error:
            until = f"until {self._held.not_after}" if self._held is not None else "none"
            logger.warning("cannot get a new certificate: %s", error, extra={"node": self._node, "present_one": until})
            return
        self._spread = random.random()  # noqa: S311  not a secret
        self._load()
        logger.info("using a new certificate", extra={"node": self._node, "until": str(self.not_after)})

    async def _signed(self, request: bytes) -> bytes:
        """Create a CertificateSigningRequest, wait without limit for the decision, and return the certificate (PEM).

        Raises NotSigned, StatusError, TransportError.
        """
        name = objects.name_of(await self._client.create(CERTIFICATE_SIGNING_REQUESTS, signing_request(self._node, request)))
        pause = Backoff(LOOK_SECONDS, MAX_LOOK_SECONDS)
        while True:
            await asyncio.sleep(pause.next())
            try:
                found = await self._client.get(CERTIFICATE_SIGNING_REQUESTS, name)
            except errors.NotFound as error:
                raise NotSigned(
                    f"CertificateSigningRequest {name} was deleted before it was signed; is virt-controller running?"
                ) from error
            except (errors.StatusError, TransportError) as error:
                logger.info("cannot read CertificateSigningRequest %s: %s", name, error)
                continue
            if (certificate := _issued(found)) is not None:
                return certificate

    def _load(self) -> None:
        certificate, key, authorities = (self._store.get(name) for name in (CERTIFICATE, KEY, AUTHORITIES))
        if not certificate or not authorities:
            self._held = None
            return
        try:
            peer = examining.examine(certificate, key, authorities, self._node)
        except examining.Unacceptable as error:
            logger.warning("the certificate of this node is not accepted: %s", error, extra={"node": self._node})
            self._held = None
        else:
            self._held = Held(peer.not_before, peer.not_after)
            self.ready.set()

    def _reload(self) -> None:
        self._load()
        self._changed.set()

    def _observe(self) -> Observed:
        revocations = self.trust.revocations
        return Observed(
            held=self._held,
            has_authorities=bool(self._store.get(AUTHORITIES)),
            refusal=revocations.refusal(self._node, self._held.not_before) if self._held is not None else "",
            is_revoked=revocations.is_revoked(self._node),
            spread=self._spread,
        )


def signing_request(node: str, request: bytes) -> Object:
    """Return the CertificateSigningRequest for a request (PEM); the signer decides the certificate's lifetime."""
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": {"generateName": f"{names.HANDLER}-{node}-"},
        "spec": {"signerName": names.HANDLER_SIGNER, "usages": list(names.HANDLER_USAGES), "request": base64.b64encode(request).decode()},
    }


def _issued(request: Object) -> bytes | None:
    for condition in objects.dig(request, "status", "conditions") or ():
        if condition.get("type") in {"Denied", "Failed"}:
            raise NotSigned(f"{condition.get('type')}: {condition.get('message') or condition.get('reason')}")
    encoded = objects.dig(request, "status", "certificate")
    if not encoded:
        return None
    try:
        return base64.b64decode(str(encoded))
    except binascii.Error as error:
        raise NotSigned("the issued certificate is not valid PEM") from error
