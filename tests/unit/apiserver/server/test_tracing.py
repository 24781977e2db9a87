"""Reading a TracingConfiguration."""

from __future__ import annotations

import json

import pytest

from apiserver.server.tracing import configuration as tracing
from apiserver.server.tracing.configuration import TracingConfiguration

KIND = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration"}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, TracingConfiguration("localhost:4317", 0)),
        ({"endpoint": "collector.tracing:4317"}, TracingConfiguration("collector.tracing:4317", 0)),
        ({"samplingRatePerMillion": 100}, TracingConfiguration("localhost:4317", 0.0001)),
        ({"apiVersion": "apiserver.config.k8s.io/v1beta1"}, TracingConfiguration()),
    ],
)
def test_a_configuration_says_where_spans_go_and_of_how_many(given: dict[str, object], read: TracingConfiguration) -> None:
    assert tracing.read(json.dumps({**KIND, **given})) == read


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "Tracing"}, "TracingConfiguration"),
        ({"apiVersion": "v1"}, "TracingConfiguration"),
        ({"samplingRatePerMillion": 1_000_001}, "samplingRatePerMillion"),
        ({"samplingRatePerMillion": -1}, "samplingRatePerMillion"),
        ({"samplingRatePerMillion": "1"}, "samplingRatePerMillion"),
        ({"endpoint": "http://collector:4317"}, "endpoint"),
        ({"endpoint": "collector"}, "endpoint"),
        ({"sampling": 1}, "unknown fields: sampling"),
    ],
)
def test_what_is_none_is_refused_with_the_field_that_is_wrong(given: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tracing.read(json.dumps({**KIND, **given}))


@pytest.mark.parametrize("text", ["", "[]", "a"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TracingConfiguration"):
        tracing.read(text)
