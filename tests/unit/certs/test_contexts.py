from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs import contexts

NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)


class Signer:
    def __init__(self, name: str, issuer: Signer | None = None, *, is_authority: bool = True, end: datetime = NOW + DAY) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        builder = x509.CertificateBuilder(
            issuer_name=(issuer or self).name,
            subject_name=self.name,
            public_key=self.key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=NOW - 2 * DAY,
            not_valid_after=end,
        ).add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self.certificate = builder.sign((issuer or self).key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def write(self, path: Path, *chain: Signer) -> Path:
        key = self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_text(key.decode() + self.pem + "".join(each.pem for each in chain))
        return path


def meet(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = client.wrap_bio(to_client, to_server, server_hostname="here"), server.wrap_bio(to_server, to_client, server_side=True)
    for each in (ours, theirs, ours):
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()
    theirs.do_handshake()


ROOT: Final = Signer("root")
MIDDLE: Final = Signer("middle", ROOT)


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., ssl.SSLContext]:
    def served(signer: Signer, name: str = "here", end: datetime = NOW + DAY) -> ssl.SSLContext:
        context = contexts.server()
        context.load_cert_chain(Signer(name, signer, is_authority=False, end=end).write(tmp_path / "server.pem"))
        return context

    return served


def strict() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=ROOT.pem)
    return context


def test_an_authority_without_key_usage_is_trusted(serve: Callable[..., ssl.SSLContext]) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(strict(), serve(ROOT))

    meet(contexts.as_go(strict()), serve(ROOT))
    meet(contexts.trusting(pem=ROOT.pem), serve(ROOT))


def test_comments_beside_certificates_may_have_any_letters(serve: Callable[..., ssl.SSLContext]) -> None:
    meet(contexts.trusting(pem=f"# Behörde\n{ROOT.pem}"), serve(ROOT))
    with pytest.raises((ValueError, ssl.SSLError)):
        contexts.trusting(pem="Behörde")
    with pytest.raises((ValueError, ssl.SSLError)):
        contexts.trusting(pem="öäü")


def test_a_certificate_in_the_middle_is_an_anchor(serve: Callable[..., ssl.SSLContext], tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(MIDDLE.pem)

    meet(contexts.trusting(file=str(tmp_path / "ca.crt")), serve(MIDDLE))


def test_names_dates_and_signatures_are_verified(serve: Callable[..., ssl.SSLContext]) -> None:
    trusting = contexts.trusting(pem=ROOT.pem)
    leaf = Signer("leaf", ROOT, is_authority=False)

    for server in (serve(ROOT, name="there"), serve(ROOT, end=NOW - DAY), serve(Signer("root")), serve(leaf)):
        with pytest.raises(ssl.SSLCertVerificationError):
            meet(trusting, server)
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(contexts.client(), serve(ROOT))


def test_contexts_are_not_strict_and_require_tls_1_2() -> None:
    for context in (contexts.client(), contexts.server(), contexts.trusting()):
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_systems_authorities_are_trusted_where_none_is_named(
    serve: Callable[..., ssl.SSLContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system.crt").write_text(ROOT.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.crt"))
    other = Signer("other")

    meet(contexts.trusting(), serve(ROOT))
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(contexts.trusting(pem=other.pem), serve(ROOT))
