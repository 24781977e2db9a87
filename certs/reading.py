"""Parse PEM; invalid input gives an empty result, never an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    """A parsed certificate; ``server`` and ``client`` are its purposes, ``authority``: it may sign others."""

    common_name: str
    dns_names: frozenset[str]
    ip_addresses: frozenset[str]
    server: bool
    client: bool
    authority: bool
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256 of the DER, hexadecimal."""
    pem: bytes = field(repr=False)
    parsed: x509.Certificate = field(repr=False, compare=False)


def read_certificate(pem: bytes) -> Certificate | None:
    """Return the first certificate of ``pem``, or None if unreadable."""
    try:
        return _convert(x509.load_pem_x509_certificate(pem))
    except (ValueError, UnsupportedAlgorithm):
        return None


def read_bundle(pem: bytes) -> tuple[Certificate, ...]:
    """Return the certificates of ``pem`` in order, without duplicates; empty if unreadable."""
    try:
        found = [_convert(each) for each in x509.load_pem_x509_certificates(pem)]
    except (ValueError, UnsupportedAlgorithm):
        return ()
    return tuple({each.fingerprint: each for each in found}.values())


def write_bundle(certificates: tuple[Certificate, ...]) -> bytes:
    """Return the PEM of all certificates."""
    return b"".join(each.pem for each in certificates)


def matches(certificate: Certificate, key_pem: bytes) -> bool:
    """Return whether ``key_pem`` is this certificate's private key."""
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return key.public_key() == certificate.parsed.public_key()


def signed_by(certificate: Certificate, authority: Certificate) -> bool:
    """Return whether ``authority`` itself signed this certificate, ignoring dates."""
    try:
        certificate.parsed.verify_directly_issued_by(authority.parsed)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _convert(parsed: x509.Certificate) -> Certificate:
    names = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    extensions = parsed.extensions
    alternatives: x509.SubjectAlternativeName | None = None
    purposes: frozenset[x509.ObjectIdentifier] = frozenset()
    authority = False
    for extension in extensions:
        match extension.value:
            case x509.SubjectAlternativeName() as value:
                alternatives = value
            case x509.ExtendedKeyUsage() as value:
                purposes = frozenset(value)
            case x509.BasicConstraints() as value:
                authority = value.ca
            case _:
                pass
    return Certificate(
        common_name=str(names[0].value) if names else "",
        dns_names=frozenset(alternatives.get_values_for_type(x509.DNSName)) if alternatives else frozenset(),
        ip_addresses=frozenset(map(str, alternatives.get_values_for_type(x509.IPAddress))) if alternatives else frozenset(),
        server=ExtendedKeyUsageOID.SERVER_AUTH in purposes,
        client=ExtendedKeyUsageOID.CLIENT_AUTH in purposes,
        authority=authority,
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        fingerprint=parsed.fingerprint(hashes.SHA256()).hex(),
        pem=parsed.public_bytes(serialization.Encoding.PEM),
        parsed=parsed,
    )
