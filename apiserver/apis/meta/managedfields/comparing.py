"""Compares two objects field by field."""

from __future__ import annotations

from typing import Any, Final

from orjson import dumps

from apiserver.apis.meta.managedfields.elements import SELF
from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, MapAtom, Mismatch, same
from apiserver.apis.meta.managedfields.sets import EMPTY, LEAF, Fields, ordered, union
from apiserver.apis.meta.managedfields.values import ABSENT, kind_of, misfit, own_kind

Found = tuple[Fields | None, Fields | None]
"""(touched, removed) below a step; None for nothing."""


def compare(atom: Atom, old: dict[str, Any], new: dict[str, Any]) -> tuple[Fields, Fields]:
    """Return (fields of ``new`` that were added or modified, fields that only ``old`` has). Raises Mismatch."""
    touched, removed = _compare(atom, old, new)
    return touched or EMPTY, removed or EMPTY


def appeared(atom: Atom, structs: dict[str, Any], new: dict[str, Any]) -> Fields:
    """Return the fields of ``new`` that ``structs`` lacks; ``structs``: an object of empty structs, such as ``{"spec": {}}``.

    Structs in both are not themselves added. Raises Mismatch.
    """
    assert atom.map is not None  # noqa: S101 - the type of a kind
    tree: Fields = {}
    for name in sorted(new):
        value, child = new[name], atom.map.child(name)
        if name not in structs:
            found: Fields | None = present(child, value)
        elif isinstance(value, dict) and child.map is not None and not child.map.atomic:
            found = _fields({}, child.map, value) if value else None
        else:
            found, _ = _compare(child, structs[name], value)
        if found is not None:
            tree["f:" + name] = found
    return tree


def present(atom: Atom, value: Any) -> Fields:  # noqa: ANN401 - any JSON value
    """Return the subtree of an added or removed value: itself and all below, atomic values as a whole. Raises Mismatch."""
    if type(value) in atom.accepted or value is None:
        return LEAF
    if isinstance(value, dict):
        shape = atom.map
        if shape is None:
            raise misfit(atom, value)
        if shape.atomic or not value:
            return LEAF
        other = shape.element
        if other is not None and not shape.fields and other.accepted.issuperset(map(type, value.values())):
            return _flat(tuple(value))
        return _fields({SELF: LEAF}, shape, value)
    if not isinstance(value, list) or atom.list is None:
        raise misfit(atom, value)
    if not atom.list.associative or not value:
        return LEAF
    items = _items(atom.list, value)
    element = atom.list.element
    return ordered({SELF: LEAF, **{step: LEAF if len(same_key) > 1 else present(element, same_key[0]) for step, same_key in items.items()}})


def _fields(tree: Fields, shape: MapAtom, value: dict[str, Any]) -> Fields:
    fields, other = shape.fields, shape.element
    for name in sorted(value):
        child = fields.get(name, other)
        if child is None:
            raise Mismatch("field not declared in schema", "." + name)
        each = value[name]
        tree["f:" + name] = LEAF if type(each) in child.accepted else present(child, each)
    return tree


_known: Final[dict[tuple[str, ...], Fields]] = {}
_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 4096


def _flat(names: tuple[str, ...]) -> Fields:
    """Return the subtree of a map of scalars with these keys, cached."""
    tree = _known.get(names)
    if tree is None:
        tree = {SELF: LEAF, **dict.fromkeys(["f:" + name for name in sorted(names)], LEAF)}
        if sum(map(len, names)) <= _LONGEST_KNOWN:
            if len(_known) >= _KNOWN:
                del _known[next(iter(_known))]
            _known[names] = tree
    return tree


def _compare(atom: Atom, old: Any, new: Any) -> Found:  # noqa: ANN401 - any JSON values
    if atom.is_scalar:
        return _leaf(old, new)
    if atom.map is not None and isinstance(new, dict) and isinstance(old, dict):
        return _maps(atom, atom.map, old, new)
    if atom.single:
        return _as(kind_of(atom, new), atom, old, new)
    was, becomes = own_kind(atom, old), own_kind(atom, new)
    if was == becomes:
        return _as(kind_of(atom, new), atom, old, new)
    first = _as(kind_of(atom, old), atom, old, new)
    second = _as(kind_of(atom, new), atom, old, new)
    return _join(first[0], second[0]), _join(first[1], second[1])


