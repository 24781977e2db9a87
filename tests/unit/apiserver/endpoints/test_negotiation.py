from __future__ import annotations

import pytest

from apiserver.apis.meta.errors import NotAcceptable, UnsupportedMediaType
from apiserver.endpoints.negotiation import JSON, YAML, Representation, accepts_pretty, body_type, negotiate, wants_aggregated_discovery

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        ("*", Representation()),
        ("application/*", Representation()),
        ("application/json", Representation()),
        ("text/html, */*;q=0.1", Representation()),
        (f"{PROTOBUF},application/json", Representation()),
        ("application/json;q=0.1, application/yaml", Representation(YAML)),
        ("application/yaml;q=0, application/json", Representation()),
        (f"{TABLE},{BETA},application/json", Representation(JSON, "Table", "v1")),
        (f"{BETA},application/json", Representation(JSON, "Table", "v1beta1")),
        ("application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json", Representation()),
        ("application/json;as=Table;v=v7;g=meta.k8s.io,application/json", Representation()),
        ("application/json;q=x", Representation()),
    ],
)
def test_the_best_that_can_be_served_is_served(accept: str, expected: Representation) -> None:
    assert negotiate(accept, ("Table",)) == expected


@pytest.mark.parametrize("accept", ["text/html", PROTOBUF, f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io", ";;;", "application/cbor", "/"])
def test_nothing_else_is(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="only the following media types are accepted: application/json, application/yaml"):
        negotiate(accept, ("Table",))


def test_yaml_cannot_be_streamed() -> None:
    with pytest.raises(NotAcceptable):
        negotiate("application/yaml", stream=True)
    assert negotiate("application/yaml,application/json", stream=True) == Representation()


def test_aggregated_discovery_requires_version_two() -> None:
    second = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    beta = second.replace("v2", "v2beta1")
    assert wants_aggregated_discovery(f"{second},{beta},application/json")
    assert wants_aggregated_discovery(f"{beta},{second}")
    assert not wants_aggregated_discovery(f"{beta},application/json,{second}")
    assert not wants_aggregated_discovery("*/*")


def test_a_body_without_a_type_is_json() -> None:
    assert body_type(None) == body_type("") == body_type("application/json; charset=utf-8") == JSON
    assert body_type("application/yaml") == YAML
    with pytest.raises(UnsupportedMediaType):
        body_type("application/octet-stream")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("*/*, application/yaml", YAML),
        ("application/*;q=0.5, application/yaml;q=0.5", YAML),
        ("text/html, */*;q=0.1", JSON),
        ("application/json;stream=watch, application/yaml", JSON),
        ("application/json;stream=other, application/yaml", YAML),
        ("application/json;sv=v2, application/yaml", YAML),
        ("application/json;v=v1, application/yaml", YAML),
        ("application/json;pretty=1;charset=utf-8", JSON),
        ("application/yaml;q=0.2, application/json;q=0.1", YAML),
    ],
)
def test_neg_01_quality_ranks_first_and_parameters_are_read(header: str, expected: str) -> None:
    assert negotiate(header).media_type == expected


def test_neg_09_an_alternative_can_ask_for_lines() -> None:
    assert accepts_pretty("application/json;pretty=1")
    assert not accepts_pretty("application/json;pretty=true, application/yaml;pretty=1")
    assert not accepts_pretty("")
