"""Converts a published OpenAPI v3 document to a schema, like kube-openapi's ``schemaconv``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, MapAtom, Scalar, mark_inexact

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_PRIMITIVES: Final[Mapping[str, Scalar]] = {"integer": "numeric", "number": "numeric", "boolean": "boolean", "string": "string"}
_PLAIN_FORMATS: Final = ("", "byte")

Json = Mapping[str, Any]


class SchemaError(ValueError):
    """A document that cannot be converted."""


def types(document: Json) -> dict[tuple[str, str], Atom]:
    """Return the ``Atom`` of each kind in an OpenAPI document, by (``apiVersion``, kind).

    Raises:
        SchemaError: a schema is not structural.
    """
    builder = _Builder(document["components"]["schemas"])
    found = {}
    for name, schema in builder.schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind") or ():
            group, version = gvk.get("group", ""), gvk["version"]
            found[f"{group}/{version}" if group else version, gvk["kind"]] = builder.named(name)
    mark_inexact(builder.made)
    return found


class _Builder:
    """Types by component name, each built once, so they may be recursive."""

    def __init__(self, schemas: Mapping[str, Json]) -> None:
        self.schemas = schemas
        self.made: list[Atom] = []
        self._named: dict[str, Atom] = {}
        self._untyped = self._open(deduced=False)
        self._deduced = self._open(deduced=True)

    def named(self, name: str) -> Atom:
        if name not in self._named:
            atom = self._named[name] = Atom()
            self.made.append(atom)
            if name not in self.schemas:
                raise SchemaError(f"schema error: no type found matching: {name}")
            if name == _QUANTITY:
                atom.scalar = "untyped"
                atom.settle(exact=False)
            elif name == _RAW:
                atom.scalar, atom.list, atom.map = self._untyped.scalar, self._untyped.list, self._untyped.map
                atom.settle(exact=False)
            else:
                self._fill(atom, self.schemas[name], name, preserve=False)
        return self._named[name]

    def _open(self, *, deduced: bool) -> Atom:
        """Return the type of values without a schema: owned as a whole, or (``deduced``) maps field by field."""
        atom = Atom()
        self.made.append(atom)
        untyped = self._untyped if deduced else atom
        atom.scalar, atom.list, atom.map = "untyped", ListAtom(untyped), MapAtom()
        atom.map.element = atom
        atom.map.atomic = not deduced
        atom.map.deduced = deduced
        return atom.settle(exact=False)

    def _fill(self, atom: Atom, schema: Json, where: str, *, preserve: bool) -> None:
        preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
        kind = schema.get("type", "")
        exact = True
        if kind == "":
            atom.scalar, exact = "untyped", False
            atom.list = self._list(schema, where, preserve=preserve)
            atom.map = self._map(schema, where, preserve=preserve)
        elif kind == "object":
            atom.map = self._map(schema, where, preserve=preserve)
        elif kind == "array":
            atom.list = self._list(schema, where, preserve=preserve)
        elif kind in _PRIMITIVES:
            open_string = kind == "string" and schema.get("format", "") not in _PLAIN_FORMATS
            atom.scalar = "untyped" if open_string else _PRIMITIVES[kind]
        else:
            raise SchemaError(f"{where}: unrecognized type: '{kind}'")
        atom.settle(exact=exact)

    def _refer(self, schema: Json, where: str, *, preserve: bool) -> Atom:
        reference = schema.get("$ref", "")
        if not reference and len(schema.get("allOf") or ()) == 1:
            reference = schema["allOf"][0].get("$ref", "")
        if name := reference.rpartition("/")[2]:
            relation = _map_relation(schema, where)
            return self.named(name) if relation is None else self._overridden(name, atomic=relation)
        atom = Atom()
        self.made.append(atom)
        self._fill(atom, schema, f"inlined in {where}", preserve=preserve)
        return atom

    def _overridden(self, name: str, *, atomic: bool) -> Atom:
        base = self.named(name)
        if base.map is None and base.list is None:
            raise SchemaError(f"schema error: no type found matching: {name}")
        atom = Atom()
        self.made.append(atom)
        atom.scalar, atom.list, atom.map = base.scalar, base.list, base.map
        if base.map is not None:
            atom.map = MapAtom()
            atom.map.fields, atom.map.element, atom.map.defaults = base.map.fields, base.map.element, base.map.defaults
            atom.map.deduced, atom.map.atomic = base.map.deduced, atomic
        elif base.list is not None:
            atom.list = ListAtom(base.list.element, associative=False, keys=base.list.keys)
        return atom.settle(exact=base.exact)

    def _map(self, schema: Json, where: str, *, preserve: bool) -> MapAtom:
        result = MapAtom()
        properties = schema.get("properties") or {}
        for name, member in properties.items():
            result.fields[name] = self._refer(member, where, preserve=preserve)
            if member.get("default") is not None:
                result.defaults[name] = member["default"]
        others = schema.get("additionalProperties")
        if others is None:
            result.element = self._deduced if preserve or not properties else None
        elif isinstance(others, bool):
            result.element = self._deduced if others else None
        else:
            result.element = self._refer(others, where, preserve=preserve)
        result.atomic = _map_relation(schema, where) is True
        element = result.element
        inlined_untyped = isinstance(others, Mapping) and element is not None and element.scalar == "untyped" and not _is_reference(others)
        result.deduced = not properties and (element is self._deduced or inlined_untyped)
        return result

    def _list(self, schema: Json, where: str, *, preserve: bool) -> ListAtom:
        associative, keys = _list_relation(schema, where)
        items = schema.get("items")
        if isinstance(items, Mapping):
            element = self._refer(items, where, preserve=preserve)
        elif schema.get("type"):
            raise SchemaError(f"{where}: `items` must be specified on arrays")
        else:
            element = self._untyped
        return ListAtom(element, associative=associative, keys=keys)


def _is_reference(schema: Json) -> bool:
    return "$ref" in schema or (len(schema.get("allOf") or ()) == 1 and "$ref" in schema["allOf"][0])


def _map_relation(schema: Json, where: str) -> bool | None:
    match schema.get("x-kubernetes-map-type"):
        case None:
            return None
        case "atomic":
            return True
        case "granular":
            return False
        case other:
            raise SchemaError(f"{where}: unknown map type {other}")


def _list_relation(schema: Json, where: str) -> tuple[bool, tuple[str, ...]]:
    if kind := schema.get("x-kubernetes-list-type"):
        if kind == "map":
            keys = schema.get("x-kubernetes-list-map-keys")
            if not isinstance(keys, list):
                raise SchemaError(f"{where}: missing map keys" if keys is None else f"{where}: uninterpreted map keys: {keys}")
            return True, tuple(each for each in keys if isinstance(each, str))
        if kind not in {"atomic", "set"}:
            raise SchemaError(f"{where}: unknown list type {kind}")
        return kind == "set", ()
    strategy = schema.get("x-kubernetes-patch-strategy")
    if strategy in {"merge", "merge,retainKeys"}:
        key = schema.get("x-kubernetes-patch-merge-key")
        return True, (key,) if isinstance(key, str) else ()
    if strategy not in {None, "retainKeys"}:
        raise SchemaError(f"{where}: unknown patch strategy {strategy}")
    return False, ()
