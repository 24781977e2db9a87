"""Identity of the other end of a TLS connection."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

CARRIED: Final = "carried_peercert"
"""Name of an item of ``asyncio.BaseTransport.get_extra_info``: the peer's certificate, in the form of ``ssl.SSLSocket.getpeercert``, for a
connection whose TLS another of our processes ended."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Facts of a certificate that OpenSSL has verified."""

    common_name: str
    """Empty unless there is exactly one."""
    alternative_names: tuple[tuple[str, str], ...]
    """Kind and value of each, as in ``ssl.SSLSocket.getpeercert``: ``("DNS", "node1.virt-handler")``."""
    not_before: datetime
    not_after: datetime

    @property
    def dns_name(self) -> str:
        """The DNS name, if it is the only alternative name of any kind; else empty: who has several is nobody in particular."""
        if len(self.alternative_names) != 1:
            return ""
        kind, name = self.alternative_names[0]
        return name if kind == "DNS" else ""


def presented(transport: asyncio.BaseTransport | None) -> Peer | None:
    """Return what the other side of a connection presented; None when it presented nothing, or nothing was verified.

    ``request.transport`` of aiohttp and ``writer.transport`` of asyncio will do. OpenSSL has verified the certificate whenever the
    context asks for one, so an unverified name is never returned.
    """
    if transport is None:
        return None
    connection = transport.get_extra_info("ssl_object")
    return described(connection.getpeercert() if isinstance(connection, ssl.SSLObject) else transport.get_extra_info(CARRIED))


def described(certificate: object) -> Peer | None:
    """Return the facts of a certificate in the form of ``ssl.SSLSocket.getpeercert``; None for an empty one, which is an unverified one."""
    if not isinstance(certificate, dict) or "notAfter" not in certificate:
        return None
    return Peer(
        subject_common_name(certificate),
        tuple((str(kind), str(value)) for kind, value in certificate.get("subjectAltName", ())),
        _time(certificate["notBefore"]),
        _time(certificate["notAfter"]),
    )


def common_name(transport: asyncio.BaseTransport | None) -> str:
    """Return the common name in the verified certificate of the other side; empty when it presented none."""
    peer = presented(transport)
    return peer.common_name if peer is not None else ""


def subject_common_name(certificate: object) -> str:
    """Return the common name of the subject in the form of ``ssl.SSLSocket.getpeercert``; empty unless there is exactly one."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for relative in subject for key, value in relative if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
