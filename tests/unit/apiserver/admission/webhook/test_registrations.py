from __future__ import annotations

import base64

from apiserver.admission.webhook import registrations


def test_names_need_not_be_unique() -> None:
    configuration = {"metadata": {"name": "c"}, "webhooks": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
    assert [each.uid for each in registrations.read(configuration)] == ["c/a/0", "c/b/0", "c/a/1"]


def test_registration_defaults_are_v1s_and_errors_are_reported() -> None:
    (bare,) = registrations.read({"metadata": {"name": "c"}, "webhooks": [{"name": "a"}]})
    assert (bare.seconds, bare.matching.equivalent, bare.fails_open, bare.reinvoked, bare.dry_runs) == (10, True, False, False, False)
    assert bare.address.problem == "webhook configuration must have either service or URL"
    selector = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    (broken,) = registrations.read({"metadata": {"name": "c"}, "webhooks": [{"name": "a", "objectSelector": selector}]})
    assert "cannot parse" in broken.matching.objects.problem
    assert registrations.Address.read({"url": "https://x", "caBundle": "%"}).problem == "caBundle is not valid base64"


def test_a_service_has_port_443() -> None:
    address = registrations.Address.read(
        {"service": {"name": "a", "namespace": "b"}, "caBundle": base64.b64encode(b"PEM").decode()}
    )  # fmt: skip
    assert (address.service, address.namespace, address.port, address.authority) == ("a", "b", 443, "PEM")
