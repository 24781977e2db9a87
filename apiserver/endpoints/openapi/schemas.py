"""Convert pydantic's JSON schemas (2020-12) to structural schemas of Kubernetes.

Optional fields are missing in ``required`` instead of ``anyOf`` with null, references are inside ``allOf`` with their
description, and objects stay open for ``fieldValidation``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from apiserver.apis.meta.resources import Resource
from apiserver.endpoints.openapi import metatypes
from apiserver.endpoints.openapi.descriptions import Described

Schema = dict[str, Any]

_DROPPED: Final = frozenset({"title", "$defs", "additionalProperties", "default", "const", "x-meta", "anyOf", "$ref", "allOf"})
_LOCAL: Final = "#/$defs/"
_ALWAYS: Final[dict[str, Schema]] = {
    "apiVersion": {"type": "string", "description": "The version of this representation of the object."},
    "kind": {"type": "string", "description": "The kind of the object."},
    "metadata": {"allOf": [metatypes.ref("ObjectMeta")], "description": "The object's metadata."},
}


def components(described: Described) -> dict[str, Schema]:
    """Return a resource's schemas by component name, with its list and read subresources."""
    found: dict[str, Schema] = {}
    for answers, model in ((described.resource, described.model), *described.reads.values()):
        found.update(_kind(described.prefix, answers, model))  # type: ignore[arg-type]  # mypy takes no class for hashable
    found[f"{described.component}List"] = _list_of(described)
    return found


@functools.cache
def _kind(prefix: str, resource: Resource, model: type[Any]) -> Mapping[str, Schema]:
    """Return shared schemas, which must not be changed. Pydantic takes 0.3 s for our kinds."""
    raw = model.model_json_schema(by_alias=True, ref_template=_LOCAL + "{model}")
    definitions = raw.get("$defs") or {}

    def name_of(local: str) -> str:
        return f"{prefix}.{local}"

    found = {name_of(local): structural(each, name_of) for local, each in definitions.items()}
    root = structural(raw, name_of)
    gvk = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    properties = {**_ALWAYS, **(root.get("properties") or {})}
    found[name_of(resource.kind)] = {**root, "properties": properties, "x-kubernetes-group-version-kind": gvk}
    return found


def structural(schema: Mapping[str, Any], name_of: Callable[[str], str]) -> Schema:
    """Convert a pydantic schema to a structural one; ``name_of`` names the component of a local definition.

    Raises ValueError for alternatives other than null.
    """
    schema = _without_null(schema)
    result: Schema = {}
    if meta := schema.get("x-meta"):
        result["allOf"] = [metatypes.ref(meta)]
    elif "$ref" in schema:
        result["allOf"] = [{"$ref": metatypes.REF + name_of(schema["$ref"].removeprefix(_LOCAL))}]
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: structural(each, name_of) for name, each in value.items()}
        elif key == "items":
            result[key] = structural(value, name_of)
        elif key == "description":
            result[key] = " ".join(value.split())
        elif key not in _DROPPED:
            result[key] = value
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"], name_of)
    if "const" in schema:
        result["enum"] = [schema["const"]]
    return result


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    options = [each for each in schema.get("anyOf") or () if each.get("type") != "null"]
    if not options:
        return schema
    if len(options) > 1:
        raise ValueError(f"a structural schema has no alternatives: {schema}")
    return {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def _list_of(described: Described) -> Schema:
    resource = described.resource
    return {
        "type": "object",
        "description": f"A list of objects of kind {resource.kind}.",
        "properties": {
            "apiVersion": {"type": "string", "description": f"{resource.api_version}."},
            "kind": {"type": "string", "description": f"{resource.kind}List."},
            "metadata": {"allOf": [metatypes.ref("ListMeta")], "description": "The version of the list, and a token for the next page."},
            "items": {
                "type": "array",
                "items": {"allOf": [{"$ref": metatypes.REF + described.component}]},
                "description": "The objects.",
            },
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [{"group": resource.group, "version": resource.version, "kind": f"{resource.kind}List"}],
    }
