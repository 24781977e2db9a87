from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.admission.webhook.calling import Caller, target, tls
from apiserver.admission.webhook.registrations import Address
from certs.issuing import new_authority

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
    found = target(address)
    assert (found.url, found.server_name) == (url, name)


@pytest.mark.parametrize(
    "address", [Address("http://h.test"), Address("https://u:p@h.test"), Address("https://"), Address(service="a"), Address(problem="no")]
)
def test_where_no_webhook_can_be(address: Address) -> None:
    with pytest.raises(ValueError, match=r"."):
        target(address)


def test_the_service_account_is_for_kube_apiserver_alone(tmp_path: Path) -> None:
    caller = Caller(service_account=tmp_path)
    ours = target(Address(service="kubernetes", namespace="default"))
    assert caller._as_ourselves(ours) == ({}, "")
    (tmp_path / "token").write_text("mine\n")
    (tmp_path / "ca.crt").write_text("PEM")
    assert caller._as_ourselves(ours) == ({"Authorization": "Bearer mine"}, "\nPEM")
    for other in (
        Address(service="kubernetes", namespace="other"),
        Address(service="kubernetes", namespace="default", port=8443),
        Address("https://h.test"),
    ):
        assert caller._as_ourselves(target(other)) == ({}, "")


def test_certificates_are_always_verified() -> None:
    context = tls(new_authority("a", HOUR, NOW).certificate.decode())
    assert (context.verify_mode, context.check_hostname, context.hostname_checks_common_name) == (ssl.CERT_REQUIRED, True, False)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert len(context.get_ca_certs()) == 1
    with pytest.raises(ValueError, match="cannot load certificates"):
        tls("no PEM")
