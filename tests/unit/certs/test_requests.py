from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.issuing import Profile
from certs.requests import verify

KEY = ec.generate_private_key(ec.SECP256R1())


def request(profile: Profile) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, profile.common_name)])
    )
    names = x509.SubjectAlternativeName([x509.DNSName(each) for each in profile.dns_names])
    return builder.add_extension(names, critical=False).sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(("names", "is_right"), [(1, True), (80, True), (160, False)])
def test_a_request_that_is_right_is_too_long_beyond_8_kib(names: int, is_right: bool) -> None:
    profile = Profile("virt-handler", dns_names=tuple(f"{number:060}" for number in range(names)))
    pem = request(profile)
    assert (len(pem) <= 8 << 10) is is_right

    verified = verify(pem, profile)

    assert (verified.public_key is not None) is is_right
    assert verified.faults == (() if is_right else ("it is not one PEM block CERTIFICATE REQUEST of at most 8192 bytes",))
