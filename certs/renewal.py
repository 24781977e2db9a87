"""Reasons to renew a certificate. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from certs import reading
from certs.issuing import Profile
from certs.reading import Certificate


class Reason(StrEnum):
    """Reason to renew a certificate; the value appears in logs."""

    MISSING = "it is missing"
    UNREADABLE = "it cannot be parsed"
    KEY_MISMATCH = "it does not belong to its private key"
    NOT_AN_AUTHORITY = "it is not a CA certificate"
    EXPIRED = "it has expired"
    EXPIRING = "it expires soon"
    NOT_YET_VALID = "it is not valid yet"
    WRONG_PROFILE = "its names or key usages differ from the required ones"
    WRONG_SIGNER = "another authority signed it"


@dataclass(frozen=True, slots=True)
class Policy:
    """Lifetimes of certificates, and the time in which a new authority reaches all processes.

    ``spread`` covers the kubelet's refresh of Secret volumes (about a minute), the poll of ``certs.reloading`` and kube-apiserver's
    reaction to the APIService, with margin.
    """

    leaf: timedelta = timedelta(days=365)
    authority: timedelta = timedelta(days=3650)
    spread: timedelta = timedelta(minutes=10)
    node: timedelta = timedelta(days=1)
    """At most until their authority's end."""

    def __post_init__(self) -> None:
        if not timedelta(0) < self.leaf <= self.authority / 3:
            raise ValueError(f"a leaf's lifetime ({self.leaf}) must be positive and at most a third of an authority's ({self.authority})")
        if self.spread > self.leaf / 3:
            raise ValueError(
                f"the time to distribute an authority ({self.spread}) must fit into the last third of a leaf's lifetime ({self.leaf})"
            )
        if self.node < max(self.spread, timedelta(seconds=1)):
            raise ValueError(
                f"the lifetime of a node's certificate ({self.node}) must be no less than the time to "
                f"distribute an authority ({self.spread})"
            )


def is_due(certificate: Certificate, now: datetime, lifetime: timedelta) -> Reason | None:
    """Return why a certificate's dates require renewal, or None. ``lifetime``: a new certificate's."""
    if now >= certificate.not_after:
        return Reason.EXPIRED
    if now < certificate.not_before:
        return Reason.NOT_YET_VALID
    if certificate.not_after - now < renew_before(certificate, lifetime):
        return Reason.EXPIRING
    return None


def renew_before(certificate: Certificate, lifetime: timedelta) -> timedelta:
    """Return how long before its end to renew a certificate: a third of its life, or of a new one's ``lifetime`` if shorter."""
    return min(lifetime, certificate.not_after - certificate.not_before) / 3


def needs_renewal(
    certificate_pem: bytes, key_pem: bytes, now: datetime, *, lifetime: timedelta, profile: Profile, authority: Certificate
) -> Reason | None:
    """Return why a leaf certificate must be renewed; None: it fits ``key_pem`` and ``profile``, ``authority`` signed it, it is not due."""
    if not certificate_pem or not key_pem:
        return Reason.MISSING
    certificate = reading.read_certificate(certificate_pem)
    if certificate is None:
        return Reason.UNREADABLE
    if not reading.matches(certificate, key_pem):
        return Reason.KEY_MISMATCH
    if not _fits(certificate, profile):
        return Reason.WRONG_PROFILE
    if not reading.signed_by(certificate, authority):
        return Reason.WRONG_SIGNER
    return is_due(certificate, now, lifetime)


def authority_unusable(certificate_pem: bytes, key_pem: bytes, now: datetime) -> Reason | None:
    """Return why this authority cannot sign now, or None, even near its end."""
    if not certificate_pem or not key_pem:
        return Reason.MISSING
    certificate = reading.read_certificate(certificate_pem)
    if certificate is None:
        return Reason.UNREADABLE
    if not certificate.authority:
        return Reason.NOT_AN_AUTHORITY
    if not reading.matches(certificate, key_pem):
        return Reason.KEY_MISMATCH
    if now >= certificate.not_after:
        return Reason.EXPIRED
    if now < certificate.not_before:
        return Reason.NOT_YET_VALID
    return None


def _fits(certificate: Certificate, profile: Profile) -> bool:
    return (
        certificate.common_name == profile.common_name
        and certificate.dns_names == frozenset(profile.dns_names)
        and certificate.ip_addresses == frozenset(profile.ip_addresses)
        and certificate.server == profile.server
        and certificate.client == profile.client
    )
