"""Call webhooks over HTTPS: always verified, bounded in time and size, never redirected, contents never logged."""

from __future__ import annotations

import asyncio
import errno
import posixpath
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import orjson

from apiserver.admission.errors import quoted
from apiserver.admission.webhook.errors import CallFailed
from apiserver.admission.webhook.registrations import DEFAULT_PORT, Address, Webhook
from apiserver.apis.meta.errors import ServiceUnavailable
from apiserver.client.config import SERVICE_ACCOUNT
from apiserver.client.connections import Connections, Origin, Response
from apiserver.client.transport import Disconnected, ExchangeFailed, TooLong, Unreachable
from certs import contexts

USER_AGENT: Final = "kube-apiserver-admission"
KUBE_APISERVER: Final = ("kubernetes.default.svc", 443)
"""The only host that gets our credential: a webhook may be an aggregated API."""
MAX_ANSWER_BYTES: Final = 8 << 20
"""More than twice the largest object, in base64."""
MAX_CONTEXTS: Final = 200
MAX_RETRIES: Final = 10
_MAX_MESSAGE: Final = 2048
_KEEP_SECONDS: Final = 20.0
_UNAVAILABLE: Final = 503
_TEXTS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_CONNECT_TEXTS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "no route to host",
    errno.ETIMEDOUT: "connection timed out",
}
_SERVERS_OWN: Final = frozenset({403, 406, 415})


@dataclass(frozen=True, slots=True)
class Target:
    """The address that receives a webhook's requests."""

    url: str
    host: str
    port: int
    server_name: str | None
    """In the certificate, if not the URL's host."""


def target(address: Address) -> Target:
    """Return a webhook's Target: URL, host, port, and a Service's DNS name. Raises ValueError for an invalid address."""
    if address.problem:
        raise ValueError(address.problem)
    if address.service:
        if not address.namespace:
            raise ValueError("cannot resolve an empty service name or namespace or port")
        host = f"{address.service}.{address.namespace}.svc"
        return Target(f"https://{host}:{address.port}{_path(address.path)}", host, address.port, host)
    parts = urlsplit(address.url)
    if parts.scheme != "https" or not parts.hostname or parts.username:
        raise ValueError("a webhook's URL must begin with https:// and name a host, and no user")
    return Target(f"https://{parts.netloc}{_path(parts.path)}", parts.hostname, parts.port or DEFAULT_PORT, None)


