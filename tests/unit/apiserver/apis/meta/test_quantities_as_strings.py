from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from apiserver.apis.meta import amounts
from apiserver.apis.meta.schema import Kind, Model, Quantity
from apiserver.apis.virt.v1alpha1 import types


class Part(Model):
    read_bytes: Quantity | None = None
    count: int | None = None


class Whole(Kind):
    """Quantities in every place that a model allows."""

    size: Quantity = Field(description="bare")
    part: Part | None = None
    parts: list[Part] | None = None
    by_name: dict[str, Quantity] | None = None
    parts_by_name: Annotated[dict[str, Part], Field(max_length=9)] | None = None
    sizes: int | Part | None = None


def test_only_numbers_of_quantity_fields_become_strings() -> None:
    obj = {
        "metadata": {"size": 1},
        "size": 268435456,
        "part": {"readBytes": 1.5, "count": 7},
        "parts": [{"readBytes": 1024}, {"readBytes": "1024Mi"}, {}],
        "byName": {"a": 1, "b": "2", "*": 3},
        "partsByName": {"a": {"readBytes": 0, "count": 1}},
        "sizes": {"readBytes": -5},
    }
    amounts.write_as_strings(Whole, obj)
    assert obj == {
        "metadata": {"size": 1},
        "size": "268435456",
        "part": {"readBytes": "1500m", "count": 7},
        "parts": [{"readBytes": "1024"}, {"readBytes": "1024Mi"}, {}],
        "byName": {"a": "1", "b": "2", "*": "3"},
        "partsByName": {"a": {"readBytes": "0", "count": 1}},
        "sizes": {"readBytes": "-5"},
    }


@pytest.mark.parametrize("wrong", [None, True, "x", [1], {"a": 1}, 1e300])
def test_invalid_quantities_are_left_for_validation(wrong: Any) -> None:
    obj = {"size": wrong, "part": wrong, "parts": {"readBytes": wrong}, "byName": wrong}
    amounts.write_as_strings(Whole, obj)
    assert obj["size"] == wrong


@pytest.mark.parametrize(
    ("number", "text"), [(1000, "1k"), (1073741824, "1073741824"), (0.5, "500m"), (1e9, "1G"), (0.1, "100m"), (10**15, "1P"), (-1, "-1")]
)
def test_a_number_is_shown_as_go_shows_it(number: float, text: str) -> None:
    assert amounts.as_string(number) == text


def test_every_quantity_of_a_machine_is_found() -> None:
    published = str(types.VirtualMachine.model_json_schema()).count("'x-meta': 'Quantity'")
    assert _leaves(amounts._places_of(types.VirtualMachine)) >= published > 10


def _leaves(places: amounts.Places) -> int:
    return sum(1 if each is None else _leaves(each) for each in places.values())
