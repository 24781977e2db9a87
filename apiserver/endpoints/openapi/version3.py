"""Build the OpenAPI 3.0 document of one group version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.strategic_patch import Shape
from apiserver.endpoints.openapi import metatypes, operations, schemas
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.endpoints.openapi.operations import Operation, Parameter

JSON_TYPES: Final = ("application/json", "application/yaml")
STREAM_TYPES: Final = (*JSON_TYPES, "application/json;stream=watch")
PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)

Document = dict[str, Any]


def path_of(resource: Resource) -> str:
    """Return the document's name in ``/openapi/v3``: ``apis/kubevirt.io/v1alpha1``."""
    return f"apis/{resource.group}/{resource.version}"


def build(described: Sequence[Described], *, title: str, version: str, patch_types: tuple[str, ...] = PATCH_TYPES) -> Document:
    """Build the document of resources with a common group version."""
    scales = any(each.has_scale for each in described)
    found = {metatypes.PREFIX + name: schema for name, schema in metatypes.TYPES.items() if scales or name != operations.SCALE_TYPE}
    for each in described:
        found.update(schemas.components(each))
    paths: dict[str, Document] = {}
    group_tag = operations.tag(described[0].resource)
    for operation in operations.all_operations(described, patch_types):
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, group_tag)
    return {
        "openapi": "3.0.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": dict(sorted(found.items()))},
    }


def shape(document: Document, described: Described) -> Shape:
    """Return the resource's schema in the document, for strategic merge patches."""
    components = document["components"]["schemas"]
    return Shape(components[described.component], components)


def component_name(name: str) -> str:
    """Return the component's full name for ``returns`` or ``body`` of an :class:`Operation`."""
    return metatypes.PREFIX + name if name in operations.META else name


def _operation(operation: Operation, group_tag: str) -> Document:
    result: Document = {
        "description": operation.description,
        "tags": [group_tag],
        "operationId": operation.id,
        "parameters": [_parameter(each) for each in operation.parameters],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        schema = {"$ref": metatypes.REF + component_name(operation.body)}
        content = {each: {"schema": schema} for each in operation.body_types or ("*/*",)}
        result["requestBody"] = {"content": content, **({"required": True} if operation.body_required else {})}
    if operation.kind is not None:
        result["x-kubernetes-action"] = operation.action
        result["x-kubernetes-group-version-kind"] = gvk_of(operation.kind)
    return result


def gvk_of(resource: Resource) -> dict[str, str]:
    """Return ``x-kubernetes-group-version-kind`` of an operation."""
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _responses(operation: Operation) -> Document:
    if operation.returns is None:
        return {"101": {"description": "Switching protocols"}, "default": {"description": "A Status with the error"}}
    schema = {"$ref": metatypes.REF + component_name(operation.returns)}
    types = STREAM_TYPES if operation.action == "list" else JSON_TYPES
    texts = {200: "OK", 201: "Created", 202: "Accepted"}
    return {str(code): {"description": texts[code], "content": {each: {"schema": schema} for each in types}} for code in operation.codes}


def _parameter(parameter: Parameter) -> Document:
    result: Document = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": {"type": parameter.type, "uniqueItems": True} if parameter.place == "query" else {"type": parameter.type},
    }
    return {**result, "required": True} if parameter.place == "path" else result
