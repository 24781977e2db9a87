"""The schema for sets of fields: valid values and their ownership.

A type (:class:`Atom`) is a scalar, a list, a map, or several of them. A struct is a map with named fields. An atomic list or map is owned
as a whole, a granular one field by field, an associative list (``set``: by value, ``map``: by keys) by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import orjson

from apiserver.apis.meta.managedfields import elements
from apiserver.apis.meta.managedfields.elements import quote

Scalar = Literal["numeric", "string", "boolean", "untyped"]

_REMEMBERED: Final = 256
"""Cached keys of items with their steps."""
_ACCEPTED: Final[dict[Scalar, frozenset[type]]] = {
    "numeric": frozenset({int, float}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "untyped": frozenset({str, int, float, bool}),
}


class Mismatch(ValueError):
    """A value that does not fit its schema; the message is Go's."""

    def __init__(self, message: str, path: str = "", problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or ((path, message),)
        """Each (path, message)."""


class MapAtom:
    """The type of a struct or a map."""

    __slots__ = ("atomic", "deduced", "defaults", "element", "fields")

    def __init__(self) -> None:
        self.fields: dict[str, Atom] = {}
        self.element: Atom | None = None
        """Type of fields that ``fields`` lacks; None: none are allowed."""
        self.atomic = False
        self.deduced = False
        """Its content is untyped: no field is named, any is allowed."""
        self.defaults: dict[str, Any] = {}
        """Defaults of a list's keys."""

    def child(self, name: str) -> Atom:
        """Return a field's type.

        Raises:
            Mismatch: the schema does not declare it.
        """
        found = self.fields.get(name, self.element)
        if found is None:
            raise Mismatch("field not declared in schema", "." + name)
        return found


class ListAtom:
    """The type of a list."""

    __slots__ = ("_steps", "associative", "element", "keys")

    def __init__(self, element: Atom, *, associative: bool = False, keys: tuple[str, ...] = ()) -> None:
        self.element = element
        self.associative = associative
        self.keys = keys
        """Keys of an associative list's items; empty: the value identifies an item."""
        self._steps: dict[str, str] = {}

    def step_to(self, item: Any) -> str:  # noqa: ANN401 - any JSON value
        """Return the step to an item of this associative list.

        Raises:
            Mismatch: it has no valid key, or is no valid value of a set.
        """
        if not self.keys:
            if isinstance(item, str):
                return "v:" + quote(item)
            if item is None or isinstance(item, dict | list):
                raise Mismatch(_NO_VALUE[type(item)])
            return elements.value(item)
        if not isinstance(item, dict):
            what = "a null element" if item is None else "non-map elements"
            raise Mismatch(f"associative list with keys may not have {what}")
        if len(self.keys) == 1:
            only = item.get(self.keys[0])
            if type(only) is str:
                step = self._steps.get(only)
                if step is None:
                    if len(self._steps) >= _REMEMBERED:
                        self._steps.clear()
                    step = self._steps[only] = "k:{" + quote(self.keys[0]) + ":" + quote(only) + "}"
                return step
        return elements.key(self._keys_of(item))

    def _keys_of(self, item: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        found = []
        for name in self.keys:
            if name in item:
                found.append((name, item[name]))
            elif self.element.map is None:
                problem = "associative list may not have non-map types"
                raise Mismatch(f"couldn't find default value for {name}: {problem}")
            elif (default := self.element.map.defaults.get(name)) is not None:
                found.append((name, default))
        if not found:
            listed = " ".join(map(elements.go_quote, self.keys))
            text = f"associative list with keys has an element that omits all key fields [{listed}]"
            raise Mismatch(f"{text} (and doesn't have default values for any key fields)")
        return found


_NO_VALUE: Final[dict[type, str]] = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}


class Atom:
    """The type of a value, which may be each of ``map``, ``scalar`` and ``list`` that is set."""

    __slots__ = ("accepted", "exact", "is_scalar", "list", "map", "scalar", "single")

    def __init__(self) -> None:
        self.map: MapAtom | None = None
        self.scalar: Scalar | None = None
        self.list: ListAtom | None = None
        self.accepted: frozenset[type] = frozenset()
        """Python's types of its scalars."""
        self.exact = False
        """No part may be both number and boolean, so Python's ``==`` (1 == True) is sufficient."""
        self.single = True
        """It allows only one kind of value."""
        self.is_scalar = False

    def settle(self, *, exact: bool) -> Atom:
        """Compute ``accepted``, ``single`` and ``is_scalar``, and set ``exact``; return self."""
        if self.scalar is not None:
            self.accepted = _ACCEPTED[self.scalar]
        self.single = sum(each is not None for each in (self.map, self.scalar, self.list)) == 1
        self.is_scalar = self.single and self.scalar is not None
        self.exact = exact
        return self

    def children(self) -> Iterable[Atom]:
        """Yield the types of items, fields and map values."""
        if self.list is not None:
            yield self.list.element
        if self.map is not None:
            yield from self.map.fields.values()
            if self.map.element is not None:
                yield self.map.element


def same(first: Any, second: Any) -> bool:  # noqa: ANN401 - any JSON values
    """Return whether two values are equal; numbers differ from booleans."""
    if first is second:
        return True
    if first != second:
        return False
    if isinstance(first, dict | list) and orjson.dumps(first) == orjson.dumps(second):
        return True
    if isinstance(first, dict):
        return all(same(each, second[name]) for name, each in first.items())
    if isinstance(first, list):
        return all(map(same, first, second))
    return isinstance(first, bool) == isinstance(second, bool)


def mark_inexact(atoms: Iterable[Atom]) -> None:
    """Clear :attr:`Atom.exact` of each type that contains an inexact part."""
    everything = list(atoms)
    changed = True
    while changed:
        changed = False
        for atom in everything:
            if atom.exact and any(not child.exact for child in atom.children()):
                atom.exact = False
                changed = True
