"""A second served version of our kinds, which renames and moves fields that guards, verbs, streams and selectors read.

Its models are derived from the stored version's, so a new field needs no change here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeGuard, cast, get_args

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.schema import Kind, Model
from apiserver.apis.virt.places.resources import MIGRATION_POLICIES, MIGRATIONS, REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.apis.virt.v1alpha1 import types
from apiserver.apis.virt.v1alpha1.migration_policy import MigrationPolicy
from apiserver.apis.virt.v1alpha1.replica_set import VirtualMachineReplicaSet
from apiserver.registry.generic.strategy import Spoke, Strategy

Path = tuple[str, ...]
Moves = Mapping[Path, Path]

VERSION: Final = "v1alpha2test"
MACHINES: Final[Moves] = {
    ("spec", "domain"): ("spec", "hardware"),
    ("spec", "runStrategy"): ("spec", "power", "strategy"),
    ("spec", "nodeName"): ("spec", "node"),
    ("status", "phase"): ("status", "state"),
    ("status", "nodeName"): ("status", "node"),
    ("status", "podName"): ("status", "pod", "name"),
    ("status", "podUID"): ("status", "pod", "uid"),
    ("status", "podIP"): ("status", "pod", "ip"),
    ("status", "attempts"): ("status", "starts"),
    ("status", "migration"): ("status", "move"),
}
"""A VM's fields, and their places in the second version."""
MOVES: Final[Moves] = {
    ("spec", "selector", "name"): ("spec", "machine"),
    ("spec", "priority"): ("spec", "rank"),
    ("status", "phase"): ("status", "state"),
    ("status", "sourceNode"): ("status", "source", "node"),
    ("status", "sourcePod"): ("status", "source", "pod"),
    ("status", "targetNode"): ("status", "target", "node"),
    ("status", "targetPod"): ("status", "target", "pod"),
    ("status", "targetPodUID"): ("status", "target", "uid"),
    ("status", "targetPodIPs"): ("status", "target", "ips"),
    ("status", "targetAddress"): ("status", "target", "address"),
}
"""The same for a Migration."""

_ABSENT: Final = object()


def moved(obj: Object, moves: Moves) -> Object:
    taken = [(there, _take(obj, here)) for here, there in moves.items()]
    for path, value in taken:
        if value is not _ABSENT:
            parent = obj
            for step in path[:-1]:
                parent = parent.setdefault(step, {})
            parent[path[-1]] = value
    return obj


def _take(obj: Object, path: Path) -> Any:
    inner = obj.get(path[0])
    if not isinstance(inner, dict):
        return _ABSENT if len(path) > 1 else obj.pop(path[0], _ABSENT)
    if len(path) == 1:
        return obj.pop(path[0])
    found = _take(inner, path[1:])
    if len(path) == 2 and not inner and path[0] not in ("spec", "status"):
        del obj[path[0]]
    return found


def _modelled(kind: type[Kind], moves: Moves) -> type[Kind]:
    parts: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name in ("spec", "status"):
            (model,) = [each for each in (field.annotation, *get_args(field.annotation)) if _is_model(each)]
            part = _part(model, {here[1:]: there[1:] for here, there in moves.items() if here[0] == name})
            parts[name] = (part, _field(field)) if field.is_required() else (part | None, _field(field))
    return create_model(kind.__name__, __base__=Kind, **parts)


def _is_model(found: Any) -> TypeGuard[type[Model]]:
    return isinstance(found, type) and issubclass(found, Model)


def _part(model: type[Model], moves: Moves) -> type[Model]:
    fields = {field.alias or name: (_annotation(field), field) for name, field in model.model_fields.items()}
    groups: dict[str, dict[str, Any]] = {}
    made: dict[str, Any] = {}
    for here, there in moves.items():
        (name, *below), (new, *inside) = here, there
        annotation, field = fields[name] if not below else _inner(fields[name][1], below[0])
        (groups.setdefault(new, {}) if inside else made)[(inside or [new])[0]] = (annotation, _field(field))
    gone = {here[0] for here in moves}
    kept = {name: (annotation, _field(field, name)) for name, (annotation, field) in fields.items() if name not in gone}
    for name, inner in groups.items():
        group: Any = create_model(f"{model.__name__}{name.capitalize()}", __base__=Model, **inner)
        made[name] = (group | None, Field(None))
    content: dict[str, Any] = kept | made
    return create_model(model.__name__, __base__=Model, **content)


def _inner(field: FieldInfo, name: str) -> tuple[Any, FieldInfo]:
    assert _is_model(field.annotation)
    found = field.annotation.model_fields[name]
    return _annotation(found), found


def _annotation(field: FieldInfo) -> Any:
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _field(field: FieldInfo, alias: str | None = None) -> Any:
    default = ... if field.is_required() else field.default
    return Field(default, alias=alias, description=field.description, json_schema_extra=cast("Any", field.json_schema_extra))


class _Second(Spoke):
    moves: Moves = MappingProxyType({})

    def upgrade(self, obj: Object) -> Object:
        return moved(obj, {there: here for here, there in self.moves.items()})

    def downgrade(self, obj: Object) -> Object:
        return moved(obj, self.moves)


class SecondMachine(_Second):
    resource = replace(VIRTUAL_MACHINES, version=VERSION)
    model = _modelled(types.VirtualMachine, MACHINES)
    moves = MACHINES


class SecondMigration(_Second):
    resource = replace(MIGRATIONS, version=VERSION)
    model = _modelled(types.Migration, MOVES)
    moves = MOVES


class SecondMigrationPolicy(_Second):
    resource = replace(MIGRATION_POLICIES, version=VERSION)
    model = MigrationPolicy


class SecondReplicaSet(_Second):
    resource = replace(REPLICA_SETS, version=VERSION)
    model = VirtualMachineReplicaSet


SECOND: Final = {each.resource.plural: each for each in (SecondMachine, SecondMigration, SecondMigrationPolicy, SecondReplicaSet)}


def of(hubs: Sequence[Strategy]) -> list[Spoke]:
    return [SECOND[each.resource.plural](each) for each in hubs]
