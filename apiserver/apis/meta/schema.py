"""Common parts of the kinds' pydantic models: strictness, JSON names, scalar types."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from apiserver.apis.meta import quantity, times

ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}
META: Final = "x-meta"
"""In a field's schema: the type of ``endpoints.openapi.metatypes`` to publish instead."""
ATOMIC_MAP: Final[dict[str, Any]] = {"x-kubernetes-map-type": "atomic"}


def keyed_by(*keys: str) -> dict[str, Any]:
    """Return the schema extensions of a list of objects with unique ``keys``; strategic merge patches use the first."""
    return {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": keys[0],
    }


class Model(BaseModel):
    """A structure of the API: camelCase in JSON, no unknown fields, no conversions (``"1"`` is not an integer)."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Kind(Model):
    """An object: the fields of every kind besides ``spec`` and ``status``."""

    api_version: str | None = Field(None, description="The group and version of this representation.")
    kind: str | None = Field(None, description="Kind of this object, in CamelCase.")
    metadata: Any = Field(None, description="Name, namespace, labels and the like.", json_schema_extra={META: "ObjectMeta"})


def validated_quantity(value: object) -> object:
    """Return the value if it is a valid quantity.

    Raises:
        PydanticCustomError: it is not.
    """
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            quantity.parse(str(value))
        except ValueError as error:
            raise PydanticCustomError("quantity", "{reason}", {"reason": f"{error}, such as 128Mi or 1Gi"}) from error
        return value
    raise PydanticCustomError("quantity_type", "must be a quantity such as 512Mi")


def _int_or_string(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("int_or_string_type", "must be an integer or a string")
    if isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
        raise PydanticCustomError("int_or_string_range", "must be an integer of 32 bits")
    return value


def _time(value: str) -> str:
    try:
        times.parse(value)
    except ValueError as error:
        raise PydanticCustomError("time", "must be an RFC 3339 time such as 2006-01-02T15:04:05Z") from error
    return value


_LIMIT: Final = 2**31
Int32 = Annotated[int, Field(ge=-_LIMIT, lt=_LIMIT), WithJsonSchema({"type": "integer", "format": "int32"})]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63), WithJsonSchema({"type": "integer", "format": "int64"})]
Time = Annotated[str, AfterValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
IntOrString = Annotated[Any, PlainValidator(_int_or_string), WithJsonSchema({META: "IntOrString"})]
Quantity = Annotated[
    Any,
    PlainValidator(validated_quantity),
    WithJsonSchema({"x-meta": "Quantity"}),
]
