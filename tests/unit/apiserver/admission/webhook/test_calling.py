"""Addresses of webhooks, our identity towards them, and trusted authorities."""

from __future__ import annotations

import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.admission.webhook.calling import target, tls
from apiserver.admission.webhook.credentials import Credential, Credentials, CredentialsError
from apiserver.admission.webhook.registrations import Address
from certs.issuing import Profile, issue, new_authority

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("address", "url", "name"),
    [
        (Address(service="a", namespace="b"), "https://a.b.svc:443/", "a.b.svc"),
        (Address(service="a", namespace="b", port=8443, path="/x/y"), "https://a.b.svc:8443/x/y", "a.b.svc"),
        (Address(service="a", namespace="b", path="x/"), "https://a.b.svc:443/x", "a.b.svc"),
        (Address("https://h.test"), "https://h.test/", None),
        (Address("https://h.test:8443/x//y"), "https://h.test:8443/x/y", None),
        (Address("https://[::1]:8443/x"), "https://[::1]:8443/x", None),
    ],
)
def test_where_a_webhook_is(address: Address, url: str, name: str | None) -> None:
    """ADM-03: as Go's default resolver: the Service's name in the cluster's DNS."""
    found = target(address)
    assert (found.url, found.server_name) == (url, name)


@pytest.mark.parametrize(
    "address", [Address("http://h.test"), Address("https://u:p@h.test"), Address("https://"), Address(service="a"), Address(problem="no")]
)
def test_where_no_webhook_can_be(address: Address) -> None:
    with pytest.raises(ValueError, match=r"."):
        target(address)


def test_users_are_chosen_by_host(tmp_path: Path) -> None:
    users = {each: Credential(token=each) for each in ("a.b.svc:8443", "*.b.svc:8443", "c.d.svc", "*.d.svc", "*")}
    credentials = Credentials(users, Credential(token="current"), service_account=tmp_path)
    for host, port, expected in (
        ("a.b.svc", 8443, "a.b.svc:8443"),
        ("x.b.svc", 8443, "*.b.svc:8443"),
        ("c.d.svc", 443, "c.d.svc"),
        ("c.d.svc", 8443, "*"),
        ("x.d.svc", 443, "*.d.svc"),
        ("elsewhere", 443, "*"),
    ):
        assert credentials.of(host, port).token == expected, host
    assert Credentials({}, Credential(token="current")).of("x", 443).token == "current"


def test_the_service_account_is_for_kube_apiserver_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine\n")
    credentials = Credentials({}, service_account=tmp_path)
    assert credentials.of("kubernetes.default.svc", 443).headers() == {"Authorization": "Bearer mine"}
    assert credentials.of("kubernetes.other.svc", 443).headers() == {}


def test_a_kubeconfig_for_webhooks(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"user": "me"}}],
        "users": [
            {"name": "me", "user": {"tokenFile": "token"}},
            {"name": "b", "user": {"username": "u", "password": "p"}},
        ],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    credentials = Credentials.from_kubeconfig(path)
    assert credentials.of("x", 443).headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second")
    assert credentials.of("x", 443).headers() == {"Authorization": "Bearer second"}
    assert credentials.of("b", 443).headers() == {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()}
    path.write_text(json.dumps({"users": [{"name": "b", "user": {"exec": {}}}]}))
    with pytest.raises(CredentialsError, match="needs a plug-in"):
        Credentials.from_kubeconfig(path)
    path.write_text(json.dumps({"users": [{"name": "b", "user": {"tokenFile": "absent"}}]}))
    with pytest.raises(CredentialsError, match="absent"):
        Credentials.from_kubeconfig(path)
    assert "secret" not in repr(Credential(token="secret", password="secret"))


def test_certificates_are_always_verified_and_a_client_certificate_is_shown() -> None:
    authority = new_authority("a", HOUR, NOW)
    pair = issue(authority, Profile("me", client=True), HOUR, NOW)
    context = tls(authority.certificate.decode(), Credential(certificate=pair.certificate, key=pair.key))
    assert (context.verify_mode, context.check_hostname, context.hostname_checks_common_name) == (ssl.CERT_REQUIRED, True, False)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(ValueError, match="certificates cannot be loaded"):
        tls("no PEM")
