"""Authentication by the aggregator's front proxy, a client certificate or a bearer token; otherwise anonymous.

As in Go (``delegating.go``), in this order, and a wrong credential is 401. TLS verifies client certificates against the
*union* of the authorities of front proxies and clients. This module distinguishes issuers: only a front proxy may send
``X-Remote-User``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from apiserver.apis.meta.errors import Unauthorized
from apiserver.apis.meta.users import ANONYMOUS, User, authenticated
from apiserver.endpoints.filters import certificates
from apiserver.endpoints.filters.certificates import Authorities, Certificate, authorities_of
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Carrier, Request
from apiserver.metrics.instruments import HistogramCell

_WITH_ANOTHER: Final = 2
MAX_CERTIFICATES: Final = 1024
_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
Reviewer = Callable[[str], Awaitable[User | None]]
"""Returns the user of a bearer token, or None."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """Settings of the front proxy: ``requestheader-*`` of ConfigMap ``extension-apiserver-authentication``."""

    authorities: Authorities = frozenset()
    allowed_names: tuple[str, ...] = ()
    """Empty: any certificate of the authorities."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


@dataclass(frozen=True, slots=True)
class Trust:
    """Trusted authorities, by purpose."""

    request_header: RequestHeader = field(default_factory=RequestHeader)
    clients: Authorities = frozenset()
    """From ``client-ca-file``."""


class NoCredential(Unauthorized):
    """Missing credential, where anonymous requests are not allowed."""


class Authenticator:
    """Authenticates requests. ``trust`` may be replaced at any time."""

    def __init__(
        self,
        *,
        trust: Trust,
        now: Callable[[], datetime],
        review: Reviewer | None = None,
        anonymous: bool = True,
        expiry: HistogramCell | None = None,
        max_certificates: int = MAX_CERTIFICATES,
    ) -> None:
        """``now`` returns the current UTC time.

        ``review`` validates bearer tokens (None rejects all), ``anonymous`` allows ``system:anonymous``, ``expiry`` records
        certificates' remaining lifetimes, ``max_certificates`` are cached.
        """
        self.trust = trust
        self._expiry = expiry
        self._now = now
        self._max_certificates = max_certificates
        self._verified: dict[bytes, _Verified] = {}
        self._review = review
        self._anonymous = anonymous

    async def __call__(self, request: Request) -> User:
        """Return a request's user, perhaps ``ANONYMOUS``. Raises Unauthorized for a wrong credential, InternalError if a review fails.

        Without a credential, raises NoCredential if anonymous requests are not allowed.
        """
        der = request.certificate
        verified = self._verify(der, request.carrier) if der else None
        if verified is not None and (user := self._certified(verified, request.headers)):
            return authenticated(user)
        token = bearer_token(request.headers) or websocket_token(request)
        if token is not None:
            found = await self._review(token) if self._review is not None and token else None
            if found is None:
                raise Unauthorized("Unauthorized")
            return authenticated(found)
        if verified is not None:
            raise Unauthorized("Unauthorized")
        if not self._anonymous:
            raise NoCredential("Unauthorized")
        return ANONYMOUS

    def _verify(self, der: bytes, carrier: Carrier) -> _Verified:
        verified = self._verified.get(der)
        if verified is None or verified.trust is not self.trust:
            certificate, trust = _read(carrier), self.trust
            if len(self._verified) >= self._max_certificates:
                self._verified.clear()
            verified = self._verified[der] = _Verified(
                trust,
                certificate.since,
                certificate.until,
                is_front_proxy(trust.request_header, certificate),
                from_certificate(trust.clients, certificate),
            )
        return verified

    def _certified(self, verified: _Verified, headers: CIMultiDictProxy[str]) -> User | None:
        now = self._now().timestamp()
        if not verified.since <= now <= verified.until:
            raise Unauthorized("Unauthorized")  # connections outlive the dates checked in the handshake
        user = user_in_headers(self.trust.request_header, headers) if verified.proxy else None
        if user is None and verified.user is not None:
            user = verified.user
            if self._expiry is not None:
                self._expiry.observe(verified.until - now)
        return user


