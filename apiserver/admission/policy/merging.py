"""Merge an ``ApplyConfiguration`` into an object, by the published schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apiserver.apis.meta.managedfields.merging import merge
from apiserver.apis.meta.managedfields.schema import Atom, Mismatch
from apiserver.apis.meta.managedfields.validating import validate
from apiserver.apis.meta.managedfields.values import ABSENT
from apiserver.apis.meta.objects import Object
from apiserver.cel.values import CelError, Duration, Message, Timestamp, UInt, Value, from_key, type_name

Schemas = Callable[[], Mapping[tuple[str, str], Atom]]
"""By (apiVersion, kind)."""


class PatchFailed(Exception):
    """A mutation cannot be applied; the text is for the client."""


def to_json(value: Value) -> Any:  # noqa: ANN401 - any JSON value
    """Convert an expression's value to JSON, or raise PatchFailed."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is UInt:
        return int(value)
    if kind is list:
        return [to_json(each) for each in value]
    if kind is dict:
        return {_key(key): to_json(each) for key, each in value.items()}
    if isinstance(value, Message):
        return {name: to_json(each) for name, each in value.fields.items()}
    raise PatchFailed(f"a value of type {_name(value)} cannot be part of an object")


def _name(value: Value) -> str:
    if isinstance(value, Timestamp | Duration):
        return f"{type_name(value)} (use string())"
    try:
        return type_name(value)
    except CelError:
        return type(value).__name__


def _key(key: Value) -> str:
    if type(key) is not str:
        raise PatchFailed(f"map key {from_key(key)} is not a string")
    return key


def check_type_names(value: Value, path: str) -> list[str]:
    """Return an error per object in ``value`` with a type name other than its path, such as ``Object.spec{template: Object.spec.wrong{}}``.

    ``path``: of ``value``; ``Object`` for the whole.
    """
    found: list[str] = []
    if isinstance(value, Message):
        if value.type_name != path:
            found.append(
                f'unexpected type name "{value.type_name}", expected "{path}", which matches field name path from root Object type'
            )
        for name, each in value.fields.items():
            found += check_type_names(each, f"{path}.{name}")
    elif type(value) is list:
        for each in value:
            found += check_type_names(each, path)
    elif type(value) is dict:
        for each in value.values():
            found += check_type_names(each, path)
    return found


def apply(schemas: Schemas, live: Object, value: Value) -> Object:
    """Return ``live`` with the expression's value, of type ``Object``, merged in, as a new object.

    Raises PatchFailed, also for changed atomic parts; LookupError without a schema.
    """
    if not isinstance(value, Message) or value.type_name.partition(".")[0] != "Object":
        raise PatchFailed(f"unsupported return type from ApplyConfiguration expression: {_name(value)}")
    if problems := check_type_names(value, "Object"):
        raise PatchFailed("type mismatch: " + "\n".join(problems))
    applied = to_json(value)
    applied["apiVersion"], applied["kind"] = live.get("apiVersion", ""), live.get("kind", "")
    atom = schemas().get((applied["apiVersion"], applied["kind"]))
    if atom is None:
        raise LookupError(applied["kind"])
    try:
        validate(atom, applied)
    except Mismatch as problem:
        raise PatchFailed(f"error applying patch: failed to convert patch object to typed object: {problem}") from None
    if atomic := _atomic(atom, applied, ""):
        what = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise PatchFailed(f"error applying patch: invalid ApplyConfiguration: {what}")
    merged = merge(atom, live, applied)
    return merged if merged is not ABSENT else {}


def unknown_fields(atom: Atom, value: Any) -> list[str]:  # noqa: ANN401 - any JSON value
    """Return the paths (``.spec.ports[0].nope``) of fields that the schema lacks."""
    found: list[str] = []
    if isinstance(value, dict) and atom.map is not None:
        for name, each in value.items():
            child = atom.map.fields.get(name, atom.map.element)
            found += [f".{name}{below}" for below in ([""] if child is None else unknown_fields(child, each))]
    elif isinstance(value, list) and atom.list is not None:
        for position, each in enumerate(value):
            found += [f"[{position}]{below}" for below in unknown_fields(atom.list.element, each)]
    return found


def _atomic(atom: Atom, value: Any, path: str) -> list[str]:  # noqa: ANN401 - any JSON value
    found: list[str] = []
    if isinstance(value, dict) and atom.map is not None:
        if atom.map.atomic:
            found.append(path)
        for name, each in value.items():
            if (child := atom.map.fields.get(name)) is not None:
                found += _atomic(child, each, f"{path}.{name}")
    elif isinstance(value, list) and atom.list is not None:
        if not atom.list.associative:
            found.append(path)
        for position, each in enumerate(value):
            found += _atomic(atom.list.element, each, f"{path}[{position}]")
    return found
