"""Convert the 3.0 documents to the OpenAPI 2.0 (Swagger) document, which kube-apiserver merges into its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from apiserver.endpoints.openapi import metatypes
from apiserver.endpoints.openapi.version3 import JSON_TYPES, Document

_DEFINITIONS: Final = "#/definitions/"


def convert(documents: Sequence[Document], *, title: str, version: str) -> Document:
    """Convert OpenAPI 3.0 documents to one 2.0 document."""
    paths: Document = {}
    definitions: Document = {}
    for document in documents:
        for path, methods in document["paths"].items():
            paths[path] = {method: _operation(operation) for method, operation in methods.items()}
        definitions.update({name: _schema(schema) for name, schema in document["components"]["schemas"].items()})
    return {
        "swagger": "2.0",
        "info": {"title": title, "version": version},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
    }


def _operation(operation: Document) -> Document:
    result = {key: value for key, value in operation.items() if key not in ("parameters", "requestBody", "responses")}
    content = next(iter(operation["responses"].values())).get("content") or {}
    body = operation.get("requestBody")
    result["consumes"] = list(body["content"]) if body else ["*/*"]
    result["produces"] = list(content) or ["*/*"]
    result["schemes"] = ["https"]
    result["parameters"] = [_parameter(each) for each in operation["parameters"]]
    if body:
        media = next(iter(body["content"].values()))
        required = {"required": True} if body.get("required") else {}
        result["parameters"].append({"name": "body", "in": "body", **required, "schema": _schema(media["schema"])})
    result["responses"] = {code: _response(each) for code, each in operation["responses"].items()}
    return result


def _response(response: Document) -> Document:
    media = (response.get("content") or {}).get(JSON_TYPES[0])
    return {"description": response["description"], **({"schema": _schema(media["schema"])} if media else {})}


def _parameter(parameter: Document) -> Document:
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **parameter["schema"]}


def _schema(schema: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(schema, list):
        return [_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _schema(value) for key, value in schema.items() if key not in ("allOf", "oneOf", "$ref")}
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf") or ()), None)
    if reference:
        result["$ref"] = _DEFINITIONS + reference.removeprefix(metatypes.REF)
    if "oneOf" in schema:
        result["type"] = schema["oneOf"][0]["type"]  # 2.0 lacks alternatives; use the first, which we write
    return result
