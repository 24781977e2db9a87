"""Read client certificates with the OpenSSL that verified them in the handshake (``docs/decisions/api-server.md``)."""

from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import dataclass
from typing import Any, Final

Authority = tuple[bytes, bytes]
"""Subject and public key (DER); a renewed certificate with the same key is the same authority."""
Authorities = frozenset[Authority]

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_UID: Final = "1.3.6.1.4.1.57683.2"
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_LONG: Final = 0x80
_MOST_LENGTHS: Final = 4


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client's verified certificate."""

    issuer: Authority
    since: float
    until: float
    """Seconds since 1970."""
    common_name: str
    """The last one, as in Go; empty if missing."""
    organizations: tuple[str, ...]
    uids: tuple[str, ...]
    """From Kubernetes' attribute for uids."""
    fingerprint: str
    """SHA-256, in hexadecimal."""


def of(connection: ssl.SSLObject) -> Certificate:
    """Return the client's verified certificate. Raises ValueError without one, or for a name that is not text."""
    if connection.context.verify_mode is ssl.CERT_NONE:
        raise ValueError("client certificates are not verified by this server")
    leaf, *others = _verified_chain(connection)
    said: Any = connection.getpeercert()
    subject = [pair for relative in said.get("subject", ()) for pair in relative]
    return Certificate(
        issuer=authority_of(others[0] if others else leaf),  # without issuer, it is a trusted authority itself
        since=ssl.cert_time_to_seconds(said["notBefore"]),
        until=ssl.cert_time_to_seconds(said["notAfter"]),
        common_name=next((value for key, value in reversed(subject) if key == "commonName"), ""),
        organizations=tuple(value for key, value in subject if key == "organizationName"),
        uids=tuple(value for key, value in subject if key == _UID),
        fingerprint=hashlib.sha256(leaf).hexdigest(),
    )


def authorities_of(pem: str) -> Authorities:
    """Return the authorities of a PEM bundle; none for empty text. Raises ValueError."""
    found = frozenset(authority_of(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem))
    if not found and pem.strip():
        raise ValueError("no PEM certificate found")
    return found


def authority_of(der: bytes) -> Authority:
    """Return subject and public key of a DER certificate (RFC 5280, section 4.1); raises ValueError."""
    begin, end = _content(der, *_content(der, 0, len(der)))
    parts: list[bytes] = []
    while begin < end and len(parts) < 7:
        _, after = _content(der, begin, end, only=None)
        parts.append(der[begin:after])
        begin = after
    if parts and parts[0][0] == _VERSION:
        del parts[0]
    if len(parts) < 6:
        raise ValueError("no certificate: something is missing")
    return parts[4], parts[5]


def _content(der: bytes, begin: int, limit: int, only: int | None = _SEQUENCE) -> tuple[int, int]:
    if begin + 2 > limit or only not in (None, der[begin]):
        raise ValueError("no certificate: not the element that is due")
    length, at = der[begin + 1], begin + 2
    if length >= _LONG:
        octets = length - _LONG
        if not 0 < octets <= _MOST_LENGTHS:
            raise ValueError("no certificate: an element without length")
        length, at = int.from_bytes(der[at : at + octets], "big"), at + octets
    if at + length > limit:
        raise ValueError("no certificate: it ends early")
    return at, at + length


def _verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    if hasattr(connection, "get_verified_chain"):  # since Python 3.13
        chain: list[bytes] = connection.get_verified_chain()
        return chain
    inner: Any = connection._sslobj  # type: ignore[attr-defined]  # noqa: SLF001  the same function, before it was public
    return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in inner.get_verified_chain()]
