"""Answers: JSON or YAML, Status objects for errors, and the headers that Go's server sets."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from typing import Any, Final

import orjson
import yaml

from apiserver.apis.meta.errors import Details, MethodNotAllowed, NotFound, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.endpoints.call import Call
from apiserver.endpoints.http import Request, Response
from apiserver.endpoints.negotiation import JSON, YAML
from apiserver.endpoints.queries import truth

_GZIP_FROM: Final = 128 << 10
_HUMANS: Final = ("curl", "Wget", "Mozilla/5.0")
_WARNING_BYTES: Final = 4096
_ONE_WARNING: Final = 256


def dump(value: Any, media_type: str = JSON, *, pretty: bool = False) -> bytes:  # noqa: ANN401 - any JSON value
    """Return the encoded value, with a newline at its end."""
    if media_type == YAML:
        return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True).encode()
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if pretty else 0))


def is_pretty(request: Request) -> bool:
    """Return whether a person reads the answer: asked for by ``pretty``, else guessed by the client's name."""
    wish = request.query.get("pretty")
    return truth(wish) if wish is not None else request.headers.get("User-Agent", "").startswith(_HUMANS)


async def answer(call: Call, value: Any, *, code: int = 200, media_type: str = JSON) -> Response:  # noqa: ANN401 - any JSON value
    """Return the response that carries ``value``; bytes are JSON already."""
    pretty = is_pretty(call.request)
    if isinstance(value, bytes):
        body = value if media_type == JSON and not pretty else dump(orjson.loads(value), media_type, pretty=pretty)
    else:
        body = dump(value, media_type, pretty=pretty)
    response = Response(status=code, body=body, content_type=media_type)
    return await compressed(call.request, response, body)


async def compressed(request: Request, response: Response, body: bytes) -> Response:
    """Compress a large answer for a client that takes gzip, outside the event loop."""
    if len(body) >= _GZIP_FROM:
        response.headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.body = await asyncio.to_thread(gzip.compress, body, 1, mtime=0)
            response.headers["Content-Encoding"] = "gzip"
    return response


def status_of(error: StatusError) -> Response:
    """Return the response for an error: always a JSON ``Status``, whatever the client accepts."""
    response = Response(status=error.code, body=dump(error.to_json()), content_type=JSON)
    response.headers["X-Content-Type-Options"] = "nosniff"
    if error.details.retry_after_seconds:
        response.headers["Retry-After"] = str(error.details.retry_after_seconds)
    return response


def plain(code: int, text: str) -> Response:
    """Return a text answer."""
    response = Response(status=code, body=text.encode(), content_type="text/plain; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def add_headers(call: Call, response: Response) -> None:
    """Set the headers that every answer carries; call it before the answer is prepared."""
    response.headers["Audit-Id"] = call.audit_id
    response.headers.setdefault("Cache-Control", "no-cache, private")
    room = _WARNING_BYTES
    for text in call.warnings:
        room -= len(text)
        if room < 0:
            break
        response.headers.add("Warning", warning(text))


def warning(text: str) -> str:
    """Return a ``Warning`` header's value (RFC 7234 §5.5): kubectl prints its text."""
    clean = "".join(each if each.isprintable() and each.isascii() else "?" for each in text)[:_ONE_WARNING]
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def etag_of(body: bytes) -> str:
    """Return the entity tag of a document, made as Go makes it: the SHA-512 in upper case."""
    return hashlib.sha512(body).hexdigest().upper()


def success(details: Object) -> Object:
    """Return the ``Status`` of a success."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def unknown_resource(call: Call) -> NotFound:
    """Return the error for a resource or subresource that we do not have."""
    details = Details(name=call.info.name, group=call.info.group, kind=call.info.resource)
    return NotFound("the server could not find the requested resource", details)


def wrong_method() -> MethodNotAllowed:
    """Return the error for a method that the resource does not have."""
    return MethodNotAllowed("the server does not allow this method on the requested resource")
