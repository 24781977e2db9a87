"""Our virtual machine, and a kind with every difficult construct."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from apiserver.apis.meta.managedfields import openapi
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.endpoints.openapi import version3
from apiserver.endpoints.openapi.descriptions import Described
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    group: str
    kind: str
    hub: str
    schemas: Json
    components: Mapping[str, str]
    """Names of the kind's schemas, by version."""
    renamed: Mapping[str, Mapping[str, str]]
    """By version: its names for fields of ``spec`` that differ from the hub's."""

    @property
    def versions(self) -> list[str]:
        return list(self.components)

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}"

    def atoms(self) -> dict[str, Atom]:
        types = openapi.types({"components": {"schemas": self.schemas}})
        return {self.api_version(each): types[self.api_version(each), self.kind] for each in self.versions}

    def convert(self, obj: Json, api_version: str) -> Json:
        version, to = obj["apiVersion"].rpartition("/")[2], api_version.rpartition("/")[2]
        result = {**copy.deepcopy(obj), "apiVersion": api_version}
        if version == to or not isinstance(spec := result.get("spec"), dict):
            return result
        for hub, here in self.renamed.get(version, {}).items():
            if here in spec:
                spec[hub] = spec.pop(here)
        for hub, there in self.renamed.get(to, {}).items():
            if hub in spec:
                spec[there] = spec.pop(hub)
        return result

    def registration(self) -> Json:
        return {
            "op": "register",
            "schema": self.name,
            "group": self.group,
            "kind": self.kind,
            "hub": self.hub,
            "versions": self.versions,
            "schemas": self.schemas,
            "empty": {},
            "renamed": self.renamed,
        }


def virtual_machines() -> Kind:
    described = Described.of(VirtualMachineStrategy())
    document = version3.build([described], title="virt-api", version="v1")
    schemas = document["components"]["schemas"]
    resource = described.resource
    return Kind("vm", resource.group, resource.kind, resource.version, schemas, {resource.version: described.component}, {})


def torture() -> Kind:
    schemas = {
        "t.v1.Torture": _root("v1"),
        "t.v2.Torture": _root("v2"),
        "t.v1.Spec": _spec("plain", "items"),
        "t.v2.Spec": _spec("simple", "elements"),
        "t.Meta": _META,
        "t.Pair": {
            "type": "object",
            "properties": {"x": {"type": "integer", "format": "int32"}, "y": {"type": "string"}, "pair": {"$ref": _REF + "t.Pair"}},
        },
        "t.Frozen": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": _STRING, "b": {"type": "integer"}}},
        "t.Item": _ITEM,
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
    }
    renamed = {"v2": {"plain": "simple", "items": "elements"}}
    return Kind("torture", "reference.test", "Torture", "v1", schemas, {"v1": "t.v1.Torture", "v2": "t.v2.Torture"}, renamed)


_REF = "#/components/schemas/"
_STRING = {"type": "string"}
_META = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "namespace": _STRING,
        "uid": _STRING,
        "resourceVersion": _STRING,
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "labels": {"type": "object", "additionalProperties": _STRING},
        "annotations": {"type": "object", "additionalProperties": _STRING},
        "finalizers": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"},
        "ownerReferences": {
            "type": "array",
            "items": {"type": "object", "properties": {"uid": _STRING, "name": _STRING}, "x-kubernetes-map-type": "atomic"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "uid",
        },
        "managedFields": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "atomic"},
    },
}
_ITEM = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "port": {"type": "integer", "default": 80},
        "protocol": {**_STRING, "default": "TCP"},
        "value": _STRING,
        "tags": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
        "nested": {
            "type": "array",
            "items": {"allOf": [{"$ref": _REF + "t.Item"}]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    },
}


def _root(version: str) -> Json:
    return {
        "type": "object",
        "properties": {
            "apiVersion": _STRING,
            "kind": _STRING,
            "metadata": {"allOf": [{"$ref": _REF + "t.Meta"}], "default": {}},
            "spec": {"allOf": [{"$ref": f"{_REF}t.{version}.Spec"}]},
            "status": {
                "type": "object",
                "properties": {
                    "phase": _STRING,
                    "ready": {"type": "boolean"},
                    "conditions": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"type": _STRING, "status": _STRING, "since": _STRING}},
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                    },
                },
            },
        },
        "x-kubernetes-group-version-kind": [{"group": "reference.test", "version": version, "kind": "Torture"}],
    }


def _spec(plain: str, items: str) -> Json:
    keyed = {"x-kubernetes-list-type": "map"}
    return {
        "type": "object",
        "properties": {
            plain: _STRING,
            "flag": {"type": "boolean"},
            "count": {"type": "integer", "format": "int32"},
            "ratio": {"type": "number"},
            "when": {"type": "string", "format": "date-time"},
            "amount": {"$ref": _REF + "io.k8s.apimachinery.pkg.api.resource.Quantity"},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            "granular": {"type": "object", "additionalProperties": _STRING},
            "deep": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}}},
            "structs": {"type": "object", "additionalProperties": {"$ref": _REF + "t.Pair"}},
            "atomic": {"type": "object", "additionalProperties": _STRING, "x-kubernetes-map-type": "atomic"},
            "pair": {"$ref": _REF + "t.Pair"},
            "whole": {"allOf": [{"$ref": _REF + "t.Pair"}], "x-kubernetes-map-type": "atomic"},
            "frozen": {"$ref": _REF + "t.Frozen"},
            "thawed": {"allOf": [{"$ref": _REF + "t.Frozen"}], "x-kubernetes-map-type": "granular"},
            "names": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
            "numbers": {"type": "array", "items": {"type": "number"}, "x-kubernetes-list-type": "set"},
            "order": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "atomic"},
            "unsaid": {"type": "array", "items": {"$ref": _REF + "t.Pair"}},
            items: {
                "type": "array",
                "items": {"allOf": [{"$ref": _REF + "t.Item"}]},
                **keyed,
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            },
            "ports": {"type": "array", "items": {"$ref": _REF + "t.Item"}, **keyed, "x-kubernetes-list-map-keys": ["port", "protocol"]},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": _STRING}},
            "raw": {"$ref": _REF + "io.k8s.apimachinery.pkg.runtime.RawExtension"},
            "free": {"x-kubernetes-preserve-unknown-fields": True},
            "void": {"type": "object"},
        },
    }
