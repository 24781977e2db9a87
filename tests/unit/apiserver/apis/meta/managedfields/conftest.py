"""A notation for tables of writes, and a kind to write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from apiserver.apis.meta.managedfields import openapi
from apiserver.apis.meta.managedfields.manager import FieldManager

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
_STRING = {"type": "string"}
_KEYED = {"type": "array", "x-kubernetes-list-type": "map"}

SPEC: Json = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "size": {"type": "integer"},
        "flag": {"type": "boolean"},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "map": {"type": "object", "additionalProperties": _STRING},
        "maps": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _STRING}},
        "structs": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Pair"}},
        "pair": {"$ref": "#/components/schemas/Pair"},
        "whole": {"type": "object", "additionalProperties": _STRING, "x-kubernetes-map-type": "atomic"},
        "order": {"type": "array", "items": _STRING},
        "set": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "list": {**_KEYED, "items": {"$ref": "#/components/schemas/Item"}, "x-kubernetes-list-map-keys": ["name"]},
        "ports": {**_KEYED, "items": {"$ref": "#/components/schemas/Port"}, "x-kubernetes-list-map-keys": ["port", "protocol"]},
    },
}


def document(spec: Json, *versions: str) -> Json:
    schemas: Json = {
        "Pair": {"type": "object", "properties": {"a": _STRING, "b": _STRING}},
        "Item": {
            "type": "object",
            "properties": {
                "name": _STRING,
                "value": _STRING,
                "list": {**_KEYED, "items": {"$ref": "#/components/schemas/Item"}, "x-kubernetes-list-map-keys": ["name"]},
            },
        },
        "Port": {
            "type": "object",
            "properties": {"port": {"type": "integer"}, "protocol": {**_STRING, "default": "TCP"}, "name": _STRING},
        },
    }
    for version in versions:
        schemas[f"Thing.{version}"] = {
            "type": "object",
            "properties": {
                "apiVersion": _STRING,
                "kind": _STRING,
                "metadata": {"type": "object", "properties": dict.fromkeys(("name", "namespace", "uid"), _STRING)},
                "spec": spec,
                "status": {"type": "object", "additionalProperties": _STRING},
            },
            "x-kubernetes-group-version-kind": [{"group": "g", "version": version, "kind": "Thing"}],
        }
    meta = {
        "managedFields": {"type": "array", "items": {"type": "object"}},
        "labels": {"type": "object", "additionalProperties": _STRING},
        "annotations": {"type": "object", "additionalProperties": _STRING},
    }
    for version in versions:
        schemas[f"Thing.{version}"]["properties"]["metadata"]["properties"] |= meta
    return {"components": {"schemas": schemas}}


class World:
    def __init__(self, spec: Json = SPEC, versions: tuple[str, ...] = ("v1", "v2"), **more: Any) -> None:
        self.live: Json | None = None
        self.now = START
        self._more = more
        self.serve(spec, versions)

    def serve(self, spec: Json, versions: tuple[str, ...]) -> None:
        types = openapi.types(document(spec, *versions))
        schemas = {f"g/{version}": types[f"g/{version}", "Thing"] for version in versions}

        def convert(obj: Json, api_version: str) -> Json:
            return {**obj, "apiVersion": api_version}

        self._managers = {version: FieldManager(f"g/{version}", "Thing", schemas, convert=convert, **self._more) for version in versions}

    def apply(self, manager: str, spec: str, *, force: bool = False, version: str = "v1", **metadata: Any) -> Json:
        self.now += timedelta(seconds=1)
        body = self._body(spec, version, **metadata)
        self.live = self._managers[version].apply(self._at(version), body, manager, force=force, now=self.now)
        return self.live

    def update(self, manager: str, spec: str, *, version: str = "v1", **metadata: Any) -> Json:
        self.now += timedelta(seconds=1)
        new = self._body(spec, version, **metadata)
        before = self._at(version)
        if before is not None:
            new["metadata"] = {**before["metadata"], "uid": "u", **new["metadata"]}
        self._managers[version].update(before, new, manager, self.now)
        self.live = new
        return new

    @property
    def spec(self) -> Any:
        assert self.live is not None
        return self.live.get("spec")

    @property
    def owned(self) -> dict[str, Any]:
        entries = (self.live or {})["metadata"].get("managedFields") or []
        return {each["manager"]: sorted(_paths(each["fieldsV1"].get("f:spec", {}), "")) for each in entries}

    def entry(self, manager: str) -> Json:
        [found] = [each for each in (self.live or {})["metadata"]["managedFields"] if each["manager"] == manager]
        assert isinstance(found, dict)
        return found

    def _at(self, version: str) -> Json | None:
        return None if self.live is None else {**self.live, "apiVersion": f"g/{version}"}

    @staticmethod
    def _body(spec: str, version: str, **metadata: Any) -> Json:
        parsed = yaml.safe_load(spec)
        body: Json = {"apiVersion": f"g/{version}", "kind": "Thing", "metadata": {"name": "n", **metadata}}
        return body if parsed is None else {**body, "spec": parsed}


def _paths(tree: Json, prefix: str) -> list[str]:
    found = [] if tree and "." not in tree else [prefix or "."]
    for step, below in tree.items():
        if step == ".":
            continue
        shown = step[2:] if step[0] == "f" else "[" + step[2:].strip("{}").replace('"', "").replace(":", "=") + "]"
        found += _paths(below, f"{prefix}.{shown}" if prefix and step[0] == "f" else prefix + shown)
    return found


@pytest.fixture
def world() -> Callable[..., World]:
    return World
