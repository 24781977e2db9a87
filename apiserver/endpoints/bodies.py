"""Bodies of requests: read within a limit, decoded from JSON or YAML into what JSON can hold, duplicate keys noticed.

A body is hostile until it passed here: its size, depth, numbers, text and YAML aliases are bounded, and what comes out can be
written as JSON again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
import yaml

from apiserver.apis.meta.errors import BadRequest, RequestEntityTooLarge
from apiserver.endpoints.http.messages import BodyError, BodyTooLarge, Request
from apiserver.endpoints.negotiation import JSON, YAML, body_type

MAX_BYTES: Final = 3 << 20
"""Go's limit for the body of a write."""
_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 200
_MOST_DUPLICATES: Final = 100
_SHOWN: Final = 256
_YAML_TAG: Final = "tag:yaml.org,2002:"
_SHORT_TRUTHS: Final = frozenset("yYnN")
"""True and false in YAML 1.1, and to Go; not to PyYAML."""
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""What Go's YAML takes for a number; YAML 1.1, and PyYAML, want a dot and a sign in it (``1.0e+3``)."""
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")


@dataclass(slots=True)
class Body:
    """A decoded body; ``duplicates`` are the paths of keys that occurred twice in one map (the last one counts)."""

    value: Any
    raw: bytes
    media_type: str = JSON
    duplicates: tuple[str, ...] = ()

    def afresh(self) -> Callable[[], Any]:
        """Return a function that returns the value, which is given away, and when called again an equal one."""
        left = [self.value]
        return lambda: left.pop() if left else _again(self.raw, self.media_type)


async def read(request: Request, limit: int = MAX_BYTES) -> bytes:
    """Return the raw body.

    Raises:
        RequestEntityTooLarge: it is longer than ``limit``; the rest was not read.
        BadRequest: its chunks are malformed.
    """
    try:
        return await request.read(limit)
    except BodyTooLarge:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {limit}") from None
    except BodyError as error:
        raise BadRequest(f"the body of the request cannot be read: {error}") from None


async def read_object(request: Request, *, notice_duplicates: bool = True, required: bool = False) -> Body:
    """Return the body, whose value is an object; an empty body and ``null`` are an empty object, unless one is ``required``.

    Raises:
        BadRequest, UnsupportedMediaType, RequestEntityTooLarge: it is none.
    """
    raw = await read(request)
    if not raw.strip():
        if required:
            raise BadRequest("the request has no body: it must be an object")
        return Body({}, b"{}")
    body = decode(raw, body_type(request.headers.get("Content-Type")), notice_duplicates=notice_duplicates)
    if body.value is None and not required:
        return Body({}, b"{}")
    if not isinstance(body.value, dict):
        raise BadRequest(f"the body of the request must be an object, it is {_kind(body.value)}")
    return body


def decode(raw: bytes, media_type: str, *, notice_duplicates: bool = True) -> Body:
    """Decode JSON or YAML.

    Raises:
        BadRequest: it is malformed, or cannot be written as JSON.
    """
    if media_type == YAML:
        return _from_yaml(raw)
    if notice_duplicates and (value := _plain(raw)) is not None:
        return Body(value, raw)
    try:
        value = orjson.loads(raw)
        orjson.dumps(value)
        json.dumps(value, allow_nan=False)  # 1e999 is no number that could be written again
    except (ValueError, TypeError, RecursionError) as error:  # orjson's errors are the first two
        raise BadRequest(f"the body of the request is not valid JSON: {str(error)[:200]}") from None
    return Body(value, raw, JSON, _duplicates(raw) if notice_duplicates else ())


def _again(raw: bytes, media_type: str) -> Any:  # noqa: ANN401 - any JSON value
    """Decode what was decoded before, and found right."""
    return orjson.loads(raw) if media_type == JSON else _from_yaml(raw).value


def _plain(raw: bytes) -> dict[str, Any] | None:
    """Return an object without duplicate keys, as most bodies are; None for whatever else, which the slower readers explain."""
    try:
        value: Any = orjson.loads(raw)
        written = orjson.dumps(value)
        if written == raw.rstrip():  # compact, as Go writes: all that was sent is in the value, so no key was there twice
            return value if isinstance(value, dict) else None
        import jiter  # here, because most clients send compact JSON, which needs it not

        value = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False)
        written = orjson.dumps(value)
    except (ValueError, TypeError):
        return None
    # A number too large for JSON's readers would be written as a null that nobody sent.
    return value if isinstance(value, dict) and written.count(b"null") == raw.count(b"null") else None


def _kind(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _duplicates(raw: bytes) -> tuple[str, ...]:
    """Return the paths of keys that are given twice: ``spec.disks[0].name``."""
    found = _Duplicates()
    try:
        _find_duplicates(json.loads(raw, object_pairs_hook=_Members), None, found)
    except (ValueError, RecursionError):
        return ()  # orjson read it; what only Python's parser minds is no mistake
    return found.paths


class _Members(list[tuple[str, Any]]):
    """The members of one object, in the order in which they stand."""


Place: TypeAlias = "tuple[Place, str | int] | None"
"""Where a value is: in what, and under which key or index. Its path is written only when it is told: a long key may hold many values."""


class _Duplicates:
    """The paths of keys that are given twice, as many of them as anybody reads (Go: 100)."""

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}

    def add(self, place: Place) -> None:
        if len(self._paths) < _MOST_DUPLICATES:
            self._paths[_path(place)] = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._paths)


def _path(place: Place) -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}")
    return "".join(reversed(steps)).removeprefix(".")


def _find_duplicates(value: Any, place: Place, found: _Duplicates) -> None:  # noqa: ANN401 - any JSON value
    if isinstance(value, _Members):
        seen: set[str] = set()
        for key, each in value:
            if key in seen:
                found.add((place, key))
            seen.add(key)
            _find_duplicates(each, (place, key), found)
    elif isinstance(value, list):
        for position, each in enumerate(value):
            _find_duplicates(each, (place, position), found)


_LONGEST_NUMBER: Final = 64
_WRITTEN_OUT: Final = 1e21
"""From here on Go writes a whole number with an exponent, and nobody reads that as an integer."""


class _Yaml:
    """One document, built from the parser's events: PyYAML's own composer recurses in C, and a deep document would end the process.

    Counts nodes, aliased ones as often as they are named, so that aliases cannot multiply.
    """

    def __init__(self, raw: bytes) -> None:
        self._loader = yaml.CSafeLoader(raw)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self.duplicates = _Duplicates()

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the first document; an empty one is an empty object. A second one is refused, unless it is empty."""
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


def _from_yaml(raw: bytes) -> Body:
    try:
        reader = _Yaml(raw)
        value = orjson.loads(orjson.dumps(reader.document()))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadRequest(f"the body of the request is not valid YAML: {str(error)[:200]}") from None
    return Body(value, raw, YAML, reader.duplicates.paths)
