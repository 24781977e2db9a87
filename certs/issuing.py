"""Create authorities and the certificates that they sign: EC P-256 keys, as PEM."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.validity import SKEW


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM (unencrypted PKCS #8); ``repr`` omits the key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Profile:
    """Identity and purposes of a leaf certificate."""

    common_name: str
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    server: bool = False
    client: bool = False
    organizations: tuple[str, ...] = ()


def new_authority(common_name: str, lifetime: timedelta, now: datetime) -> Pair:
    """Create a self-signed authority for leaves only.

    Its name includes the time of issue, which distinguishes authorities in a bundle.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{common_name}@{int(now.timestamp())}")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), now - SKEW, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Pair(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _private(key))


def issue(authority: Pair, profile: Profile, lifetime: timedelta, now: datetime) -> Pair:
    """Return a new key and its certificate, valid for ``lifetime``, but no longer than ``authority``.

    Raises:
        ValueError: the authority's PEM is unreadable, or an IP address invalid.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    return Pair(sign(authority, key.public_key(), profile, now - SKEW, now + lifetime), _private(key))


def sign(authority: Pair, public_key: ec.EllipticCurvePublicKey, profile: Profile, not_before: datetime, not_after: datetime) -> bytes:
    """Return a certificate (PEM) for ``public_key``, valid no longer than ``authority``.

    Raises ValueError: the authority's PEM is unreadable, its key is not an EC key, or an IP address is invalid.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an EC key")  # noqa: TRY004  the callers handle what is unreadable as ValueError
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] * profile.server + [ExtendedKeyUsageOID.CLIENT_AUTH] * profile.client
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in profile.dns_names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in profile.ip_addresses]
    name, not_after = _name(profile.common_name, profile.organizations), min(not_after, signer.not_valid_after_utc)
    builder = (
        _builder(name, signer.subject, public_key, not_before, not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(common_name: str, organizations: tuple[str, ...] = ()) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, not_before: datetime, not_after: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before.astimezone(UTC))
        .not_valid_after(not_after.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
