"""Who is at the other end of a TLS connection."""

from __future__ import annotations

import asyncio
import ssl


def common_name(transport: asyncio.BaseTransport | None) -> str:
    """Return the common name in the verified client certificate of a connection; empty when it presented none.

    ``request.transport`` of aiohttp and ``writer.transport`` of asyncio will do. OpenSSL has verified the certificate whenever the
    context asks for one, so an unverified name is never returned.
    """
    connection = transport.get_extra_info("ssl_object") if transport is not None else None
    if not isinstance(connection, ssl.SSLObject):
        return ""
    return subject_common_name(connection.getpeercert() or {})


def subject_common_name(certificate: object) -> str:
    """Return the last common name of the subject in the form of ``ssl.SSLSocket.getpeercert``."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for relative in subject for key, value in relative if key == "commonName"]
    return str(names[-1]) if len(names) == 1 else ""
