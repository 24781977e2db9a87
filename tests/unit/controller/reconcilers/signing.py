"""CertificateSigningRequests, valid except for a test's change."""

from __future__ import annotations

import base64
import copy
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from apiserver.apis.virt.places import names

NAMESPACE = "kubevirt"
ACCOUNT = "system:serviceaccount:kubevirt:virt-handler"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | dsa.DSAPrivateKey
ONE_KEY = ec.generate_private_key(ec.SECP256R1())
WRONG_KEYS: dict[str, PrivateKey] = {
    "an RSA key": rsa.generate_private_key(65537, 2048),
    "an Ed25519 key": ed25519.Ed25519PrivateKey.generate(),
    "a DSA key": dsa.generate_private_key(1024),
    "another curve": ec.generate_private_key(ec.SECP384R1()),
    "a small curve": ec.generate_private_key(ec.SECP192R1()),
}
"""Made at import, because each takes half a second; the mutants of a module share them."""


def pkcs10(
    *,
    key: PrivateKey = ONE_KEY,
    subject: tuple[tuple[x509.ObjectIdentifier, str], ...] = ((NameOID.COMMON_NAME, "virt-handler"),),
    alternatives: tuple[x509.GeneralName, ...] = (x509.DNSName("node1.virt-handler"),),
    extensions: tuple[x509.ExtensionType, ...] = (),
    attributes: tuple[tuple[x509.ObjectIdentifier, bytes], ...] = (),
) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([x509.NameAttribute(*each) for each in subject]))
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    for oid, value in attributes:
        builder = builder.add_attribute(oid, value)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


RIGHT = pkcs10()


def a_request(pem: bytes = RIGHT, *, node: str | None = "node1", conditions: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    made = {
        "signerName": "kubevirt.io/virt-handler",
        "usages": ["digital signature", "server auth", "client auth"],
        "request": base64.b64encode(pem).decode(),
        "username": ACCOUNT,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"],
        "extra": {names.NODE_CLAIM: [node], "authentication.kubernetes.io/pod-name": ["virt-handler-x"]} if node is not None else {},
    }
    status = {"conditions": [{"type": each, "status": "True"} for each in conditions]} if conditions else {}
    return copy.deepcopy({"metadata": {"name": "virt-handler-node1-x"}, "spec": {**made, **spec}, "status": status})
