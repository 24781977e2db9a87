"""Parse and check certificate signing requests (PKCS #10, RFC 2986).

The signer uses only the public key; names and purposes come from its :class:`~certs.issuing.Profile`. A request must match exactly, so that
one for more does not seem granted.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from certs.issuing import Profile

MAX_BYTES: Final = 8 << 10
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE REQUEST-----\n[A-Za-z0-9+/=\n]+\n-----END CERTIFICATE REQUEST-----\n?")

_UNREADABLE: Final = (
    ValueError, TypeError, UserWarning, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip
_EXTENSION_REQUEST: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
"""RFC 2985, 5.4.2."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The public key of a certificate signing request, or None with the request's faults."""

    public_key: ec.EllipticCurvePublicKey | None = field(repr=False)
    faults: tuple[str, ...]


def verify(pem: bytes, profile: Profile) -> Verified:
    """Return a signing request's public key, or why it does not fit ``profile``, as ``Verified``."""
    if len(pem) > MAX_BYTES or not _PEM.fullmatch(pem):
        return Verified(None, (f"it is not one PEM block CERTIFICATE REQUEST of at most {MAX_BYTES} bytes",))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _held_against(x509.load_pem_x509_csr(pem), profile)
    except _UNREADABLE:
        return Verified(None, ("it cannot be parsed",))


def _held_against(request: x509.CertificateSigningRequest, profile: Profile) -> Verified:
    key = request.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        return Verified(None, ("its key is not an EC key on P-256",))
    faults = (*_subject(request, profile), *_extensions(request, profile))
    if not request.is_signature_valid:
        faults = (*faults, "it is not signed by its own key")
    return Verified(key if not faults else None, faults)


def _subject(request: x509.CertificateSigningRequest, profile: Profile) -> tuple[str, ...]:
    found = [(attribute.oid, attribute.value) for attribute in request.subject]
    wanted = [(NameOID.ORGANIZATION_NAME, each) for each in profile.organizations] + [(NameOID.COMMON_NAME, profile.common_name)]
    return () if found == wanted else (f"its subject is not CN={profile.common_name}",)


def _extensions(request: x509.CertificateSigningRequest, profile: Profile) -> tuple[str, ...]:
    if [attribute.oid for attribute in request.attributes] != [_EXTENSION_REQUEST]:
        return ("it must have exactly one attribute, extensionRequest",)
    extensions = list(request.extensions)
    if [each.oid for each in extensions] != [ExtensionOID.SUBJECT_ALTERNATIVE_NAME]:
        return ("it must request exactly one extension, subjectAltName",)
    names = extensions[0].value
    wanted = [x509.DNSName(name) for name in profile.dns_names]
    if not isinstance(names, x509.SubjectAlternativeName) or list(names) != wanted:
        return (f"its alternative names are not {', '.join(f'DNS:{name}' for name in profile.dns_names)}",)
    return ()
