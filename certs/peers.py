"""Identity of the other end of a TLS connection."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

RELAYED: Final = "relayed_peercert"
"""Item of ``get_extra_info`` with the peer's certificate, if another process of ours terminated TLS."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Data of a verified certificate."""

    common_name: str
    """Empty unless there is exactly one."""
    alternative_names: tuple[tuple[str, str], ...]
    """Kinds and values, as in ``ssl.SSLSocket.getpeercert``: ``("DNS", "node1.virt-handler")``."""
    not_before: datetime
    not_after: datetime

    @property
    def dns_name(self) -> str:
        """The DNS name if it is the only alternative name, else empty."""
        if len(self.alternative_names) != 1:
            return ""
        kind, name = self.alternative_names[0]
        return name if kind == "DNS" else ""


def presented(transport: asyncio.BaseTransport | None) -> Peer | None:
    """Return the peer's certificate data as ``Peer``; None without a verified certificate."""
    if transport is None:
        return None
    connection = transport.get_extra_info("ssl_object")
    return described(connection.getpeercert() if isinstance(connection, ssl.SSLObject) else transport.get_extra_info(RELAYED))


def described(certificate: object) -> Peer | None:
    """Convert the result of ``ssl.SSLSocket.getpeercert`` to ``Peer``; None for an unverified or missing certificate."""
    if not isinstance(certificate, dict) or "notAfter" not in certificate:
        return None
    return Peer(
        subject_common_name(certificate),
        tuple((str(kind), str(value)) for kind, value in certificate.get("subjectAltName", ())),
        _time(certificate["notBefore"]),
        _time(certificate["notAfter"]),
    )


def common_name(transport: asyncio.BaseTransport | None) -> str:
    """Return the common name in the peer's verified certificate; empty without one."""
    peer = presented(transport)
    return peer.common_name if peer is not None else ""


def subject_common_name(certificate: object) -> str:
    """Return the subject's common name; empty unless there is exactly one."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for relative in subject for key, value in relative if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
