"""Find keys that a JSON or YAML text repeats, by path: ``spec.disks[0].name``."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

_MOST: Final = 100
"""As in Go."""
_SHOWN: Final = 256

Place: TypeAlias = "tuple[Place, str | int] | None"
"""Parent, and key or index. The path is only built for reports."""


class Duplicates:
    """Collects the first hundred duplicate paths."""

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}

    def add(self, place: Place) -> None:
        """Add the path of a repeated key, up to ``_MOST`` paths."""
        if len(self._paths) < _MOST:
            self._paths[_path(place)] = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The duplicate paths."""
        return tuple(self._paths)


def _path(place: Place) -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}")
    return "".join(reversed(steps)).removeprefix(".")


def in_json(raw: bytes) -> tuple[str, ...]:
    """Return the paths of repeated keys in JSON, at most a hundred; none if it is invalid or too deeply nested."""
    found = Duplicates()
    try:
        _find(json.loads(raw, object_pairs_hook=_Members), None, found)
    except (ValueError, RecursionError):
        return ()
    return found.paths


class _Members(list[tuple[str, Any]]):
    """One object's members, in order."""


def _find(value: Any, place: Place, found: Duplicates) -> None:  # noqa: ANN401 - any JSON value
    if isinstance(value, _Members):
        seen: set[str] = set()
        for key, each in value:
            if key in seen:
                found.add((place, key))
            seen.add(key)
            _find(each, (place, key), found)
    elif isinstance(value, list):
        for position, each in enumerate(value):
            _find(each, (place, position), found)
