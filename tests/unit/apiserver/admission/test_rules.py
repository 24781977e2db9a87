"""The same rules as ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules``."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.admission.rules import Rule
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
