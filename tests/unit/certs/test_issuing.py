from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.issuing import Profile, issue, new_authority
from certs.reading import read_certificate
from certs.renewal import renew_before
from certs.validity import SKEW

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAY = timedelta(days=1)


def test_an_authority_signs_leaves_and_a_leaf_nothing() -> None:
    authority = new_authority("test", 10 * DAY, NOW)
    leaf = issue(authority, Profile("x", server=True), DAY, NOW)

    above, below = (x509.load_pem_x509_certificate(each.certificate) for each in (authority, leaf))

    for certificate, signs in ((above, True), (below, False)):
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, signs, signs)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, signs, 0 if signs else None)


@pytest.mark.parametrize(("lifetime", "expected"), [(30 * DAY, (DAY + SKEW) / 3), (timedelta(hours=3), timedelta(hours=1))])
def test_certificate_is_renewed_a_third_of_its_life_early(lifetime: timedelta, expected: timedelta) -> None:
    pair = issue(new_authority("test", 10 * DAY, NOW), Profile("x", server=True), DAY, NOW)
    certificate = read_certificate(pair.certificate)
    assert certificate is not None
    assert renew_before(certificate, lifetime) == expected
