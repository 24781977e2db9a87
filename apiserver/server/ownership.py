"""Build the stores' field managers from the published OpenAPI documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from apiserver.apis.meta.managedfields import openapi
from apiserver.apis.meta.managedfields.entries import Reader
from apiserver.apis.meta.managedfields.manager import FieldManager
from apiserver.apis.meta.managedfields.schema import Atom
from apiserver.apis.meta.managedfields.sets import Fields
from apiserver.apis.meta.objects import Object
from apiserver.registry.generic.codec import copy
from apiserver.registry.generic.ownership import FieldOwners, OwnersOf
from apiserver.registry.generic.strategy import Strategy

_ALL_BUT_STATUS: Final[Fields] = {"f:metadata": {}, "f:spec": {}}
_STATUS: Final[Fields] = {"f:status": {}}

Types = Mapping[tuple[str, str], Atom]
"""By (apiVersion, kind)."""


def types_of(documents: Mapping[str, Object]) -> Types:
    """Return the kinds' schemas in the OpenAPI documents, by (apiVersion, kind), for field managers."""
    return {key: atom for document in documents.values() for key, atom in openapi.types(document).items()}


def owners_of(strategy: Strategy, strategies: Sequence[Strategy], types: Types) -> OwnersOf:
    """Return a function from a subresource's name (``""``: the main resource) to its field manager.

    The manager is for ``strategy``'s version; ``strategies`` convert the others.
    """
    kind = strategy.resource.kind
    versions = {each.resource.api_version: each for each in strategies if each.hub is strategy.hub}
    schemas = {version: types[version, kind] for version in versions}

    structs = _empty(schemas[strategy.resource.api_version])

    def convert(obj: Object, api_version: str) -> Object:
        """Return a copy in another version. Conversions see ``{}`` for missing structs that they require."""
        lent = [name for name in structs if name not in obj]
        whole = copy(obj) | {name: {} for name in lent}
        found = versions[api_version].from_hub(versions[obj["apiVersion"]].to_hub(whole))
        return {name: value for name, value in found.items() if name not in lent or value != {}}

    reader = Reader(schemas)

    @cache
    def of(subresource: str) -> FieldOwners:
        return FieldManager(
            strategy.resource.api_version,
            kind,
            schemas,
            subresource=subresource,
            ignored=dict.fromkeys(schemas, _ignored(strategy, subresource)),
            empty=_empty(schemas[strategy.resource.api_version]),
            convert=convert,
            reader=reader,
        )

    return of


def _ignored(strategy: Strategy, subresource: str) -> Fields:
    """Return the fields that a write of this subresource leaves unchanged (Go: ``GetResetFields``); none for verbs."""
    if not strategy.has_status or subresource not in {"", "status", "scale"}:
        return {}
    return _ALL_BUT_STATUS if subresource == "status" else _STATUS


def _empty(atom: Atom) -> Object:
    assert atom.map is not None  # noqa: S101 - the type of a kind
    return {name: {} for name, field in atom.map.fields.items() if field.map is not None}
