"""Read YAML into JSON values. PyYAML parses; ``yaml_scalars`` interprets scalars by Go's rules."""

from __future__ import annotations

from typing import Any, Final

import yaml

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints import yaml_scalars
from apiserver.endpoints.duplicates import Duplicates, Place

_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 200


class Reader:
    """Builds a YAML document from parser events: PyYAML's composer recurses in C, so deep documents would crash.

    Every use of an alias counts.
    """

    def __init__(self, raw: bytes) -> None:
        self._loader = yaml.CSafeLoader(raw)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self.duplicates = Duplicates()

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the only document's value; without a document, an empty object.

        Raises BadRequest, also for a second document other than null; yaml.YAMLError or ValueError if malformed.
        """
        try:
            self._next()
            if isinstance(self._next(), yaml.StreamEndEvent):
                return {}
            value = self._one()
            while not isinstance(self._next(), yaml.StreamEndEvent):
                if self._one() is not None:
                    raise BadRequest("the body of the request must be one YAML document")
            return value
        finally:
            self._loader.dispose()

    def _one(self) -> Any:  # noqa: ANN401 - any JSON value
        value = self._value(self._next(), 0, None)
        self._next()
        return value

    def _next(self) -> Any:  # noqa: ANN401 - the stubs know one kind of event only
        return self._loader.get_event()

    def _value(self, event: Any, depth: int, place: Place) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(event, yaml.AliasEvent):
            value, size = self._anchors.get(event.anchor or "", (None, 0))
            if not size:
                raise BadRequest("the YAML document has an alias without an earlier anchor")
            self._count(size, depth)
            return value
        before = self._nodes
        self._count(1, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth, place)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(depth, place)
        else:
            value = yaml_scalars.value(self._scalar(event))
        if event.anchor:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _sequence(self, depth: int, place: Place) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            result.append(self._value(event, depth + 1, (place, len(result))))
        return result

    def _mapping(self, depth: int, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise BadRequest("keys of YAML maps must be plain values")
            if event.implicit[0] and event.value == "<<":
                merged += _maps_of(self._value(self._next(), depth + 1, place))
                continue
            key = yaml_scalars.key(self._scalar(event))
            if key in result:
                self.duplicates.add((place, key))
            result[key] = self._value(self._next(), depth + 1, (place, key))
        for each in merged:
            for key, value in each.items():
                result.setdefault(key, value)
        return result

    def _scalar(self, event: Any) -> yaml_scalars.Scalar:  # noqa: ANN401 - the stubs know one kind of event only
        if event.tag is not None:
            return yaml_scalars.tagged(event.tag, event.value)
        return yaml_scalars.plain(event.value) if event.implicit[0] else str(event.value)

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("the YAML document is too large or too deep after expansion of its aliases")


def _maps_of(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON value
    """Return the maps that a merge key (https://yaml.org/type/merge.html) names; earlier ones take precedence. Raises BadRequest."""
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in listed):
        raise BadRequest("a YAML merge key needs a map, or a list of maps")
    return listed
