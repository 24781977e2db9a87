from __future__ import annotations

import json
import keyword
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta.schema import Kind
from apiserver.apis.virt.v1alpha1 import types
from apiserver.apis.virt.v1alpha1.migration_policy import MigrationPolicy
from apiserver.apis.virt.v1alpha1.replica_set import VirtualMachineReplicaSet
from tests.fields.schema import COPIED, Schema, definitions, resolved, scalar, words_of

FILE: Final = Path(__file__).parents[2] / "apiserver/apis/virt/typed.py"
KINDS: Final[tuple[type[Kind], ...]] = (types.VirtualMachine, types.Migration, MigrationPolicy, VirtualMachineReplicaSet)
HEAD: Final = '''"""Types of our objects for mypy. `make fields` writes them from the models; do not edit.

Import them under ``TYPE_CHECKING``. What is only copied into a pod is a plain dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from apiserver.apis.meta.typed import ObjectMeta
'''
_TYPES: Final = {
    "object": "dict[str, Any]",
    "boolean": "bool",
    "text": "str",
    "time": "str",
    "quantity": "str",
    "int32": "int",
    "int64": "int",
    "intOrString": "int | str",
}


def text() -> str:
    classes = "\n\n".join(written(name, model, known) for name, (model, known) in sorted(models().items()))
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(command, input=f"{HEAD}\n\n{classes}", check=True, capture_output=True, text=True).stdout


def models() -> dict[str, tuple[Schema, Schema]]:
    found: dict[str, tuple[Schema, Schema]] = {}
    for kind in KINDS:
        known = definitions(kind)
        for name in _reached(kind.__name__, known, set()):
            assert name not in found or found[name][0] == known[name], f"two models are called {name}"
            found[name] = known[name], known
    return found


def _reached(name: str, known: Schema, seen: set[str]) -> set[str]:
    if name not in seen and name not in COPIED:
        seen.add(name)
        for schema in known[name]["properties"].values():
            for inner in _referred(schema):
                if known[inner].get("properties"):
                    _reached(inner, known, seen)
    return seen


def _referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(found := schema.get("$ref"), str):
            yield found.rpartition("/")[2]
        for each in schema.values():
            yield from _referred(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _referred(each)


def written(name: str, model: Schema, known: Schema) -> str:
    required = {*model.get("required", ()), *(("metadata",) if "metadata" in model["properties"] else ())}
    fields = {field: _member(schema, known, is_required=field in required) for field, schema in model["properties"].items()}
    if any(map(keyword.iskeyword, fields)):
        content = ", ".join(f'"{field}": {type_!r}' for field, type_ in fields.items())
        return f'{name} = TypedDict("{name}", {{{content}}}, total=False)\n'
    return "\n".join([f"class {name}(TypedDict, total=False):", *(f"    {field}: {type_}" for field, type_ in fields.items())]) + "\n"


def _member(schema: Schema, known: Schema, *, is_required: bool) -> str:
    type_ = "ObjectMeta" if schema.get("x-meta") == "ObjectMeta" else annotation(schema, known)
    return f"Required[{type_}]" if is_required else type_


def annotation(schema: Schema, known: Schema) -> str:
    schema, model = resolved(schema, known)
    if schema.get("type") == "array":
        return f"list[{annotation(schema['items'], known)}]"
    if model in COPIED:
        return "dict[str, Any]"
    if schema.get("properties"):
        return model
    if isinstance(schema.get("additionalProperties"), dict):
        return f"dict[str, {annotation(schema['additionalProperties'], known)}]"
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(map(json.dumps, words_of(schema)))}]"
    return _TYPES[scalar(schema)]
