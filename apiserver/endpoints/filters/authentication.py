"""Who asks: the aggregator's front proxy, a client certificate, a bearer token, or nobody.

The order is Go's (``delegating.go``): a credential that is presented and wrong is 401, never anonymous. The TLS layer asked for a
client certificate and verified it against the *union* of the authorities of front proxies and of clients; it cannot tell which of the two
it was. That is decided here, by the signature, because only a front proxy may say ``X-Remote-User``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiserver.apis.meta.errors import Unauthorized
from apiserver.apis.meta.instruments import HistogramCell
from apiserver.endpoints.http import Request
from apiserver.endpoints.users import ANONYMOUS, User, authenticated

Authorities = tuple[x509.Certificate, ...]
Reviewer = Callable[[str], Awaitable[User | None]]
"""Turns a bearer token into a user; None if it is worth nothing."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """``requestheader-*`` of ConfigMap ``extension-apiserver-authentication``: whom to believe about others, and in which headers."""

    authorities: Authorities = ()
    allowed_names: tuple[str, ...] = ()
    """Empty: whoever holds a certificate of the authorities."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates mean what."""

    request_header: RequestHeader = field(default_factory=RequestHeader)
    clients: Authorities = ()
    """Authorities of client certificates (``client-ca-file``)."""


class Authenticator:
    """Finds out who asks. ``trust`` may be replaced at any time."""

    def __init__(
        self,
        *,
        trust: Trust,
        now: Callable[[], datetime],
        review: Reviewer | None = None,
        anonymous: bool = True,
        expiry: HistogramCell | None = None,
    ) -> None:
        """Take what judges.

        Args:
            trust: whose certificates mean what.
            now: the wall clock.
            review: judges bearer tokens; None: none is worth anything.
            anonymous: whether whoever shows no credential may be ``system:anonymous``.
            expiry: where the remaining life of clients' certificates is counted.
        """
        self.trust = trust
        self._expiry = expiry
        self._now = now
        self._review = review
        self._anonymous = anonymous

    async def __call__(self, request: Request) -> User:
        """Return who asks.

        Raises:
            Unauthorized: a credential is wrong, or there is none and nobody may be anonymous.
        """
        certificate = peer_certificate(request)
        if certificate is not None and (user := self._certified(certificate, request.headers)):
            return authenticated(user)
        token = bearer_token(request.headers)
        if token is not None:
            user = await self._review(token) if self._review is not None and token else None
            if user is None:
                raise Unauthorized("Unauthorized")
            return authenticated(user)
        if certificate is not None or not self._anonymous:
            raise Unauthorized("Unauthorized")
        return ANONYMOUS

    def _certified(self, certificate: x509.Certificate, headers: Mapping[str, str]) -> User | None:
        now = self._now()
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise Unauthorized("Unauthorized")  # connections live longer than the handshake that looked at the dates
        user = from_request_header(self.trust.request_header, certificate, headers)
        if user is not None:
            return user
        user = from_certificate(self.trust.clients, certificate)
        if user is not None and self._expiry is not None:
            self._expiry.observe((certificate.not_valid_after_utc - now).total_seconds())
        return user


def peer_certificate(request: Request) -> x509.Certificate | None:
    """Return the client's certificate, which the handshake verified against some authority of ours."""
    return _parsed(request.certificate) if request.certificate else None


@lru_cache(maxsize=1024)
def _parsed(der: bytes) -> x509.Certificate:
    return x509.load_der_x509_certificate(der)


@lru_cache(maxsize=4096)
def issued_by(certificate: x509.Certificate, authorities: Authorities) -> bool:
    """Return whether one of these authorities signed the certificate itself, for use by clients.

    The handshake has checked the chain, the dates and the constraints; what is left is whose chain it is.
    """
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return _is_for_clients(certificate)
    return False


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def _names(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in certificate.subject.get_attributes_for_oid(oid))


def from_request_header(trust: RequestHeader, certificate: x509.Certificate, headers: Mapping[str, str]) -> User | None:
    """Return whom a front proxy speaks for; None when this is no front proxy, or it names nobody."""
    common = _names(certificate, NameOID.COMMON_NAME)
    if not issued_by(certificate, trust.authorities) or (trust.allowed_names and not set(common) & set(trust.allowed_names)):
        return None
    name = _first(headers, trust.username_headers)
    if not name:
        return None
    groups = tuple(value for header in trust.group_headers for value in _all(headers, header))
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        for prefix in trust.extra_prefixes:
            if header.lower().startswith(prefix.lower()):
                extra.setdefault(unquote(header[len(prefix) :]).lower(), []).append(value)
    return User(name, groups, _first(headers, trust.uid_headers), {key: tuple(values) for key, values in extra.items()})


def from_certificate(authorities: Authorities, certificate: x509.Certificate) -> User | None:
    """Return the user that a client certificate names: common name and organizations; None when it is not for us."""
    common = _names(certificate, NameOID.COMMON_NAME)
    if not common or not issued_by(certificate, authorities):
        return None
    return User(common[0], _names(certificate, NameOID.ORGANIZATION_NAME))


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of an ``Authorization: Bearer`` header, None without one."""
    kind, _, token = headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _all(headers: Mapping[str, str], name: str) -> Sequence[str]:
    getall = getattr(headers, "getall", None)
    values: Sequence[str] = getall(name, ()) if getall else [value for key, value in headers.items() if key.lower() == name.lower()]
    return values


def _first(headers: Mapping[str, str], names: Sequence[str]) -> str:
    return next((value for name in names for value in _all(headers, name)[:1] if value), "")


def load_authorities(pem: str) -> Authorities:
    """Return the certificates of a PEM bundle; none for an empty one.

    Raises:
        ValueError: it is no PEM of certificates.
    """
    return tuple(x509.load_pem_x509_certificates(pem.encode())) if pem.strip() else ()


def from_config_map(data: Mapping[str, str]) -> RequestHeader:
    """Return what ConfigMap ``kube-system/extension-apiserver-authentication`` says about front proxies.

    Raises:
        ValueError: a field cannot be read.
    """

    def listed(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        text = data.get(key)
        if not text:
            return default
        values = json.loads(text)
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise ValueError(f"{key} is no JSON list of strings")
        return tuple(values)

    return RequestHeader(
        authorities=load_authorities(data.get("requestheader-client-ca-file", "")),
        allowed_names=listed("requestheader-allowed-names", ()),
        username_headers=listed("requestheader-username-headers", ()),
        uid_headers=listed("requestheader-uid-headers", ("X-Remote-Uid",)),
        group_headers=listed("requestheader-group-headers", ()),
        extra_prefixes=listed("requestheader-extra-headers-prefix", ()),
    )
