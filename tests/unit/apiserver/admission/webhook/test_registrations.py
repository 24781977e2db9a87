"""What a configuration says, and what its rules match: ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules``."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from apiserver.admission.webhook import registrations
from apiserver.admission.webhook.registrations import Rule
from apiserver.apis.meta.resources import Resource

THINGS = Resource("g.test", "v1", "things", "Thing")
NODES = Resource("g.test", "v1", "racks", "Rack", namespaced=False)


def rule(**given: Any) -> Rule:
    whole = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "*"}
    return Rule.read(whole | given)


@pytest.mark.parametrize(
    ("resources", "subresource", "expected"),
    [
        (["things"], "", True),
        (["things"], "status", False),
        (["things/status"], "status", True),
        (["things/status"], "", False),
        (["things/*"], "", True),
        (["things/*"], "scale", True),
        (["*"], "", True),
        (["*"], "status", False),
        (["*/*"], "", True),
        (["*/*"], "status", True),
        (["*/scale"], "scale", True),
        (["*/scale"], "status", False),
        (["others"], "", False),
        (["others", "things"], "", True),
        ([], "", False),
    ],
)
def test_resources_and_subresources(resources: list[str], subresource: str, expected: bool) -> None:
    assert rule(resources=resources).matches("CREATE", THINGS, subresource) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"operations": ["CREATE", "DELETE"]}, True),
        ({"operations": ["UPDATE"]}, False),
        ({"operations": []}, False),
        ({"apiGroups": ["g.test"]}, True),
        ({"apiGroups": [""]}, False),
        ({"apiVersions": ["v2", "v1"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"scope": None}, True),
    ],
)
def test_the_other_parts_of_a_rule(given: dict[str, Any], expected: bool) -> None:
    assert rule(**given).matches("CREATE", THINGS, "") is expected


def test_scope_of_what_is_in_no_namespace() -> None:
    assert rule(scope="Cluster").matches("CREATE", NODES, "")
    assert not rule(scope="Namespaced").matches("CREATE", NODES, "")


def test_names_need_not_be_unique() -> None:
    configuration = {"metadata": {"name": "c"}, "webhooks": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}
    assert [each.uid for each in registrations.read(configuration)] == ["c/a/0", "c/b/0", "c/a/1"]


def test_what_is_absent_has_the_defaults_of_v1_and_what_is_broken_says_so() -> None:
    (bare,) = registrations.read({"metadata": {"name": "c"}, "webhooks": [{"name": "a"}]})
    assert (bare.seconds, bare.equivalent, bare.fails_open, bare.reinvoked, bare.dry_runs) == (10, True, False, False, False)
    assert bare.address.problem == "webhook configuration must have either service or URL"
    selector = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    (broken,) = registrations.read({"metadata": {"name": "c"}, "webhooks": [{"name": "a", "objectSelector": selector}]})
    assert "cannot be read" in broken.objects.problem
    assert registrations.Address.read({"url": "https://x", "caBundle": "%"}).problem == "caBundle is no base64"


def test_a_service_has_port_443() -> None:
    address = registrations.Address.read(
        {"service": {"name": "a", "namespace": "b"}, "caBundle": base64.b64encode(b"PEM").decode()}
    )  # fmt: skip
    assert (address.service, address.namespace, address.port, address.authority) == ("a", "b", 443, "PEM")