@dataclass(frozen=True, slots=True)
class _Verified:
    trust: Trust
    since: float
    until: float
    proxy: bool
    """The holder may act for other users."""
    user: User | None


def _read(carrier: Carrier) -> Certificate:
    try:
        if carrier.tls is None:
            raise ValueError("no TLS handshake verified it")
        return certificates.of(carrier.tls)
    except ValueError as error:
        raise Unauthorized("Unauthorized") from error


def is_front_proxy(trust: RequestHeader, certificate: Certificate) -> bool:
    """Return whether a front-proxy authority issued the certificate, to an allowed name if any are listed."""
    allowed = not trust.allowed_names or certificate.common_name in trust.allowed_names
    return allowed and certificate.issuer in trust.authorities


def user_in_headers(trust: RequestHeader, headers: CIMultiDictProxy[str]) -> User | None:
    """Return the user in a front proxy's headers; None without a name. The caller has checked :func:`is_front_proxy`."""
    name = _first(headers, trust.username_headers)
    if not name:
        return None
    groups = tuple([value for header in trust.group_headers for value in headers.getall(header, ()) if value])
    return User(name, groups, _first(headers, trust.uid_headers), _extra(headers, tuple([each.lower() for each in trust.extra_prefixes])))


def _extra(headers: CIMultiDictProxy[str], prefixes: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for header, value in headers.items():
        lower = header.lower()
        if lower.startswith(prefixes):
            prefix = next(each for each in prefixes if lower.startswith(each))
            found.setdefault(unquote(lower.removeprefix(prefix)), []).append(value)
    return {key: tuple(values) for key, values in found.items()} if found else {}


def from_certificate(authorities: Authorities, certificate: Certificate) -> User | None:
    """Return a client certificate's user: common name, organizations and uid. None without common name, or for another authority's.

    Raises Unauthorized for several uids, or an empty one (Go: ``pkg/authentication/request/x509``).
    """
    if not certificate.common_name or certificate.issuer not in authorities:
        return None
    uid, *others = certificate.uids or ("",)
    if others or certificate.uids == ("",):
        raise Unauthorized("Unauthorized")
    credential = f"X509SHA256={certificate.fingerprint}"
    return User(certificate.common_name, certificate.organizations, uid, {_CREDENTIAL_ID: (credential,)})


def bearer_token(headers: CIMultiDictProxy[str]) -> str | None:
    """Return the token of an ``Authorization: Bearer`` header, perhaps empty; None without such a header."""
    kind, _, token = headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def websocket_token(request: Request) -> str | None:
    """Return a token offered as websocket subprotocol, because browsers cannot set headers, or None.

    Format of ``k8s.io/apiserver/pkg/authentication/request/websocket``: base64url without padding, next to another
    protocol. Raises Unauthorized for another form.
    """
    if request.fields.upgrade != "websocket":
        return None
    protocols = upgrade.offered(request)
    tokens = [each.removeprefix(upgrade.TOKEN_PROTOCOL) for each in protocols if each.startswith(upgrade.TOKEN_PROTOCOL)]
    if not tokens:
        return None
    token, *others = tokens
    if others or len(protocols) < _WITH_ANOTHER:
        raise Unauthorized("Unauthorized")
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise Unauthorized("Unauthorized") from None


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    for name in names:
        if value := headers.get(name):
            return value
    return ""


def from_config_map(data: Mapping[str, str]) -> RequestHeader:
    """Parse the front-proxy settings of ConfigMap ``kube-system/extension-apiserver-authentication``.

    Missing settings are empty, except ``uid_headers``: ``X-Remote-Uid``. Raises ValueError.
    """

    def listed(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        text = data.get(key)
        if not text:
            return default
        values = json.loads(text)
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise ValueError(f"{key} is not a JSON list of strings")
        return tuple(values)

    return RequestHeader(
        authorities=authorities_of(data.get("requestheader-client-ca-file", "")),
        allowed_names=listed("requestheader-allowed-names", ()),
        username_headers=listed("requestheader-username-headers", ()),
        uid_headers=listed("requestheader-uid-headers", ("X-Remote-Uid",)),
        group_headers=listed("requestheader-group-headers", ()),
        extra_prefixes=listed("requestheader-extra-headers-prefix", ()),
    )