def _join(first: Fields | None, second: Fields | None) -> Fields | None:
    if first is None or second is None:
        return second if first is None else first
    if not first or not second:  # in Go the leaf itself is the step's only member
        return {SELF: LEAF, **(first or second)} if first or second else LEAF
    return union(first, second)


def _as(kind: str, atom: Atom, old: Any, new: Any) -> Found:  # noqa: ANN401 - any JSON values
    if kind == "map":
        assert atom.map is not None  # noqa: S101 - kind_of only names what the type has
        return _maps(atom, atom.map, old, new)
    if kind == "list":
        assert atom.list is not None  # noqa: S101 - as above
        return _lists(atom.list, old, new)
    return _leaf(old, new)


def _leaf(old: Any, new: Any) -> Found:  # noqa: ANN401 - any JSON values
    return (None, None) if same(old, new) else (LEAF, None)


def _maps(atom: Atom, shape: MapAtom, old: Any, new: Any) -> Found:  # noqa: ANN401 - any JSON values
    before: dict[str, Any] = old if isinstance(old, dict) else {}
    after: dict[str, Any] = new if isinstance(new, dict) else {}
    if shape.atomic or not (before or after):
        return _leaf(old, new)
    # Unchanged entries need no check of types.
    names = [name for name, value in after.items() if before.get(name, ABSENT) != value] if atom.exact else after
    touched: Fields = {}
    removed: Fields = {}
    added = 0
    for name in names:
        was, value = before.get(name, ABSENT), after[name]
        if was is value:
            continue
        child = shape.child(name)
        if was is ABSENT:
            touched["f:" + name] = LEAF if type(value) in child.accepted else present(child, value)
            added += 1
            continue
        if was == value and (child.exact or dumps(was) == dumps(value)):
            continue
        found, gone = _compare(child, was, value)
        if found is not None:
            touched["f:" + name] = found
        if gone is not None:
            removed["f:" + name] = gone
    if len(after) - added < len(before):
        for name, was in before.items():
            if name not in after:
                removed["f:" + name] = present(shape.child(name), was)
    return (ordered(touched) if touched else None), (ordered(removed) if removed else None)


def _items(shape: ListAtom, value: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for position, item in enumerate(value):
        try:
            found.setdefault(shape.step_to(item), []).append(item)
        except Mismatch as problem:
            raise Mismatch(f"element {position}: {problem}") from None
    return found


def _lists(shape: ListAtom, old: Any, new: Any) -> Found:  # noqa: ANN401 - any JSON values
    before: list[Any] = old if isinstance(old, list) else []
    after: list[Any] = new if isinstance(new, list) else []
    if not shape.associative or not (before or after):
        return _leaf(old, new)
    touched: Fields = {}
    removed: Fields = {}
    was, becomes = _items(shape, before), _items(shape, after)
    for step in was | becomes:
        found, gone = _same_key(shape.element, was.get(step, []), becomes.get(step, []))
        if found is not None:
            touched[step] = found
        if gone is not None:
            removed[step] = gone
    return (ordered(touched) if touched else None), (ordered(removed) if removed else None)


def _same_key(element: Atom, old: list[Any], new: list[Any]) -> Found:
    """Return (touched, removed) fields of a list's old and new items with one key. Duplicates are owned as a whole."""
    if len(old) > 1 and len(new) > 1:
        return (None if same(old, new) else LEAF), None
    if len(old) > 1:
        return (present(element, new[0]) if new else None), LEAF
    if len(new) > 1:
        return LEAF, (present(element, old[0]) if old else None)
    if not old:
        return present(element, new[0]), None
    if not new:
        return None, present(element, old[0])
    return _compare(element, old[0], new[0])
