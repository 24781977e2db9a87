from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.core.resources import NODES, PODS
from apiserver.apis.meta import errors


def test_paths_are_those_of_the_api() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns", "p", "log") == "/api/v1/namespaces/ns/pods/p/log"
    assert NODES.path(None, "node-1.example.com") == "/api/v1/nodes/node-1.example.com"
    assert PODS.path("ns", "system:x") == "/api/v1/namespaces/ns/pods/system:x"


def test_special_characters_of_a_name_are_percent_encoded() -> None:
    assert PODS.path("ns", "a b?c#d\r\n") == "/api/v1/namespaces/ns/pods/a%20b%3Fc%23d%0D%0A"


@pytest.mark.parametrize("name", ["../secrets/x", "..", ".", "", "a/b", "%2e%2e%2fsecrets", "\ud800", 7, ["x"]], ids=repr)
def test_a_name_that_would_lead_elsewhere_is_refused(name: Any) -> None:
    with pytest.raises(errors.BadRequest, match="invalid resource name"):
        PODS.path("ns", name)
    with pytest.raises(errors.BadRequest, match="invalid resource name"):
        PODS.path(name, "p")
