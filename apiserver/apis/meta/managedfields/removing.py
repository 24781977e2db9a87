"""Removes fields from objects, and computes the set of an object's fields."""

from __future__ import annotations

from collections import Counter
from typing import Any

from apiserver.apis.meta.managedfields.elements import NOWHERE, SELF
from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, Mismatch
from apiserver.apis.meta.managedfields.sets import EMPTY, LEAF, Fields, as_member, is_member, ordered
from apiserver.apis.meta.managedfields.values import kind_of


def remove(atom: Atom, value: Any, fields: Fields) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value without these fields and all below them; None if nothing is left."""
    if not fields:
        return value
    kind = kind_of(atom, value)
    if kind == "scalar":
        return value
    if kind == "map":
        if not isinstance(value, dict) or atom.map is None or atom.map.atomic:
            return None
        result = {}
        for name, each in value.items():
            tree = fields.get("f:" + name)
            if tree is None:
                result[name] = each
            elif not is_member(tree):
                child = atom.map.fields.get(name, atom.map.element)
                result[name] = each if child is None else remove(child, each, tree)
        return result or None
    if not isinstance(value, list) or atom.list is None or not atom.list.associative:
        return None
    items = []
    for each in value:
        tree = fields.get(_step_to(atom.list, each))
        if tree is None:
            items.append(each)
        elif not is_member(tree):
            items.append(remove(atom.list.element, each, tree))
    return items or None


def fields_of(atom: Atom, value: Any) -> Fields:  # noqa: ANN401 - any JSON value
    """Return the fields of an applied object, which its applier owns."""
    found = _fields_of(atom, value)
    return found or EMPTY


def _fields_of(atom: Atom, value: Any) -> Fields | None:  # noqa: ANN401 - any JSON value
    if type(value) in atom.accepted:
        return LEAF
    kind = kind_of(atom, value)
    if kind == "map":
        return _fields_of_map(atom, value)
    if kind == "scalar":
        return LEAF
    assert atom.list is not None  # noqa: S101 - kind_of only names what the type has
    if not atom.list.associative:
        return LEAF
    if not isinstance(value, list):
        return None
    steps = [_step_to(atom.list, each) for each in value]
    often = Counter(steps)
    tree: Fields = {}
    for step, each in zip(steps, value, strict=True):
        child = None if often[step] > 1 else _fields_of(atom.list.element, each)
        tree[step] = as_member(child) if child is not None else LEAF
    return ordered(tree) or None


def _step_to(shape: ListAtom, item: Any) -> str:  # noqa: ANN401 - any JSON value
    try:
        return shape.step_to(item)
    except Mismatch:
        return NOWHERE


def _fields_of_map(atom: Atom, value: Any) -> Fields | None:  # noqa: ANN401 - any JSON value
    assert atom.map is not None  # noqa: S101 - kind_of only names what the type has
    if atom.map.atomic:
        return LEAF
    if not isinstance(value, dict):
        return None
    tree: Fields = {}
    named = atom.map.fields
    for name in sorted(value):
        each = value[name]
        if (child := named.get(name)) is not None:
            found = _fields_of(child, each)
            if each is None or each == {}:
                found = LEAF if found is None else as_member(found)
        else:
            found = _fields_of(atom.map.child(name), each)
            found = LEAF if found is None else as_member(found)
        if found is not None:
            tree["f:" + name] = found
    return tree or None


def with_parents(fields: Fields, atom: Atom | None) -> Fields:
    """Return the set with the parents of its members, if they are fields that the schema names, not map values or list items."""
    shape = atom.map if atom is not None else None
    result: Fields = {}
    for step, tree in fields.items():
        if not tree or step == SELF:
            result[step] = tree
            continue
        child: Atom | None = None
        is_named = False
        if step[0] == "f" and shape is not None:
            is_named = step[2:] in shape.fields
            child = shape.fields.get(step[2:], shape.element)
        elif step[0] == "k" and atom is not None and atom.list is not None:
            child = atom.list.element
        deeper = with_parents(tree, child)
        result[step] = as_member(deeper) if is_named else deeper
    return result


def reconciled(fields: Fields, atom: Atom | None) -> Fields:
    """Return the fields, recorded under an older schema, for the schema ``atom``: parts that are atomic there are owned as a whole."""
    if not fields or atom is None:
        return fields
    if atom.map is not None:
        if atom.map.deduced:
            return fields
        if atom.map.atomic:
            return LEAF
        named, other = atom.map.fields, atom.map.element
        changed = {
            step: seen
            for step, tree in fields.items()
            if tree and (seen := reconciled(tree, named.get(step[2:], other) if step[0] == "f" else other)) is not tree
        }
    elif atom.scalar is not None or atom.list is None:
        return fields
    elif not atom.list.associative:
        return LEAF
    else:
        element = atom.list.element
        changed = {step: seen for step, tree in fields.items() if tree and (seen := reconciled(tree, element)) is not tree}
    return {**fields, **changed} if changed else fields
