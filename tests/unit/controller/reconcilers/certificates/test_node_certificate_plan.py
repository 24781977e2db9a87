from __future__ import annotations

import base64
import ipaddress
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.apis.virt.rights.trust import Revocations
from certs.issuing import Profile
from controller.reconcilers.certificates.node_certificate_plan import Approve, Deny, Fail, Nothing, Sign, plan
from controller.reconcilers.certificates.node_certificates import trim_request
from tests.unit.controller.reconcilers.signing import NAMESPACE, ONE_KEY, RIGHT, WRONG_KEYS, a_request, pkcs10

NONE = Revocations()
NOW = datetime(2026, 6, 1, tzinfo=UTC)
CN = (NameOID.COMMON_NAME, "virt-handler")
DNS = x509.DNSName("node1.virt-handler")


def test_valid_request_is_approved_then_signed_for_its_node() -> None:
    assert plan(a_request(), NAMESPACE, NONE, NOW) == Approve("node1")
    signed = plan(a_request(conditions=("Approved",)), NAMESPACE, NONE, NOW)
    assert isinstance(signed, Sign)
    assert (signed.node, signed.profile) == ("node1", Profile("virt-handler", ("node1.virt-handler",), server=True, client=True))
    assert signed.public_key == ONE_KEY.public_key()


