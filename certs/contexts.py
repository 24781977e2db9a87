"""TLS contexts: every one of our processes makes its contexts here.

They judge certificates as Go's ``crypto/x509`` does, because kubectl, kube-apiserver and their authorities were tried with that:

- Each certificate that the caller trusts is a trust anchor, also when another one signed it.
- OpenSSL's strict mode is off. Python 3.13 turns it on in ``ssl.create_default_context``. It refuses authorities without ``keyUsage`` or
  without an authority key identifier, as ``openssl req -x509`` and older Kubernetes distributions make them.

Signatures, dates, basic constraints and names are verified all the same. The standard library alone: the importer has nothing else.
"""

from __future__ import annotations

import ssl


def client() -> ssl.SSLContext:
    """Return a context to dial with: it verifies the server and its name, and trusts no authority yet."""
    return as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def trusting(*, file: str | None = None, pem: str | None = None) -> ssl.SSLContext:
    """Return a context to dial with that trusts the authorities in a file and in a text; the system's where there is neither.

    Raises:
        ssl.SSLError, OSError: they cannot be read.
        ValueError: the text is not ASCII.
    """
    context = client()
    if file or pem:
        context.load_verify_locations(cafile=file or None, cadata=pem or None)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def server() -> ssl.SSLContext:
    """Return a context to serve with: it has no certificate yet and asks clients for none."""
    return as_go(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Have a context judge certificates as Go does, and return it."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
