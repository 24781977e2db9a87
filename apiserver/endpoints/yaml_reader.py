"""YAML as Kubernetes reads it: what JSON can hold, by the rules of Go's YAML where those of PyYAML are others.

A document is hostile: its size, its depth and what its aliases come to are bounded.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import yaml

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints.duplicates import Duplicates, Place

_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 200
_YAML_TAG: Final = "tag:yaml.org,2002:"
_SHORT_TRUTHS: Final = frozenset("yYnN")
"""True and false in YAML 1.1, and to Go; not to PyYAML."""
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""Numbers by Go's YAML; YAML 1.1, and PyYAML, want a dot and a sign in it (``1.0e+3``)."""
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LONGEST_NUMBER: Final = 64
_WRITTEN_OUT: Final = 1e21
"""From here on Go writes a whole number with an exponent, and nobody reads that as an integer."""


class Reader:
    """One document, built from the parser's events: PyYAML's own composer recurses in C, and a deep document would end the process.

    Counts nodes, aliased ones as often as they are named, so that aliases cannot multiply.
    """

    def __init__(self, raw: bytes) -> None:
        self._loader = yaml.CSafeLoader(raw)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self.duplicates = Duplicates()
        """Keys given twice, once the document was read."""

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the first document; an empty one is an empty object.

        Raises:
            BadRequest: it has what JSON has not, is too large, or a second document follows that is not empty.
            yaml.YAMLError, ValueError: it is malformed.
        """
        try:
            self._next()  # the stream begins
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
        self._next()  # the document ends
        return value

    def _next(self) -> Any:  # noqa: ANN401 - the stubs know one kind of event only
        return self._loader.get_event()

    def _value(self, event: Any, depth: int, place: Place) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(event, yaml.AliasEvent):
            value, size = self._anchors.get(event.anchor or "", (None, 0))
            if not size:
                raise BadRequest("the YAML document has an alias of nothing that stands before it")
            self._count(size, depth)
            return value
        before = self._nodes
        self._count(1, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth, place)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(depth, place)
        else:
            value = self._scalar(event)
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
            key = self._scalar(event)
            if not isinstance(key, str):
                key = str(key).lower() if isinstance(key, bool | int) else event.value
            if key in result:
                self.duplicates.add((place, key))
            result[key] = self._value(self._next(), depth + 1, (place, key))
        for each in merged:
            for key, value in each.items():
                result.setdefault(key, value)
        return result

    def _scalar(self, event: Any) -> Any:  # noqa: ANN401 - any JSON scalar
        tag = event.tag
        if tag in {None, "!"}:
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]  # the stubs' lack
            if event.value in _SHORT_TRUTHS and event.implicit[0]:
                tag = "bool"
            elif event.implicit[0] and _NUMBER.fullmatch(event.value) and tag.endswith(":str"):
                return _whole(float(event.value))
        return _scalar(tag, event.value)

    def _count(self, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("the YAML document is too large or too deep once its aliases are written out")


def _maps_of(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON value
    """Return what a merge key (https://yaml.org/type/merge.html) brings: the first of those that have a key counts."""
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in listed):
        raise BadRequest("a YAML merge key needs a map, or a list of maps")
    return listed


def _scalar(tag: str, text: str) -> Any:  # noqa: ANN401 - any JSON scalar
    match tag.removeprefix(_YAML_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in {"yes", "true", "on", "y"}
        case "int" if _INTEGER.fullmatch(text):
            return int(text)
        case "int" | "float":
            loaded = yaml.safe_load(text) if len(text) < _LONGEST_NUMBER and ":" not in text else text  # 1:30 is no 90
            if isinstance(loaded, float):
                return _whole(loaded)
            return loaded if isinstance(loaded, int) else text
        case "binary":
            raise BadRequest("binary values are not supported in YAML")
        case _:
            return text  # timestamps stay text


def _whole(number: float) -> int | float:
    """Return the number as Go writes it into JSON: ``5.0`` is 5."""
    if not math.isfinite(number):
        raise BadRequest(f"JSON has no number {number}")
    return int(number) if number.is_integer() and abs(number) < _WRITTEN_OUT else number
