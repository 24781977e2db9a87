from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.schema import Kind
from apiserver.apis.virt.v1alpha1 import scheduling

Schema = Mapping[str, Any]

COPIED: Final = frozenset(
    name for name, each in vars(scheduling).items() if isinstance(each, type) and each.__module__ == scheduling.__name__
)
"""Models of fields that virt-controller copies into the pod."""
DOMAIN: Final = "spec.domain"
DEVICES: Final = "spec.domain.devices"
BESIDE: Final[Mapping[str, str]] = {
    "spec.domain.devices.blockMultiQueue": "disks",
    "spec.domain.devices.networkInterfaceMultiqueue": "interfaces",
    "spec.domain.devices.autoattachMemBalloon": "memory",
    "spec.domain.devices.logSerialConsole": "consoles",
}
"""Fields next to their family's field, where KubeVirt has them."""
OUTSIDE: Final = "spec"
_SCALARS: Final[Mapping[tuple[Any, Any], str]] = {
    ("object", None): "object",
    ("boolean", None): "boolean",
    ("string", None): "text",
    ("string", "date-time"): "time",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
}
"""Our word for each JSON type and format."""
_METAS: Final[Mapping[Any, str]] = {"Quantity": "quantity", "IntOrString": "intOrString"}


@dataclass(frozen=True)
class Field:
    path: str
    """From the object's top; ``[]`` stands for every element of a list."""
    type: str
    is_required: bool
    description: str
    is_leaf: bool
    """True without named fields below it."""
    is_copied: bool
    """True for a field that is copied unchanged into the pod."""

    @property
    def family(self) -> str:
        return family_of(self.path)

    @property
    def key(self) -> str:
        return self.path.removeprefix(root_of(self.path)).lstrip(".[]")

    @property
    def default(self) -> str:
        if self.is_required:
            return "required"
        if named := re.search(r"(\w+) \(the default\)", self.description):
            return named[1]
        said = re.search(r"\bDefault:? (.+?)(?:\.(?= |$)|$)", self.description)
        return said[1] if said else ""

    @property
    def summary(self) -> str:
        return re.split(r"(?<=\.) ", self.description, maxsplit=1)[0]


@functools.cache
def family_of(path: str) -> str:
    if path in BESIDE:
        return BESIDE[path]
    root = root_of(path)
    return OUTSIDE if root == OUTSIDE else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", root.rpartition(".")[2]).lower()


@functools.cache
def root_of(path: str) -> str:
    """Return the path that starts a field's family: ``spec.domain.devices.disks`` for ``spec.domain.devices.disks[].name``.

    ``spec`` outside the domain; ``spec.domain.devices`` for paths in ``BESIDE``.
    """
    if path in BESIDE:
        return DEVICES
    names = path.replace("[]", "").split(".")
    if names[:3] == DEVICES.split(".") and len(names) > 3:
        return ".".join(names[:4])
    return ".".join(names[:3]) if names[:2] == DOMAIN.split(".") and len(names) > 2 and names[2] != "devices" else OUTSIDE


def definitions(kind: type[Kind]) -> Schema:
    schema = kind.model_json_schema()
    return {kind.__name__: schema, **schema["$defs"]}


def resolved(schema: Schema, known: Schema) -> tuple[Schema, str]:
    if "anyOf" in schema:
        given = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(given) != 1:
            raise NotImplementedError(f"a field of one type or another: {schema}")
        (schema,) = given
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return known[name], name
    return schema, ""


def fields(known: Schema) -> list[Field]:
    return list(_below(known["VirtualMachineSpec"], known, OUTSIDE, is_copied=False))


def _below(model: Schema, known: Schema, path: str, *, is_copied: bool) -> Iterator[Field]:
    for name, schema in model["properties"].items():
        place = f"{path}.{name}"
        inner, words, element, of_copied = schema, "", "", is_copied
        while True:
            inner, model_name = resolved(inner, known)
            of_copied = of_copied or model_name in COPIED
            if inner.get("type") == "array":
                inner, words, element = inner["items"], f"{words}list of ", f"{element}[]"
            elif isinstance(inner.get("additionalProperties"), Mapping):
                inner, words, element = inner["additionalProperties"], f"{words}map of ", f"{element}[*]"
            else:
                break
        is_leaf = not inner.get("properties")
        required = name in model.get("required", ())
        yield Field(place, words + scalar(inner), required, schema["description"], is_leaf, of_copied)
        if not is_leaf:
            yield from _below(inner, known, place + element, is_copied=of_copied)


def scalar(schema: Schema) -> str:
    if "enum" in schema or "const" in schema:
        return " or ".join(words_of(schema))
    if meta := _METAS.get(schema.get("x-meta")):
        return meta
    kind = schema.get("type"), schema.get("format")
    if kind in _SCALARS:
        return _SCALARS[kind]
    raise NotImplementedError(f"a field of a type without a shape: {schema}")


def words_of(schema: Schema) -> list[str]:
    return [str(each) for each in schema.get("enum", [schema.get("const")])]
