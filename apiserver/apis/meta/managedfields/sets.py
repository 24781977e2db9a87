"""Sets of fields in their stored form, and their operations.

A set is a tree of dicts. A step with an empty tree is a member; one with fields below it only if ``"."`` is among them::

    {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}     # metadata.labels and metadata.labels.app, not metadata

A set never contains the root: there, ``{}`` is the empty set. Finished sets never change. Functions return sorted sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from apiserver.apis.meta.managedfields import elements
from apiserver.apis.meta.managedfields.elements import SELF, ElementError

Fields: TypeAlias = dict[str, "Fields"]
Steps: TypeAlias = tuple[str, ...]

LEAF: Final[Fields] = {}
"""A member without fields below it. Never write to it."""
EMPTY: Final[Fields] = {}


def ordered(fields: Fields) -> Fields:
    """Return a tree with its top level sorted; the same object if it was sorted."""
    if len(fields) < 2:
        return fields
    steps = sorted(fields)
    # "." sorts before "f:", and "f:" before other kinds, so the last one decides.
    if steps[-1][0] > "f" or elements.NOWHERE in fields:
        steps.sort(key=elements.rank)
    return fields if steps == list(fields) else {step: fields[step] for step in steps}


def of(*paths: Steps) -> Fields:
    """Return the set with these paths as members."""
    result: Fields = {}
    for path in paths:
        tree: Fields = LEAF
        for step in reversed(path):
            tree = {step: tree}
        result = union(result, tree)
    return result


def parse(raw: Any) -> Fields:  # noqa: ANN401 - a client's JSON
    """Return the canonical set in ``fieldsV1``, without steps of unknown kinds; empty for None.

    Raises:
        ElementError: it is invalid.
    """
    if raw is None:
        return EMPTY
    tree = _parse(raw)
    return EMPTY if tree == {SELF: LEAF} else tree


def _parse(raw: Any) -> Fields:  # noqa: ANN401 - a client's JSON
    if raw is None:
        return LEAF
    if not isinstance(raw, dict):
        raise ElementError("a set of fields is made of objects")
    tree: Fields = {}
    previous = ""
    sorted_fields = True
    for text, below in raw.items():
        if text == SELF:
            tree[SELF] = LEAF
            sorted_fields = sorted_fields and not previous
        elif (step := elements.canonical(text)) is not None:
            child = _parse(below) if below else LEAF
            tree[step] = _union(tree[step], child) if step in tree else child
            sorted_fields = sorted_fields and step[0] == "f" and previous < step
        previous = text
    if len(tree) == 1 and SELF in tree:
        return LEAF
    return tree if sorted_fields else ordered(tree)


def union(first: Fields, second: Fields) -> Fields:
    """Return the members of either set."""
    if not first:
        return second
    return _union(first, second) if second else first


def difference(first: Fields, second: Fields) -> Fields:
    """Return the members only in ``first``. Fields below a member are separate members."""
    return (_difference(first, second, root=True) or EMPTY) if first and second else first


def without(first: Fields, second: Fields) -> Fields:
    """Return ``first`` without the members of ``second`` and everything below them."""
    return (_without(first, second) or EMPTY) if first and second else first


def intersection(first: Fields, second: Fields) -> Fields:
    """Return the members of both sets."""
    return (_intersection(first, second) or EMPTY) if first and second else EMPTY


def contains(first: Fields, second: Fields) -> bool:
    """Return whether each member of ``second`` is in ``first``."""
    if not second:
        return True
    return bool(first) and _contains(first, second)


def is_member(tree: Fields) -> bool:
    """Return whether this subtree's field is itself a member."""
    return not tree or SELF in tree


def below(fields: Fields, step: str) -> Fields:
    """Return the set of the fields below a step, without the step itself."""
    tree = fields.get(step)
    if not tree:
        return EMPTY
    return {each: child for each, child in tree.items() if each != SELF} if SELF in tree else tree


def paths(fields: Fields, prefix: Steps = ()) -> Iterator[Steps]:
    """Yield the paths of members in Go's order: those of a level, then those below each."""
    deeper = []
    for step, tree in fields.items():
        if step == SELF:
            continue
        if is_member(tree):
            yield (*prefix, step)
        if tree:
            deeper.append((step, tree))
    for step, tree in deeper:
        yield from paths(tree, (*prefix, step))


def show(path: Steps) -> str:
    """Return a path of an entry for users: ``.spec.disks[name="root"]``."""
    return "".join(elements.show(step, stored=True) for step in path)


def as_member(tree: Fields) -> Fields:
    """Return a field's subtree with the field itself as a member."""
    return tree if is_member(tree) else {SELF: LEAF, **tree}


def _union(first: Fields, second: Fields) -> Fields:
    if first is second:
        return first
    if not second:
        return as_member(first)
    if not first:
        return as_member(second)
    result = None
    added = False
    for step, tree in second.items():
        known = first.get(step)
        if known is None:
            added = True
            joined = tree
        else:
            joined = _union(known, tree)
            if joined is known:
                continue
        if result is None:
            result = dict(first)
        result[step] = joined
    if result is None:
        return first
    return ordered(result) if added else result


def _difference(first: Fields, second: Fields, *, root: bool = False) -> Fields | None:
    if not first:
        return None if not second or SELF in second else first
    if not second:
        if root or SELF not in first:
            return first
        return {step: tree for step, tree in first.items() if step != SELF}
    result = None
    for step, other in second.items():
        tree = first.get(step)
        if tree is None:
            continue
        left = None if step == SELF else _difference(tree, other)
        if left is not tree:
            result = _replaced(result or first, first, step, left)
    return first if result is None else _tidy(result)


def _without(first: Fields, second: Fields) -> Fields | None:
    if not first:
        return first
    result = None
    for step, other in second.items():
        tree = first.get(step)
        if tree is None or step == SELF:
            continue
        left = None if is_member(other) else _without(tree, other)
        if left is not tree:
            result = _replaced(result or first, first, step, left)
    return first if result is None else _tidy(result)


def _replaced(tree: Fields, original: Fields, step: str, by: Fields | None) -> Fields:
    """Return ``tree`` with ``by`` under ``step``, for None without the step. Changes ``tree``, unless it is ``original``."""
    if tree is original:
        tree = dict(tree)
    if by is None:
        del tree[step]
    else:
        tree[step] = by
    return tree


def _intersection(first: Fields, second: Fields) -> Fields | None:
    if not first:
        return LEAF if is_member(second) else None
    if not second:
        return LEAF if SELF in first else None
    result: Fields = {}
    for step, tree in first.items():
        other = second.get(step)
        if other is None:
            continue
        both = LEAF if step == SELF else _intersection(tree, other)
        if both is not None:
            result[step] = both
    return _tidy(result)


def _contains(first: Fields, second: Fields) -> bool:
    for step, tree in second.items():
        known = first.get(step)
        if known is None:
            if step == SELF and not first:
                continue
            return False
        if not tree:
            if known and SELF not in known:
                return False
        elif not known:
            if len(tree) > 1 or SELF not in tree:
                return False
        elif not _contains(known, tree):
            return False
    return True


def _tidy(tree: Fields) -> Fields | None:
    if len(tree) == 1 and SELF in tree:
        return LEAF
    return tree or None
