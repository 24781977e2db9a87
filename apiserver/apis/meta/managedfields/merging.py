"""Merges an applied configuration into an object."""

from __future__ import annotations

from collections import Counter
from typing import Any

from apiserver.apis.meta.managedfields.schema import Atom, ListAtom, MapAtom
from apiserver.apis.meta.managedfields.values import ABSENT, kind_of


def merge(atom: Atom, live: Any, applied: Any) -> Any:  # noqa: ANN401 - any JSON values
    """Return ``live`` merged with ``applied``, sharing parts with both; ABSENT if nothing is left.

    Both must fit the schema, and lists in ``applied`` must be free of duplicates.
    """
    if live is applied or (atom.exact and live == applied):
        return live
    kind = kind_of(atom, applied)
    if kind == "map":
        assert atom.map is not None  # noqa: S101 - kind_of only names what the type has
        return _maps(atom.map, live, applied)
    if kind == "list":
        assert atom.list is not None  # noqa: S101 - as above
        return _lists(atom.list, live, applied)
    return applied


def _maps(shape: MapAtom, live: Any, applied: Any) -> Any:  # noqa: ANN401 - any JSON values
    before: dict[str, Any] = live if isinstance(live, dict) else {}
    wanted: dict[str, Any] = applied if isinstance(applied, dict) else {}
    if shape.atomic or not (before or wanted):
        return applied
    result = None
    for name, value in wanted.items():
        was = before.get(name, ABSENT)
        becomes = value if was is ABSENT else merge(shape.child(name), was, value)
        if becomes is was:
            continue
        if result is None:
            result = dict(before)
        if becomes is ABSENT:
            result.pop(name, None)
        else:
            result[name] = becomes
    if result is None:
        return live if before else ABSENT
    return result or ABSENT


def _lists(shape: ListAtom, live: Any, applied: Any) -> Any:  # noqa: ANN401 - any JSON values
    before: list[Any] = live if isinstance(live, list) else []
    wanted: list[Any] = applied if isinstance(applied, list) else []
    if not shape.associative or not (before or wanted):
        return applied
    if not wanted:
        return live
    result = _Zipper(shape, before, wanted).run()
    if len(result) == len(before) and all(new is old for new, old in zip(result, before, strict=True)):
        return live
    return result or ABSENT


class _Zipper:
    """Merges two associative lists into one order.

    Where the orders disagree, the applied list's wins. Items only in the live list stay before the same shared item.
    """

    def __init__(self, shape: ListAtom, live: list[Any], applied: list[Any]) -> None:
        self._element = shape.element
        self._live = live
        self._left = [shape.step_to(each) for each in live]
        self._right = [shape.step_to(each) for each in applied]
        # Duplicates under one step cannot be merged with, so null takes their place.
        often = Counter(self._left)
        self._was = {step: each if often[step] == 1 else None for step, each in zip(self._left, live, strict=True)}
        self._wanted = dict(zip(self._right, applied, strict=True))
        self._shared = [step for step in self._right if step in self._was]
        self._done: set[str] = set()
        self._result: list[Any] = []

    def run(self) -> list[Any]:
        at, to = 0, 0
        left, right = self._left, self._right
        while at < len(left) or to < len(right):
            if at < len(left) and to < len(right):
                if left[at] == right[to]:
                    self._take(right[to])
                    self._next_shared()
                    at, to = at + 1, to + 1
                    continue
                if left[at] in self._wanted and self._shared and self._shared[0] != left[at]:
                    at += 1  # it comes later in the applied order
                    continue
            if at < len(left):
                if left[at] not in self._wanted:
                    self._result.append(self._live[at])
                    at += 1
                    continue
                if left[at] in self._done:
                    at += 1
            if to < len(right):
                step = right[to]
                self._take(step)
                to += 1
                if self._shared and self._shared[0] == step:
                    self._next_shared()
        return self._result

    def _next_shared(self) -> None:
        if self._shared:
            self._shared.pop(0)

    def _take(self, step: str) -> None:
        self._done.add(step)
        was = self._was.get(step, ABSENT)
        becomes = self._wanted[step] if was is ABSENT else merge(self._element, was, self._wanted[step])
        if becomes is not ABSENT:
            self._result.append(becomes)
