"""``apis/virt/structure.json``: the models as shapes of :func:`apiserver.apis.meta.structure.check_of`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta.schema import Kind
from apiserver.apis.virt.v1alpha1 import types
from apiserver.apis.virt.v1alpha1.migration_policy import MigrationPolicy
from apiserver.apis.virt.v1alpha1.replica_set import VirtualMachineReplicaSet
from tests.fields.schema import COPIED, Schema, definitions, resolved, scalar, words_of

FILE: Final = Path(__file__).parents[2] / "apiserver/apis/virt/structure.json"
GROWING: Final = frozenset({("Operation", "action"), ("DeviceStatus", "kind")})
"""Statuses take new words in later versions: any text is sound, so an older process still sees the machine."""
_NAMES: Final = {"quantity": "amount"}


def text() -> str:
    """Return what ``structure.json`` must contain, with one line per member so that branches merge."""
    shapes = {kind.__name__: _of_kind(kind) for kind in (types.VirtualMachine, types.Migration, MigrationPolicy, VirtualMachineReplicaSet)}
    of_set = shapes[VirtualMachineReplicaSet.__name__]
    of_set["spec"]["template"].update(spec="anything")
    of_set["status?"]["revisions?"]["[]"].update(template="anything")
    return json.dumps(shapes, indent=1) + "\n"


def _of_kind(kind: type[Kind]) -> Any:
    known = definitions(kind)
    shape = _members(known[kind.__name__], known)
    return {name: each for name, each in shape.items() if name.removesuffix("?") in ("spec", "status")}


def _members(model: Schema, known: Schema) -> dict[str, Any]:
    required = model.get("required", ())
    named = ((name, inner) for name, inner in model["properties"].items() if inner.get("x-meta") != "ObjectMeta")
    return {name if name in required else f"{name}?": _member(model, name, inner, known) for name, inner in named}


def _member(model: Schema, name: str, inner: Schema, known: Schema) -> Any:
    return "text" if (model["title"], name) in GROWING else shape(inner, known)


def shape(schema: Schema, known: Schema) -> Any:
    schema, model = resolved(schema, known)
    if schema.get("type") == "array":
        inner = shape(schema["items"], known)
        return inner if inner == "anything" else {"[]": inner}
    if model in COPIED:
        return "anything"
    if "properties" in schema:
        return _members(schema, known)
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": shape(schema["additionalProperties"], known)}
    if "enum" in schema or "const" in schema:
        return words_of(schema)
    return _NAMES.get(word := scalar(schema), word)