WRONG: dict[str, dict[str, Any]] = {
    "another node's name": a_request(pkcs10(alternatives=(x509.DNSName("node2.virt-handler"),))),
    "its own name and another's": a_request(pkcs10(alternatives=(DNS, x509.DNSName("node2.virt-handler")))),
    "its own name twice": a_request(pkcs10(alternatives=(DNS, DNS))),
    "all names": a_request(pkcs10(alternatives=(x509.DNSName("*.virt-handler"),))),
    "virt-api's name": a_request(pkcs10(alternatives=(x509.DNSName("virt-api.kubevirt.svc"),))),
    "an address": a_request(pkcs10(alternatives=(DNS, x509.IPAddress(ipaddress.ip_address("10.0.0.1"))))),
    "its name as a URI": a_request(pkcs10(alternatives=(x509.UniformResourceIdentifier("node1.virt-handler"),))),
    "an e-mail address": a_request(pkcs10(alternatives=(DNS, x509.RFC822Name("root@node1")))),
    "no name": a_request(pkcs10(alternatives=())),
    "virt-api as common name": a_request(pkcs10(subject=((NameOID.COMMON_NAME, "virt-api"),))),
    "two common names": a_request(pkcs10(subject=(CN, (NameOID.COMMON_NAME, "virt-api")))),
    "a group": a_request(pkcs10(subject=((NameOID.ORGANIZATION_NAME, "system:masters"), CN))),
    "no subject": a_request(pkcs10(subject=())),
    "an authority": a_request(pkcs10(extensions=(x509.BasicConstraints(ca=True, path_length=None),))),
    "no authority, said aloud": a_request(pkcs10(extensions=(x509.BasicConstraints(ca=False, path_length=None),))),
    "code signing": a_request(pkcs10(extensions=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]),))),
    "an extension that nobody knows": a_request(pkcs10(extensions=(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\0"),))),
    "a challenge password": a_request(pkcs10(attributes=((AttributeOID.CHALLENGE_PASSWORD, b"secret"),))),
    "a challenge password behind the rest": a_request(pkcs10(attributes=((AttributeOID.CHALLENGE_PASSWORD, b"x" * 200),))),
    **{what: a_request(pkcs10(key=key)) for what, key in WRONG_KEYS.items()},
    "two requests": a_request(RIGHT + RIGHT),
    "something before it": a_request(b"x\n" + RIGHT),
    "a header in the PEM": a_request(RIGHT.replace(b"REQUEST-----\n", b"REQUEST-----\nA: b\n\n", 1)),
    "a certificate": a_request(RIGHT.replace(b"CERTIFICATE REQUEST", b"CERTIFICATE")),
    "too much": a_request(RIGHT.replace(b"\n-----END", b"\n" * 9000 + b"-----END")),
    "nothing": a_request(b""),
    "no base64": a_request(request="-----"),
    "something that is no base64 within it": a_request(request="*" + base64.b64encode(RIGHT).decode()),
    "no text": a_request(request=7),
    "another account": a_request(username="system:serviceaccount:default:virt-handler"),
    "the controller": a_request(username="system:serviceaccount:kubevirt:virt-controller"),
    "a kubelet": a_request(username="system:node:node1"),
    "cluster-admin": a_request(username="kubernetes-admin", groups=["system:masters"]),
    "nobody": a_request(username=None),
    "no claim": a_request(node=None),
    "an empty claim": a_request(node=""),
    "two claims": a_request(extra={names.NODE_CLAIM: ["node1", "node2"]}),
    "two equal claims": a_request(extra={names.NODE_CLAIM: ["node1", "node1"]}),
    "a claim of another name": a_request(extra={"example.com/node-name": ["node1"]}),
    "another node's claim": a_request(node="node2"),
    "a claim in capitals": a_request(node="NODE1"),
    "no usages": a_request(usages=[]),
    "a usage less": a_request(usages=["digital signature", "server auth"]),
    "a usage more": a_request(usages=["digital signature", "server auth", "client auth", "cert sign"]),
    "a usage exchanged": a_request(usages=["digital signature", "server auth", "cert sign"]),
    "a usage in the place of another": a_request(usages=["digital signature", "server auth", "server auth"]),
    "a usage twice": a_request(usages=["digital signature", "server auth", "client auth", "client auth"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_single_fault_denies_a_request(wrong: str) -> None:
    request = WRONG[wrong]

    denied = plan(request, NAMESPACE, NONE, NOW)
    assert isinstance(denied, Deny)
    assert 10 < len(denied.message) <= 1000
    request["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    assert plan(request, NAMESPACE, NONE, NOW) == Fail(denied.message)


def test_request_modified_after_signing_is_denied() -> None:
    der = bytearray(base64.b64decode(b"".join(RIGHT.splitlines()[1:-1])))
    at = der.index(ONE_KEY.public_key().public_numbers().x.to_bytes(32, "big"))
    other = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    der[at : at + 64] = other.x.to_bytes(32, "big") + other.y.to_bytes(32, "big")
    body = base64.encodebytes(bytes(der))
    denied = plan(a_request(b"-----BEGIN CERTIFICATE REQUEST-----\n" + body + b"-----END CERTIFICATE REQUEST-----\n"), NAMESPACE, NONE, NOW)

    assert isinstance(denied, Deny)
    assert "not signed by its own key" in denied.message


@given(st.data())
def test_modified_request_bytes_are_never_signed(data: st.DataObject) -> None:
    """One with a changed byte is denied, or means the same (a bit string has unused bits)."""
    der = bytearray(base64.b64decode(b"".join(RIGHT.splitlines()[1:-1])))
    at = data.draw(st.integers(0, len(der) - 1))
    der[at] ^= data.draw(st.integers(1, 255))
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(bytes(der)) + b"-----END CERTIFICATE REQUEST-----\n"

    decided = plan(a_request(pem, conditions=("Approved",)), NAMESPACE, NONE, NOW)
    assert isinstance(decided, Fail) or (isinstance(decided, Sign) and decided.public_key == ONE_KEY.public_key())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["usages", "request", "username", "extra"]), JSON)
def test_any_shape_of_a_field_is_denied_and_never_an_exception(field: str, value: Any) -> None:
    request = a_request()
    if request["spec"][field] != value:
        request["spec"][field] = value
        assert isinstance(plan(request, NAMESPACE, NONE, NOW), Deny)


@pytest.mark.parametrize(
    "request_",
    [
        a_request(signerName="kubernetes.io/kube-apiserver-client"),
        a_request(signerName="kubevirt.io/virt-handler2"),
        a_request(conditions=("Denied",)),
        a_request(conditions=("Approved", "Failed")),
        {**a_request(conditions=("Approved",)), "status": {"certificate": "LS0t"}},
        {"metadata": {"name": "x"}},
    ],
)
def test_decided_and_foreign_requests_are_left_alone(request_: dict[str, Any]) -> None:
    assert plan(request_, NAMESPACE, NONE, NOW) == Nothing()


def test_revoked_node_gets_no_certificate_until_pardoned() -> None:
    revoked = trust.revocations({"revoked.node1": "stolen"})
    denied = plan(a_request(), NAMESPACE, revoked, NOW)
    assert isinstance(denied, Deny)
    assert "node1 is revoked" in denied.message
    assert plan(a_request(), NAMESPACE, trust.revocations({"revoked.node2": "stolen"}), NOW) == Approve("node1")
    assert plan(a_request(), NAMESPACE, Revocations({"node1": datetime(2026, 1, 1, tzinfo=UTC)}), NOW) == Approve("node1")


def test_node_revoked_until_a_date_gets_no_certificate_before() -> None:
    """A clock slightly ahead causes no revocation."""
    later = trust.revocations({"revoked.node1": "2026-06-03T00:00:00Z"})
    denied = plan(a_request(), NAMESPACE, later, NOW)
    assert denied == Deny("node node1 is revoked until 2026-06-03T00:00:00Z (ConfigMap kubevirt-trust)")
    assert plan(a_request(conditions=("Approved",)), NAMESPACE, later, NOW) == Fail(denied.message)
    assert plan(a_request(), NAMESPACE, Revocations({"node1": NOW + timedelta(minutes=5)}), NOW) == Approve("node1")
    assert isinstance(plan(a_request(), NAMESPACE, Revocations({"node1": NOW + timedelta(minutes=5, seconds=1)}), NOW), Deny)


LONG = "x" * 300_000


@pytest.mark.parametrize(
    "long",
    [
        {"spec": {"request": LONG}},
        {"spec": {"usages": [LONG]}},
        {"metadata": {"annotations": {"a": LONG}}},
        {"metadata": {"labels": {f"a{number}": "" for number in range(20_000)}}},
    ],
)
def test_oversized_request_is_trimmed_and_denied(long: dict[str, Any]) -> None:
    request = a_request()
    for part, fields in long.items():
        request[part] |= fields
    kept = trim_request(request)
    assert len(json.dumps(kept)) < 2048
    assert isinstance(plan(kept, NAMESPACE, NONE, NOW), Deny)
    request["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    assert isinstance(plan(trim_request(request), NAMESPACE, NONE, NOW), Fail)


def test_of_a_request_that_is_decided_only_that_is_kept() -> None:
    for status in ({"conditions": [{"type": "Denied"}]}, {"conditions": [{"type": "Approved"}], "certificate": "LS0t"}):
        kept = trim_request({**a_request(), "status": status})
        assert kept["spec"] == {"signerName": "kubevirt.io/virt-handler"}
        assert plan(kept, NAMESPACE, NONE, NOW) == Nothing()


def test_a_request_of_virt_handler_is_kept_as_it_is() -> None:
    assert trim_request(a_request()) == a_request()
