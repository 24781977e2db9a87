"""TLS contexts of all processes, which verify like Go's ``crypto/x509``.

Kubernetes' authorities were tested with Go's rules:

- Each trusted certificate is a trust anchor, even if another authority signed it.
- OpenSSL's strict mode, on in ``ssl.create_default_context`` since Python 3.13, is off. It refuses authorities without ``keyUsage`` or
  authority key identifier, which ``openssl req -x509`` and older Kubernetes distributions create.
"""

from __future__ import annotations

import ssl


def client() -> ssl.SSLContext:
    """Return a client context that verifies servers and their names, without trusted authorities yet."""
    return as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def trusting(*, file: str | None = None, pem: str | None = None) -> ssl.SSLContext:
    """Return a client context that trusts the authorities in ``file`` and ``pem``; without both, the system's.

    Raises ssl.SSLError, ValueError, OSError: they are unreadable.
    """
    context = client()
    if file or pem:
        # ssl accepts only ASCII; Go skips comments of any letters.
        ascii_pem = pem.encode("ascii", "ignore").decode() if pem else None
        context.load_verify_locations(cafile=file or None, cadata=ascii_pem)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def server() -> ssl.SSLContext:
    """Return a server context without certificate, which requests none from clients."""
    return as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Make ``context`` verify certificates like Go, and use TLS 1.2 or later; return it."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
