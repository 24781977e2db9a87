"""OpenSSL's view of certificates, compared with the library ``cryptography``."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.errors import Unauthorized
from apiserver.endpoints.filters import certificates
from apiserver.endpoints.filters.authentication import RequestHeader, from_certificate, is_front_proxy
from apiserver.endpoints.filters.certificates import Certificate, authorities_of, authority_of
from certs import issuing
from certs.issuing import Profile

NOW: Final = datetime.now(UTC).replace(microsecond=0)
HOUR: Final = timedelta(hours=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
Signed = tuple[x509.Certificate, Key]


def name(*relative: list[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in some]) for some in relative])


def common(text: str) -> x509.Name:
    return name([(NameOID.COMMON_NAME, text)])


def signed(
    subject: x509.Name,
    by: Signed | None,
    *,
    key: Key | None = None,
    ca: bool = False,
    usages: tuple[x509.ObjectIdentifier, ...] = (),
    end: datetime = NOW + HOUR,
) -> Signed:
    key = key or ec.generate_private_key(ec.SECP256R1())
    issuer, signer = (by[0].subject, by[1]) if by is not None else (subject, key)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), NOW - HOUR, end)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )  # fmt: skip
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()), key


def pem(*given: Signed) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate, _ in given)


def of_library(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.subject.public_bytes(), key


class Handshake:
    def __init__(self, directory: Path, *trusted: Signed) -> None:
        self.directory = directory
        authority = issuing.new_authority("servers", HOUR, NOW)
        pair = issuing.issue(authority, Profile("localhost", dns_names=("localhost",), server=True), HOUR, NOW)
        (directory / "server.pem").write_bytes(pair.key + pair.certificate)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(directory / "server.pem")
        self.server.verify_mode = ssl.CERT_OPTIONAL
        self.server.load_verify_locations(cadata=pem(*trusted))
        self.authority = authority.certificate.decode()

    def __call__(self, leaf: Signed, *others: Signed) -> Certificate:
        return certificates.of(self.connect(leaf, *others))

    def connect(self, leaf: Signed, *others: Signed) -> ssl.SSLObject:
        key = leaf[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        (self.directory / "client.pem").write_text(key + pem(leaf, *others))
        client = ssl.create_default_context(cadata=self.authority)
        client.load_cert_chain(self.directory / "client.pem")
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        mine = client.wrap_bio(back, there, server_hostname="localhost")
        ours = self.server.wrap_bio(there, back, server_side=True)
        for each in (mine, ours, mine, ours):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
        return ours


@pytest.fixture(scope="module")
def root() -> Signed:
    return signed(common("root"), None, ca=True)


def test_certificate_parser_agrees_with_the_library(root: Signed, tmp_path: Path) -> None:
    subject = name(
        [(NameOID.ORGANIZATION_NAME, "system:masters")],
        [(NameOID.ORGANIZATION_NAME, "Größe, Ämter"), (NameOID.COMMON_NAME, "Jürgen 漢字")],
        [(NameOID.ORGANIZATIONAL_UNIT_NAME, "no group"), (x509.ObjectIdentifier("1.3.6.1.4.1.57683.2"), "uid")],
        [(NameOID.ORGANIZATION_NAME, "last")],
    )
    leaf = signed(subject, root, usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))
    found = Handshake(tmp_path, root)(leaf)
    assert set(found.organizations) == {"system:masters", "Größe, Ämter", "last"}
    assert found.organizations == tuple(str(each.value) for each in leaf[0].subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    assert (found.common_name, found.uids) == ("Jürgen 漢字", ("uid",))
    assert (found.since, found.until) == ((NOW - HOUR).timestamp(), (NOW + HOUR).timestamp())
    assert found.fingerprint == leaf[0].fingerprint(hashes.SHA256()).hex()
    assert found.issuer == of_library(root[0])
    user = from_certificate(authorities_of(pem(root)), found)
    assert user is not None
    assert (user.name, user.groups, user.uid) == ("Jürgen 漢字", found.organizations, "uid")


def test_of_several_common_names_the_last_one_counts_as_in_go(root: Signed, tmp_path: Path) -> None:
    subject = name([(NameOID.COMMON_NAME, "system:admin")], [(NameOID.COMMON_NAME, "alice")])
    found = Handshake(tmp_path, root)(signed(subject, root))
    user = from_certificate(authorities_of(pem(root)), found)
    assert user is not None
    assert (user.name, user.uid) == ("alice", "")
    proxies = authorities_of(pem(root))
    assert [is_front_proxy(RequestHeader(proxies, (each,)), found) for each in ("alice", "system:admin")] == [True, False]


@pytest.mark.parametrize("uids", [("a", "b"), ("a", "a")])
def test_several_uids_are_unauthorized(root: Signed, tmp_path: Path, uids: tuple[str, ...]) -> None:
    attribute = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    found = Handshake(tmp_path, root)(signed(name([(NameOID.COMMON_NAME, "alice")], *([(attribute, each)] for each in uids)), root))
    with pytest.raises(Unauthorized):
        from_certificate(authorities_of(pem(root)), found)


def test_empty_uid_is_unauthorized() -> None:
    issuer = (b"subject", b"key")
    found = Certificate(issuer, 0.0, 1.0, "alice", (), ("",), "00")
    with pytest.raises(Unauthorized):
        from_certificate(frozenset({issuer}), found)


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate(), None])
def test_an_authority_is_its_subject_and_its_key(key: Key | None) -> None:
    subject = name([(NameOID.COMMON_NAME, "x" * 60)], [(NameOID.ORGANIZATION_NAME, "y" * 60)], [(NameOID.LOCALITY_NAME, "z" * 100)])
    one = signed(subject, None, key=key, ca=True)
    renewed = signed(subject, None, key=one[1], ca=True)
    assert authority_of(one[0].public_bytes(Encoding.DER)) == of_library(one[0])
    assert renewed[0] != one[0]
    assert authorities_of(pem(one, renewed)) == authorities_of(pem(one))
    assert authorities_of(pem(signed(subject, None, ca=True))) != authorities_of(pem(one))
    assert authorities_of(pem(signed(common("another"), None, key=one[1], ca=True))) != authorities_of(pem(one))


def test_issuer_is_identified_as_by_its_signature(root: Signed, tmp_path: Path) -> None:
    namesake, other = signed(common("root"), None, ca=True), signed(common("other"), None, key=root[1], ca=True)
    between = signed(common("between"), root, ca=True)
    lone = signed(common("lone"), None)
    authorities = (root, namesake, other, between, lone)
    shake = Handshake(tmp_path, *authorities)
    for issuer in (root, namesake, other, between, None):
        leaf = signed(common("client"), issuer) if issuer is not None else lone
        found = shake(leaf)
        for authority in authorities:
            try:
                leaf[0].verify_directly_issued_by(authority[0])
                by_signature = True
            except Exception:  # noqa: BLE001  the library has three kinds for this
                by_signature = False
            assert (from_certificate(authorities_of(pem(authority)), found) is not None) == by_signature
            assert is_front_proxy(RequestHeader(authorities_of(pem(authority))), found) == by_signature


def test_a_certificate_of_an_authority_in_between_is_that_one_s(root: Signed, tmp_path: Path) -> None:
    between = signed(common("between"), root, ca=True)
    found = Handshake(tmp_path, root)(signed(common("client"), between), between)
    assert from_certificate(authorities_of(pem(between)), found) is not None
    assert from_certificate(authorities_of(pem(root)), found) is None


def test_a_front_proxy_needs_one_of_the_names(root: Signed, tmp_path: Path) -> None:
    found = Handshake(tmp_path, root)(signed(common("front-proxy-client"), root))
    trusted = authorities_of(pem(root))
    assert is_front_proxy(RequestHeader(trusted, ("a", "front-proxy-client")), found)
    assert not is_front_proxy(RequestHeader(trusted, ("a",)), found)
    assert not is_front_proxy(RequestHeader(), found)


def test_certificate_without_common_name_is_no_user(root: Signed, tmp_path: Path) -> None:
    found = Handshake(tmp_path, root)(signed(name([(NameOID.ORGANIZATION_NAME, "system:masters")]), root))
    assert from_certificate(authorities_of(pem(root)), found) is None


@pytest.mark.parametrize("usages", [(ExtendedKeyUsageOID.SERVER_AUTH,), (ExtendedKeyUsageOID.CODE_SIGNING,)])
def test_certificate_not_for_clients_fails_the_handshake(usages: tuple[x509.ObjectIdentifier, ...], root: Signed, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(unsupported|unsuitable) certificate purpose"):
        Handshake(tmp_path, root)(signed(common("client"), root, usages=usages))


def test_bundles_may_have_text_and_must_have_certificates(root: Signed) -> None:
    assert authorities_of("") == authorities_of(" \n") == frozenset()
    assert authorities_of(f"# ours\n{pem(root)}\r\ntext\n{pem(root)}") == {of_library(root[0])}
    for bad in ("text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", pem(root).replace("M", "!")):
        with pytest.raises(ValueError, match=r".+"):
            authorities_of(bad)


@given(st.data())
def test_malformed_certificates_raise_only_value_error(root: Signed, data: st.DataObject) -> None:
    der = bytearray(root[0].public_bytes(Encoding.DER))
    for _ in range(data.draw(st.integers(0, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        authority_of(bytes(der[: data.draw(st.integers(0, len(der)))]))
