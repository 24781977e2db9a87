"""Calls of webhooks over HTTPS: verified always, bounded in time and size, never redirected; what is sent and answered is not logged."""

from __future__ import annotations

import asyncio
import errno
import posixpath
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver

from apiserver.admission.webhook.credentials import NOBODY, Credential, Credentials, pem_file
from apiserver.admission.webhook.errors import CallFailed, quoted
from apiserver.admission.webhook.registrations import DEFAULT_PORT, Address, Webhook
from apiserver.apis.meta.errors import ServiceUnavailable
from apiserver.client.transport import keepalive_socket

USER_AGENT: Final = "kube-apiserver-admission"
MAX_ANSWER_BYTES: Final = 8 << 20
"""Of one answer: more than twice the largest object, as a patch in base64."""
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
_SERVERS_OWN: Final = frozenset({403, 406, 415})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes."""

    url: str
    host: str
    port: int
    server_name: str | None
    """The name that the certificate must carry, where it is not the URL's host."""


def target(address: Address) -> Target:
    """Return where a webhook is: a Service by its name in the cluster's DNS.

    Raises:
        ValueError: nowhere.
    """
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
    """Calls webhooks. Use as an async context manager; safe for any number of tasks at once."""

    def __init__(self, credentials: Credentials, *, resolver: AbstractResolver | None = None) -> None:
        """Take who we are, and who knows addresses: the cluster's DNS through the system, by default."""
        self._credentials = credentials
        self._resolver = resolver
        self._contexts: OrderedDict[tuple[str, Credential, tuple[int, ...]], ssl.SSLContext] = OrderedDict()
        self._session: aiohttp.ClientSession | None = None
        self.trace: aiohttp.TraceConfig | None = None
        """Is told of each call; to be set before the caller is entered."""

    async def __aenter__(self) -> Self:
        # How many requests are answered at once is limited elsewhere: a queue in front of a webhook would only cost its timeout.
        connector = aiohttp.TCPConnector(
            limit=0, limit_per_host=0, keepalive_timeout=_KEEP_SECONDS, socket_factory=keepalive_socket, resolver=self._resolver
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trace_configs=[self.trace] if self.trace is not None else None,
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: Webhook, body: bytes) -> bytes:
        """Send a question and return the answer to it.

        Raises:
            CallFailed: there is none, or no success.
        """
        try:
            where = target(webhook.address)
            credential = self._credentials.of(where.host, where.port)
            headers, context = credential.headers(), self._context(webhook.address.authority, credential)
        except (ValueError, OSError) as error:
            raise CallFailed(webhook.name, f"could not get REST client: {error}", 500) from error
        url = f"{where.url}?timeout={webhook.seconds}s"
        try:
            async with asyncio.timeout(webhook.seconds):
                return await self._posted(where, url, body, headers, context)
        except TimeoutError:
            raise _failed(webhook, url, "context deadline exceeded") from None
        except aiohttp.ClientError as error:
            raise _failed(webhook, url, _reason(where, error)) from error
        except OSError as error:
            raise _failed(webhook, url, error.strerror or str(error)) from error
        except _Refused as refused:
            raise CallFailed(webhook.name, f"failed to call webhook: {refused}", refused.code) from None

    async def _posted(self, where: Target, url: str, body: bytes, headers: Mapping[str, str], context: ssl.SSLContext) -> bytes:
        """Send it until there is an answer: servers may ask for another try, and idle connections may end as we use them."""
        if self._session is None:
            raise RuntimeError("use the caller as an async context manager")
        sent = {"User-Agent": USER_AGENT, "Content-Type": "application/json", "Accept": "application/json, */*", **headers}
        closed, retries = False, 0
        while True:
            try:
                async with self._session.post(
                    url, data=body, headers=sent, ssl=context, server_hostname=where.server_name, allow_redirects=False
                ) as response:
                    raw = await _read(response)
                    pause = _retry_after(response) if retries < MAX_RETRIES else None
                    if pause is None:
                        _check(response, raw)
                        return raw
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                if closed:
                    raise
                closed = True
                continue
            retries += 1
            await asyncio.sleep(pause)

    def _context(self, authority: str, credential: Credential) -> ssl.SSLContext:
        key = (authority, credential, credential.stamp())
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = tls(authority, credential)
            if len(self._contexts) > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(key)
        return context


def tls(authority: str, credential: Credential = NOBODY) -> ssl.SSLContext:
    """Return a context that verifies as Go does: names from the certificate's SANs only, any given certificate is a trust anchor.

    OpenSSL's strict mode stays off: it refuses what many home-made authorities lack (an authority key identifier, say), and Go does not.

    Raises:
        ValueError, OSError: something is no PEM.
    """
    try:
        context = ssl.create_default_context(cadata=authority) if authority else ssl.create_default_context()
        if credential.authority_file:
            context.load_verify_locations(cafile=str(credential.authority_file))
        context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
        context.hostname_checks_common_name = False
        if chain := credential.chain():
            with pem_file(chain) as both:
                context.load_cert_chain(both.name)
    except ssl.SSLError as error:
        raise ValueError(f"certificates cannot be loaded: {error}") from error
    return context


class _Refused(Exception):
    """The webhook's server answered with an error of HTTP."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise _Refused(f"the answer is longer than {MAX_ANSWER_BYTES} bytes", _UNAVAILABLE)
        parts.append(chunk)
    return b"".join(parts)


def _check(response: aiohttp.ClientResponse, raw: bytes) -> None:
    """Raise for anything but a success."""
    code = response.status
    if 200 <= code < 300:
        return
    if 300 <= code < 400:
        raise _Refused(f"the server answered with a redirect ({code}), which is not followed", _UNAVAILABLE)
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


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    after = response.headers.get("Retry-After", "")
    if (response.status == 429 or response.status >= 500) and after.isdecimal() and len(after) < 10:
        return float(after)
    return None


def _failed(webhook: Webhook, url: str, reason: str) -> CallFailed:
    return CallFailed(webhook.name, f'failed to call webhook: Post "{url}": {reason}', ServiceUnavailable.code)


def _reason(where: Target, error: aiohttp.ClientError) -> str:
    """Return why there was no answer, in Go's words where they are what people search for."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {_certificate(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {where.host}: no such host"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"tls: {error.os_error.strerror or error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        known = {errno.ECONNREFUSED: "connection refused", errno.EHOSTUNREACH: "no route to host", errno.ETIMEDOUT: "connection timed out"}
        return f"dial tcp {where.host}:{where.port}: connect: {known.get(number or 0) or error.os_error.strerror or error}"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return "EOF"
    return str(error) or type(error).__name__


def _certificate(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or str(error)
    if "self-signed" in text or "unable to get" in text or "self signed" in text:
        return f"certificate signed by unknown authority ({text})"
    return text
