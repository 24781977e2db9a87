"""Converts quantities in an object to strings, as Go does. Strings remain as written."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, PlainValidator

from apiserver.apis.meta import quantity, schema

Places = dict[str, "Places | None"]
"""Members with quantities, by name. None marks a quantity. A list counts as its elements."""

_EACH: Final = "*"
"""Key in :data:`Places` for each value of a map."""


def write_as_strings(model: type[BaseModel], obj: dict[str, Any]) -> None:
    """Replace, in place, each number in ``obj`` that ``model`` declares as a Quantity by Go's string; invalid ones stay."""
    if places := _places_of(model):
        _write(places, obj)


def as_string(number: float) -> str:
    """Return Go's string for a number as a quantity; an amount above 2⁶³-1 becomes 2⁶³-1.

    Raises:
        ValueError: it is not finite, or its decimal exponent is beyond ±64.
    """
    return str(quantity.parse(str(number)))


def _write(places: Places, value: Any) -> None:  # noqa: ANN401 - any JSON value
    if isinstance(value, list):
        for each in value:
            _write(places, each)
    elif isinstance(value, dict):
        for name in value if _EACH in places else places.keys() & value.keys():
            below = places.get(name, places.get(_EACH))
            if below is not None:
                _write(below, value[name])
            elif type(value[name]) in (int, float):
                _replace(value, name)


def _replace(parent: dict[str, Any], name: str) -> None:
    try:
        parent[name] = as_string(parent[name])
    except ValueError:
        return  # validation will refuse it


@cache
def _places_of(model: Hashable) -> Places:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return {}
    found: Places = {}
    for name, field in model.model_fields.items():
        below = {} if _has_mark(field.metadata) else _places_below(field.annotation)
        if below is None or below or _has_mark(field.metadata):
            found[field.alias or name] = below or None
    return found


def _places_below(annotation: Any) -> Places | None:  # noqa: ANN401 - any type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _places_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return None if _has_mark(arguments[1:]) else _places_below(arguments[0])
    if origin is dict:
        below = _places_below(arguments[1])
        return {} if below == {} else {_EACH: below}
    merged: Places = {}
    for each in arguments:
        below = _places_below(each)
        if below is None:
            return None
        merged |= below
    return merged


def _has_mark(metadata: Any) -> bool:  # noqa: ANN401 - whatever stands in Annotated
    return any(isinstance(each, PlainValidator) and each.func is schema.validated_quantity for each in metadata)