def _path(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


class Caller:
    """Calls webhooks. An async context manager; safe for concurrent tasks."""

    def __init__(self, *, resolve: Callable[[str], str] | None = None, service_account: Path = SERVICE_ACCOUNT) -> None:
        """Take a resolver (default: the system's) and our service account's directory."""
        self._resolve = resolve
        self._service_account = service_account
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        self._connections: Connections | None = None

    async def __aenter__(self) -> Self:
        # Unlimited here: a queue for a webhook would only use up its timeout.
        self._connections = Connections(keep_seconds=_KEEP_SECONDS, resolve=self._resolve)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def call(self, webhook: Webhook, body: bytes) -> bytes:
        """Send an encoded AdmissionReview; return the body of a 2xx answer, unchecked, or raise CallFailed.

        Within ``webhook.seconds``, repeats after ``Retry-After`` and once after a lost connection.
        """
        try:
            where = target(webhook.address)
            headers, authority = self._as_ourselves(where)
            context = self._context(webhook.address.authority + authority)
        except (ValueError, OSError) as error:
            raise CallFailed(webhook.name, f"could not get REST client: {error}", 500) from error
        url = f"{where.url}?timeout={webhook.seconds}s"
        try:
            async with asyncio.timeout(webhook.seconds):
                return await self._posted(where, url, body, headers, context)
        except TimeoutError:
            raise _failed(webhook, url, "context deadline exceeded") from None
        except ExchangeFailed as error:
            raise _failed(webhook, url, _reason(where, error)) from error
        except _Refused as refused:
            raise CallFailed(webhook.name, f"failed to call webhook: {refused}", refused.code) from None

    async def _posted(self, where: Target, url: str, body: bytes, headers: Mapping[str, str], context: ssl.SSLContext) -> bytes:
        origin = Origin(where.host, where.port, context, where.server_name)
        sent = {"User-Agent": USER_AGENT, "Content-Type": "application/json", "Accept": "application/json, */*", **headers}
        closed, retries = False, 0
        while True:
            try:
                with await self._asked(origin, url, sent, body) as response:
                    raw = await _read(response)
                    pause = _retry_after(response) if retries < MAX_RETRIES else None
                    if pause is None:
                        _check(response, raw)
                        return raw
            except Disconnected as error:
                if closed or error.is_answered:
                    raise
                closed = True
                continue
            retries += 1
            await asyncio.sleep(pause)

    async def _asked(self, origin: Origin, url: str, headers: dict[str, str], body: bytes) -> Response:
        if self._connections is None:
            raise RuntimeError("use the caller as an async context manager")
        parts = urlsplit(url)
        return await self._connections.send(origin, "POST", f"{parts.path}?{parts.query}", headers=headers, body=body)

    def _as_ourselves(self, where: Target) -> tuple[dict[str, str], str]:
        token = self._service_account / "token"
        if (where.host, where.port) != KUBE_APISERVER or not token.exists():
            return {}, ""
        return {"Authorization": f"Bearer {token.read_text().strip()}"}, f"\n{(self._service_account / 'ca.crt').read_text()}"

    def _context(self, authority: str) -> ssl.SSLContext:
        context = self._contexts.get(authority)
        if context is None:
            context = self._contexts[authority] = tls(authority)
            if len(self._contexts) > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(authority)
        return context


def tls(authority: str) -> ssl.SSLContext:
    """Return a context that verifies as Go: SANs only, and each certificate in ``authority`` (PEM; empty: the system's) is a trust anchor.

    Raises ValueError for an ``authority`` without a certificate.
    """
    try:
        context = contexts.trusting(pem=authority)
        context.hostname_checks_common_name = False
    except ssl.SSLError as error:
        raise ValueError(f"cannot load certificates: {error}") from error
    return context


class _Refused(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


async def _read(response: Response) -> bytes:
    try:
        return await response.read(MAX_ANSWER_BYTES)
    except TooLong as error:
        raise _Refused(str(error), _UNAVAILABLE) from None


def _check(response: Response, raw: bytes) -> None:
    code = response.status
    if 200 <= code < 300:
        return
    if 300 <= code < 400:
        raise _Refused(f"the server returned a redirect ({code}), which is not followed", _UNAVAILABLE)
    said = response.headers.get("Content-Type", "text/").startswith("text/")
    text = raw[:_MAX_MESSAGE].decode(errors="replace").strip() if said else "unknown"
    try:
        status = orjson.loads(raw)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status" and isinstance(status.get("message"), str):
        raise _Refused(status["message"], code)
    if code in _SERVERS_OWN:
        raise _Refused(text, code)
    known = _TEXTS.get(code)
    if known is None and code >= 500:
        known = f"an error on the server ({quoted(text)}) has prevented the request from succeeding"
    raise _Refused(known or f"the server responded with the status code {code} but did not return more information", code)


def _retry_after(response: Response) -> float | None:
    after = response.headers.get("Retry-After", "")
    if (response.status == 429 or response.status >= 500) and after.isdecimal() and len(after) < 10:
        return float(after)
    return None


def _failed(webhook: Webhook, url: str, reason: str) -> CallFailed:
    return CallFailed(webhook.name, f'failed to call webhook: Post "{url}": {reason}', ServiceUnavailable.code)


def _reason(where: Target, error: ExchangeFailed) -> str:
    match error:
        case Unreachable(cause=ssl.SSLCertVerificationError() as cause):
            return f"tls: failed to verify certificate: x509: {_certificate(cause)}"
        case Unreachable(cause=socket.gaierror()):
            return f"dial tcp: lookup {where.host}: no such host"
        case Unreachable(cause=ssl.SSLError() as cause):
            return f"tls: {cause.strerror or cause}"
        case Unreachable(cause=cause):
            return f"dial tcp {where.host}:{where.port}: connect: {_CONNECT_TEXTS.get(cause.errno or 0) or cause.strerror or cause}"
        case Disconnected(cause=None):
            return "EOF"
        case Disconnected(cause=cause):
            return str(cause)
        case _:
            return str(error)


def _certificate(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or str(error)
    if "self-signed" in text or "unable to get" in text or "self signed" in text:
        return f"certificate signed by unknown authority ({text})"
    return text
