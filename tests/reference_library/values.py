from __future__ import annotations

import copy
import random
from typing import Any

from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, MapAtom

_STRINGS = ("a", "b", "c", "x-1", "TCP", 'q"', "<&>", "ü")
_NUMBERS = (0, 1, 2, 80, 443, 1.5, 10, 8080000)
_NAMES = ("a", "b", "c", "app", "tier.example.com/x")
_NEVER = frozenset({"apiVersion", "kind", "metadata", "managedFields", "uid", "resourceVersion", "generation", "creationTimestamp"})


class Values:
    """Random values for schemas. A smaller ``depth`` makes smaller ones."""

    def __init__(self, source: random.Random) -> None:
        self.random = source

    def of(self, atom: Atom, depth: int = 5) -> Any:
        kinds = [kind for kind in ("scalar", "map", "list") if getattr(atom, kind) is not None and (depth > 0 or kind == "scalar")]
        kind = self.random.choice(kinds) if kinds else None
        if kind == "scalar":
            return self.scalar(atom)
        if kind == "map" and atom.map is not None:
            return self.fields(atom.map, depth)
        if kind == "list" and atom.list is not None:
            return self.items(atom.list, depth)
        return {} if atom.map is not None else []

    def scalar(self, atom: Atom) -> Any:
        choice = self.random.choice
        match atom.scalar:
            case "numeric":
                return choice(_NUMBERS)
            case "boolean":
                return choice((True, False))
            case "string":
                return choice(_STRINGS)
            case _:
                return choice(_STRINGS) if atom.exact else choice((*_STRINGS[:3], 0, 1, 1.5, True, False))

    def fields(self, shape: MapAtom, depth: int) -> dict[str, Any]:
        names = [each for each in shape.fields if each not in _NEVER]
        if shape.element is not None:
            names += [each for each in _NAMES if each not in shape.fields]
        chosen = self.random.sample(names, min(len(names), self.random.choice((0, 1, 1, 2, 2, 3, 4))))
        return {name: self.of(shape.child(name), depth - 1) for name in chosen}

    def items(self, shape: ListAtom, depth: int) -> list[Any]:
        found: dict[str, Any] = {}
        for position in range(self.random.choice((0, 1, 1, 2, 3, 4))):
            item = self.item(shape, depth)
            if item is not None:
                found[shape.step_to(item) if shape.associative else str(position)] = item
        return list(found.values())

    def item(self, shape: ListAtom, depth: int) -> Any:
        item = self.of(shape.element, depth - 1)
        if not shape.associative:
            return item
        if not shape.keys:
            return self.scalar(shape.element) if shape.element.scalar is not None else None
        if not isinstance(item, dict) or shape.element.map is None:
            return None
        for name in shape.keys:
            if name not in shape.element.map.defaults or self.random.random() < 0.4:
                item[name] = self.scalar(shape.element.map.child(name))
            else:
                item.pop(name, None)
        return item if any(name in item for name in shape.keys) or shape.element.map.defaults else None

    def changed(self, atom: Atom, value: Any, depth: int = 5) -> Any:
        result = copy.deepcopy(value)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            result = self._changed(atom, result, depth)
        return result

    def _changed(self, atom: Atom, value: Any, depth: int) -> Any:
        if isinstance(value, dict) and atom.map is not None:
            return self._changed_map(atom.map, value, depth)
        if isinstance(value, list) and atom.list is not None:
            return self._changed_list(atom.list, value, depth)
        return self.of(atom, depth)

    def _changed_map(self, shape: MapAtom, value: dict[str, Any], depth: int) -> dict[str, Any]:
        present = [each for each in value if each not in _NEVER]
        dice = self.random.random()
        if present and dice < 0.15:
            del value[self.random.choice(present)]
        elif present and dice < 0.7:
            name = self.random.choice(present)
            value[name] = self._changed(shape.child(name), value[name], depth - 1)
        else:
            value.update(self.fields(shape, depth))
        return value

    def _changed_list(self, shape: ListAtom, value: list[Any], depth: int) -> list[Any]:
        dice = self.random.random()
        if value and dice < 0.25:
            value.pop(self.random.randrange(len(value)))
        elif value and dice < 0.4:
            self.random.shuffle(value)
        elif value and dice < 0.7 and not (shape.associative and not shape.keys):
            position = self.random.randrange(len(value))
            item = self._changed(shape.element, value[position], depth - 1)
            if not shape.associative or self._is_item(shape, item):
                value[position] = item
        elif shape.associative:
            known = {shape.step_to(each) for each in value if self._is_item(shape, each)}
            item = self.item(shape, depth)
            if item is not None and (self.random.random() < 0.05 or shape.step_to(item) not in known):
                value.insert(self.random.randint(0, len(value)), item)
        else:
            value.insert(self.random.randint(0, len(value)), self.of(shape.element, depth - 1))
        return value

    @staticmethod
    def _is_item(shape: ListAtom, item: Any) -> bool:
        try:
            shape.step_to(item)
        except ValueError:
            return False
        return True

    def part(self, atom: Atom, value: Any) -> Any:
        if isinstance(value, dict) and atom.map is not None and not atom.map.atomic:
            return {name: self.part(atom.map.child(name), each) for name, each in value.items() if self.random.random() < 0.6}
        if isinstance(value, list) and atom.list is not None and atom.list.associative:
            kept = [each for each in value if self.random.random() < 0.7]
            if not atom.list.keys:
                return kept
            return [{**self.part(atom.list.element, each), **{key: each[key] for key in atom.list.keys if key in each}} for each in kept]
        return copy.deepcopy(value)
