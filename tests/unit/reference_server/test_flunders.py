from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.meta.objects import HubObject
from tests.reference_server.flunders import FlunderStrategy, FlunderV1beta1Strategy


@pytest.fixture
def hub() -> FlunderStrategy:
    return FlunderStrategy()


@pytest.fixture
def spoke(hub: FlunderStrategy) -> FlunderV1beta1Strategy:
    return FlunderV1beta1Strategy(hub)


def flunder(version: str, **spec: str) -> dict[str, Any]:
    return {"apiVersion": f"wardle.example.com/{version}", "kind": "Flunder", "metadata": {"name": "f"}, "spec": spec, "status": {}}


@pytest.mark.parametrize(
    ("beta", "alpha"),
    [
        ({}, {}),
        ({"flunderReference": "a", "referenceType": "Flunder"}, {"reference": "a", "referenceType": "Flunder"}),
        ({"fischerReference": "a", "referenceType": "Fischer"}, {"reference": "a", "referenceType": "Fischer"}),
    ],
)
def test_the_versions_convert_without_loss(spoke: FlunderV1beta1Strategy, beta: dict[str, str], alpha: dict[str, str]) -> None:
    assert spoke.to_hub(flunder("v1beta1", **beta)) == flunder("v1alpha1", **alpha)
    assert spoke.from_hub(HubObject(flunder("v1alpha1", **alpha))) == flunder("v1beta1", **beta)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"flunderReference": "a", "fischerReference": "b"}, "cannot be set with flunderReference at the same time"),
        ({"flunderReference": "a", "referenceType": "Fischer"}, "cannot be set if referenceType is not Flunder"),
        ({"fischerReference": "a", "referenceType": "Flunder"}, "cannot be set if referenceType is not Fischer"),
    ],
)
def test_contradictions_are_refused_in_the_words_of_the_sample(spoke: FlunderV1beta1Strategy, spec: dict[str, str], message: str) -> None:
    (error,) = spoke.read(flunder("v1beta1", **spec)).errors
    assert message in str(error)


def test_a_reference_alone_is_to_a_flunder(hub: FlunderStrategy) -> None:
    obj = flunder("v1alpha1", reference="a")
    hub.default(obj)
    once = copy.deepcopy(obj)
    hub.default(obj)
    assert obj == once == flunder("v1alpha1", reference="a", referenceType="Flunder")


def test_a_type_without_a_reference_is_refused(hub: FlunderStrategy) -> None:
    (error,) = hub.validate(flunder("v1alpha1", referenceType="Fischer"))
    assert "cannot be empty if referenceType is Fischer" in str(error)
