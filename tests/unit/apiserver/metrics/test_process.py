from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from apiserver.metrics import process
from apiserver.metrics.instruments import Registry


def test_the_process_is_described_as_by_the_library() -> None:
    registry = Registry()
    registry.add(*process.families())
    ours = {each.name: each for each in text_string_to_metric_families(registry.page().decode())}
    theirs = {each.name: each for each in ProcessCollector(registry=CollectorRegistry()).collect()}

    assert {name: (each.type, each.documentation) for name, each in ours.items()} == {
        name: (each.type, each.documentation) for name, each in theirs.items()
    }
    for name, each in theirs.items():
        assert ours[name].samples[0].name == each.samples[0].name
        assert ours[name].samples[0].value == pytest.approx(each.samples[0].value, rel=0.1)
