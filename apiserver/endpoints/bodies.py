"""Read request bodies within a limit and decode them from JSON or YAML, reporting duplicate keys.

Bodies are hostile: size, depth, numbers, text and YAML aliases are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

from apiserver.apis.meta.errors import BadRequest, RequestEntityTooLarge
from apiserver.endpoints import duplicates, yaml_reader
from apiserver.endpoints.http.messages import BodyError, BodyTooLarge, Request
from apiserver.endpoints.negotiation import JSON, YAML, body_type

MAX_BYTES: Final = 3 << 20
"""As in Go, for writes."""


@dataclass(slots=True)
class Body:
    """A decoded body; ``duplicates`` are the paths of repeated keys (the last one counts)."""

    value: Any
    raw: bytes
    media_type: str = JSON
    duplicates: tuple[str, ...] = ()

    def afresh(self) -> Callable[[], Any]:
        """Return a function that returns the decoded value at its first call, and a new copy at each later one."""
        left = [self.value]
        return lambda: left.pop() if left else _again(self.raw, self.media_type)


async def read(request: Request, limit: int = MAX_BYTES) -> bytes:
    """Return the raw body.

    Raises RequestEntityTooLarge without reading the rest, BadRequest for malformed chunks, Gone.
    """
    try:
        return await request.read(limit)
    except BodyTooLarge:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {limit}") from None
    except BodyError as error:
        raise BadRequest(f"cannot read the body of the request: {error}") from None


async def read_object(request: Request, *, notice_duplicates: bool = True, required: bool = False) -> Body:
    """Read and decode the body, an object; unless ``required``, an empty body or ``null`` is ``{}``.

    Raises BadRequest, UnsupportedMediaType, RequestEntityTooLarge.
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
    """Decode JSON or YAML; ``notice_duplicates``: the Body lists repeated keys also of JSON. Raises BadRequest."""
    if media_type == YAML:
        return _from_yaml(raw)
    if notice_duplicates and (value := _plain(raw)) is not None:
        return Body(value, raw)
    try:
        value = orjson.loads(raw)
        orjson.dumps(value)
        json.dumps(value, allow_nan=False)  # 1e999 is not representable
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"the body of the request is not valid JSON: {str(error)[:200]}") from None
    return Body(value, raw, JSON, duplicates.in_json(raw) if notice_duplicates else ())


def _again(raw: bytes, media_type: str) -> Any:  # noqa: ANN401 - any JSON value
    return orjson.loads(raw) if media_type == JSON else _from_yaml(raw).value


def _plain(raw: bytes) -> dict[str, Any] | None:
    try:
        value: Any = orjson.loads(raw)
        written = orjson.dumps(value)
        if written == raw.rstrip():  # compact: no key was repeated
            return value if isinstance(value, dict) else None
        import jiter  # late: rarely used

        value = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False)
        written = orjson.dumps(value)
    except (ValueError, TypeError):
        return None
    # A number too large for JSON readers would become null.
    return value if isinstance(value, dict) and written.count(b"null") == raw.count(b"null") else None


def _kind(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _from_yaml(raw: bytes) -> Body:
    try:
        reader = yaml_reader.Reader(raw)
        value = orjson.loads(orjson.dumps(reader.document()))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadRequest(f"the body of the request is not valid YAML: {str(error)[:200]}") from None
    return Body(value, raw, YAML, reader.duplicates.paths)
