"""kube-apiserver's admission webhook for evictions: AdmissionReview, admission.k8s.io/v1, over TLS.

The client shows no certificate, but has a secret in the path. Requests with a wrong secret get 429: kube-apiserver may have an old
configuration, and ``kubectl drain`` retries only after a 429.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aiohttp import web

from apiserver.apis.virt.lifecycle import evictions
from certs.reloading import Files
from controller.serving.listening import Connections, listening
from controller.serving.metrics import certificate

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 64 << 10
UNKNOWN_BYTES: Final = 4 << 10
"""Without the secret, a review is read only for its uid. An eviction's has less than 2 KiB."""
FORBIDDEN: Final = 403
TOO_MANY_REQUESTS: Final = 429


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server."""

    connections: int = 512
    """kube-apiserver opens one per running eviction, and a node may have hundreds of guests."""
    body_seconds: float = 5.0
    answer_seconds: float = 9.0
    """Less than kube-apiserver's ``timeoutSeconds`` in the chart, because its timeout error would show the path to users."""


class Answer(Protocol):
    """The answer to an AdmissionReview."""

    @property
    def allowed(self) -> bool:
        """True if the pod may be evicted."""

    @property
    def message(self) -> str:
        """A refusal's reason; if allowed, a warning for the user or empty."""

    @property
    def final(self) -> bool:
        """True if the client should not retry."""


class Admission(Protocol):
    """Admission of evictions."""

    def __call__(self, namespace: str, name: str, *, dry_run: bool, peer: str) -> Awaitable[Answer]:
        """Return the Answer for this pod; ``peer`` is the client's IP address."""


class Authenticator(Protocol):
    """Checks the secret in the path."""

    def __call__(self, given: str) -> Awaitable[bool]:
        """Return whether this secret is valid."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Refuses an eviction for now (never ``allowed`` or ``final``); the client retries."""

    message: str
    allowed: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """A reviewed eviction: its pod, and whether it is a dry run."""

    uid: str
    namespace: str
    name: str
    dry_run: bool


def read(review: object) -> Review:
    """Parse a decoded AdmissionReview. Raises ValueError if it is not of a pod's eviction."""
    request = _member(review, "request")
    of = _member(request, "resource")
    if of.get("resource") != "pods" or of.get("group") or request.get("subResource") != "eviction":
        raise ValueError("the AdmissionReview is not about a pod's eviction")
    uid, namespace, name = (request.get(key) for key in ("uid", "namespace", "name"))
    if not all(isinstance(each, str) and each for each in (uid, namespace, name)):
        raise ValueError("uid, namespace and name of the AdmissionReview must be strings")
    return Review(str(uid), str(namespace), str(name), dry_run=request.get("dryRun") is True or _is_dry(request.get("object")))


def _is_dry(eviction: object) -> bool:
    """Return whether ``deleteOptions.dryRun`` is set, which kube-apiserver treats like the request's."""
    return bool(_member(eviction, "deleteOptions").get("dryRun"))


def _member(of: object, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def write(review: Review, answer: Answer) -> dict[str, Any]:
    """Return the AdmissionReview with the answer. A refusal has code 403 if final, else 429."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": answer.allowed}
    if not answer.allowed:
        code, reason = (FORBIDDEN, "Forbidden") if answer.final else (TOO_MANY_REQUESTS, "TooManyRequests")
        response["status"] = {"status": "Failure", "code": code, "reason": reason, "message": answer.message}
    elif answer.message:
        response["warnings"] = [answer.message]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


class EvictionServer:
    """Serves reviews of evictions."""

    def __init__(
        self,
        port: int,
        prefix: str,
        admit: Admission,
        authenticate: Authenticator,
        files: Files,
        *,
        host: str = "",
        limits: Limits = Limits(),
    ) -> None:
        """``prefix`` is the URL path before the secret."""
        self._prefix = prefix
        self._host = host or None
        self._port = port
        self._admit = admit
        self._authenticate = authenticate
        self._files = files
        self._limits = limits
        self._connections = Connections(limits.connections)
        self.bound_port = 0

    async def run(self) -> None:
        """Serve eviction reviews until cancelled, as soon as there is a certificate."""
        tls = await certificate(self._files)
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_post(self._prefix + "{secret}", self._serve)
        room, last = self._connections, self._limits.answer_seconds
        async with listening(app, self._host, self._port, tls.context, connections=room, shutdown=last) as self.bound_port:
            await tls.run()

    async def _serve(self, request: web.Request) -> web.Response:
        ends = asyncio.get_running_loop().time() + self._limits.answer_seconds
        is_authenticated = await self._is_authenticated(request, ends)
        if not is_authenticated and (request.content_length is None or request.content_length > UNKNOWN_BYTES):
            return web.Response(status=TOO_MANY_REQUESTS)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await request.read()
            review = read(json.loads(body))
        except TimeoutError:
            return web.Response(status=408)
        except (ValueError, RecursionError) as error:
            return web.Response(status=400, text=f"cannot read the AdmissionReview: {error}\n")
        answer = await self._answer(request, review, ends, is_authenticated=is_authenticated)
        return web.json_response(write(review, answer))

    async def _is_authenticated(self, request: web.Request, ends: float) -> bool:
        try:
            async with asyncio.timeout_at(ends):
                return await self._authenticate(request.match_info["secret"])
        except TimeoutError:
            logger.warning("timed out reading the secret of the eviction webhook")
        except Exception:  # after any error, the client counts as unauthenticated
            logger.exception("cannot read the secret of the eviction webhook")
        return False

    async def _answer(self, request: web.Request, review: Review, ends: float, *, is_authenticated: bool) -> Answer:
        try:
            async with asyncio.timeout_at(ends):
                if is_authenticated:
                    with self._connections.answering(request):
                        return await self._admit(review.namespace, review.name, dry_run=review.dry_run, peer=request.remote or "")
        except TimeoutError:
            logger.warning("timed out deciding an eviction", extra={"namespace": review.namespace, "pod": review.name})
        except Exception:  # only a 429 lets a drain continue
            logger.exception("cannot decide an eviction", extra={"namespace": review.namespace, "pod": review.name})
        return Denied(evictions.not_known(review.name))
