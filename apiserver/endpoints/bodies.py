"""Bodies of requests: read within a limit, decoded from JSON or YAML into what JSON can hold, duplicate keys noticed.

A body is hostile until it passed here: its size, depth, numbers, text and YAML aliases are bounded, and what comes out can be
written as JSON again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml
from aiohttp import web

from apiserver.apis.meta.errors import BadRequest, RequestEntityTooLarge
from apiserver.endpoints.negotiation import YAML, body_type

MAX_BYTES: Final = 3 << 20
"""Go's limit for the body of a write."""
_MAX_NODES: Final = 200_000
_MAX_DEPTH: Final = 200
_YAML_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body; ``duplicates`` are keys that occurred twice in one map (the last one counts)."""

    value: Any
    duplicates: tuple[str, ...] = ()


async def read(request: web.BaseRequest, limit: int = MAX_BYTES) -> bytes:
    """Return the raw body.

    Raises:
        RequestEntityTooLarge: it is longer than ``limit``; the rest was not read.
    """
    too_large = RequestEntityTooLarge(f"Request entity too large: limit is {limit}")
    if (request.content_length or 0) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


async def read_object(request: web.BaseRequest, *, notice_duplicates: bool = True) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body as an object with its duplicate keys; an empty body is an empty object.

    Raises:
        BadRequest, UnsupportedMediaType, RequestEntityTooLarge: it is none.
    """
    raw = await read(request)
    if not raw.strip():
        return {}, ()
    body = decode(raw, body_type(request.headers.get("Content-Type")), notice_duplicates=notice_duplicates)
    if not isinstance(body.value, dict):
        raise BadRequest(f"the body of the request must be an object, it is {_kind(body.value)}")
    return body.value, body.duplicates


def decode(raw: bytes, media_type: str, *, notice_duplicates: bool = True) -> Body:
    """Decode JSON or YAML.

    Raises:
        BadRequest: it is malformed, or cannot be written as JSON.
    """
    if media_type == YAML:
        return _from_yaml(raw)
    try:
        value = orjson.loads(raw)
        orjson.dumps(value)
    except (ValueError, TypeError) as error:  # orjson's errors are both
        raise BadRequest(f"the body of the request is not valid JSON: {str(error)[:200]}") from None
    return Body(value, _duplicates(raw) if notice_duplicates else ())


def _kind(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _duplicates(raw: bytes) -> tuple[str, ...]:
    found: dict[str, None] = {}

    def pairs(items: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in items}) < len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    found[key] = None
                seen.add(key)

    try:
        json.loads(raw, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return ()  # orjson read it; what only Python's parser minds is no mistake
    return tuple(found)


class _Composer(yaml.CSafeLoader):
    """Makes nodes; the nodes are turned into values below, with limits."""


@dataclass(slots=True)
class _Yaml:
    """One conversion of YAML nodes: counts nodes, so that aliases cannot multiply."""

    duplicates: dict[str, None] = field(default_factory=dict)
    nodes: int = 0

    def value(self, node: yaml.Node, depth: int) -> Any:  # noqa: ANN401 - any JSON value
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("the YAML document is too large or too deep once its aliases are written out")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, depth + 1) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, depth)
        return _scalar(node)

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_YAML_TAG}merge":
                raise BadRequest("keys of YAML maps must be plain values, and merge keys are not supported")
            key = _scalar(key_node)
            key = key if isinstance(key, str) else key_node.value
            if key in result:
                self.duplicates[key] = None
            result[key] = self.value(value_node, depth + 1)
        return result


def _scalar(node: yaml.Node) -> Any:  # noqa: ANN401 - any JSON scalar
    text: str = node.value
    match node.tag.removeprefix(_YAML_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in {"yes", "true", "on", "y"}
        case "int" if _INTEGER.fullmatch(text):
            return int(text)
        case "int" | "float":
            loaded = yaml.safe_load(text) if len(text) < 64 else text
            return loaded if isinstance(loaded, int | float) else text
        case "binary":
            raise BadRequest("binary values are not supported in YAML")
        case _:
            return text  # timestamps stay text


def _from_yaml(raw: bytes) -> Body:
    loader = _Composer(raw)
    try:
        node = loader.get_single_node()
        conversion = _Yaml()
        value = conversion.value(node, 0) if node is not None else {}
        value = orjson.loads(orjson.dumps(value))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"the body of the request is not valid YAML: {str(error)[:200]}") from None
    finally:
        loader.dispose()
    return Body(value, tuple(conversion.duplicates))
