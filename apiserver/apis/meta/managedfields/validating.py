"""Validates objects against their schemas, with Go's messages."""

from __future__ import annotations

from typing import Any

from apiserver.apis.meta.managedfields.elements import show
from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, MapAtom, Mismatch
from apiserver.apis.meta.managedfields.values import misfit, own_kind

Problem = tuple[str, str]
"""(path, message)."""


def validate(atom: Atom, value: Any, *, duplicates: bool = False) -> None:  # noqa: ANN401 - any JSON value
    """Check a value against its type; null fits. ``duplicates``: sets and keyed lists may have duplicate items.

    Raises:
        Mismatch: with the problems, members by name, items by position. After an undeclared field or an item without a valid key, the rest
            of that map or list is not checked.
    """
    if problems := list(_validate(atom, value, duplicates=duplicates)):
        raise Mismatch(text_of(problems), problems=problems)


def text_of(problems: list[Problem]) -> str:
    """Return one message, a line each, for several problems."""
    lines = [f"{path}: {message}" if path else message for path, message in problems]
    return lines[0] if len(lines) == 1 else "\n".join(["errors:", *(f"  {each}" for each in lines)])


def _validate(atom: Atom, value: Any, *, duplicates: bool) -> list[Problem]:  # noqa: ANN401 - any JSON value
    if value is None or type(value) in atom.accepted:
        return []
    kind = own_kind(atom, value)
    if kind == "map" and atom.map is not None:
        return _validate_map(atom.map, value, duplicates=duplicates)
    if kind == "list" and atom.list is not None:
        return _validate_list(atom.list, value, duplicates=duplicates)
    return [("", str(misfit(atom, value)))]


def _validate_map(shape: MapAtom, value: dict[str, Any], *, duplicates: bool) -> list[Problem]:
    found: list[Problem] = []
    for name in sorted(value):
        child = shape.fields.get(name, shape.element)
        if child is None:
            return [*found, ("." + name, "field not declared in schema")]
        found += [("." + name + path, message) for path, message in _validate(child, value[name], duplicates=duplicates)]
    return found


def _validate_list(shape: ListAtom, value: list[Any], *, duplicates: bool) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for position, item in enumerate(value):
        step = f"i:{position}"
        if shape.associative:
            try:
                step = shape.step_to(item)
            except Mismatch as problem:
                return [*found, ("", f"element {position}: {problem}")]
            if step in seen and not duplicates:
                found.append(("", f"duplicate entries for key {show(step)}"))
            seen.add(step)
        found += [(show(step) + path, message) for path, message in _validate(shape.element, item, duplicates=duplicates)]
    return found
