"""Certificates for an etcd and its clients; all name ``etcd.test``."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd-ca")])
        self._certificate = self._build(self._name, self._key.public_key(), is_ca=True)

    def issue(self, directory: Path, name: str) -> tuple[Path, Path, Path]:
        directory.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._build(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key(), is_ca=False)
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        contents = {
            "ca.crt": self._certificate.public_bytes(serialization.Encoding.PEM),
            "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
            "tls.key": secret,
        }
        for file, content in contents.items():
            (directory / file).write_bytes(content)
        return directory / "ca.crt", directory / "tls.crt", directory / "tls.key"

    def _build(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        names = [x509.DNSName("etcd.test")]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
