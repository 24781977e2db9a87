"""Responses: JSON or YAML, Status objects for errors, and the headers that Go's server sets."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import orjson
import yaml

from apiserver.apis.meta.errors import MethodNotAllowed, NotAcceptable, NotFound, StatusError
from apiserver.apis.meta.objects import Object
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Joined, Request, Response
from apiserver.endpoints.negotiation import JSON, YAML, accepts_pretty

_HUMANS: Final = ("curl", "Wget", "Mozilla/5.0")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_GZIP_LEVEL: Final = 1
_GZIP_WINDOW: Final = 31  # gzip
LARGE: Final = 128 << 10
"""Answers of this size are compressed, as in Go."""
NOT_CACHED: Final = b"Cache-Control: no-cache, private\r\n"
_WARNINGS: Final = 4096
_ONE_WARNING: Final = 256
_MOST_WARNINGS: Final = 64


def dump(value: Any, media_type: str = JSON, *, pretty: bool = False) -> bytes:  # noqa: ANN401 - any JSON value
    """Encode a value as JSON or YAML, with a final newline."""
    if media_type == YAML:
        return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True).encode()
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if pretty else 0))


def is_pretty(context: RequestContext) -> bool:
    """Return whether to indent: by ``pretty`` (as Go's ``ParseBool``), else by User-Agent or Accept."""
    request = context.request
    if "pretty" in request.target and (given := request.query.get("pretty")):
        return given in _TRUE
    return request.headers.get("User-Agent", "").startswith(_HUMANS) or accepts_pretty(context.accept)


async def answer(
    context: RequestContext,
    value: Any,  # noqa: ANN401 - any JSON value
    *,
    code: int = 200,
    media_type: str = JSON,
    pretty: bool = False,
) -> Response:
    """Return the response with ``value``, compressed if large; bytes and Joined are JSON already. ``pretty`` always indents."""
    pretty = pretty or is_pretty(context)
    if isinstance(value, Joined) and (media_type != JSON or pretty):
        value = b"".join(value.slices(value.length))
    if isinstance(value, Joined):
        body: bytes | Joined = value
    elif isinstance(value, bytes):
        body = value if media_type == JSON and not pretty else dump(orjson.loads(value), media_type, pretty=pretty)
    else:
        body = dump(value, media_type, pretty=pretty)
    response = Response(status=code, body=body, content_type=media_type)
    return response if response.length < LARGE else await compressed(context.request, response)


async def compressed(request: Request, response: Response) -> Response:
    """Return ``response``, its body compressed in a thread if it is large and the client accepts gzip."""
    if response.length >= LARGE:
        response.headers["Vary"] = ", ".join((*response.headers.getall("Vary", ()), "Accept-Encoding"))
        if takes_gzip(request):
            response.body = await asyncio.to_thread(_gzip, response.body)
            response.headers["Content-Encoding"] = "gzip"
    return response


def takes_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip; as in Go, not with a quality."""
    return any(each.strip() == "gzip" for each in request.headers.get("Accept-Encoding", "").split(","))


def _gzip(body: bytes | Joined) -> bytes:
    if isinstance(body, bytes):
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
    return b"".join((*map(packer.compress, body.slices(LARGE)), packer.flush()))


def status_of(context: RequestContext, error: StatusError) -> Response:
    """Return an error's ``Status``, in JSON if the client accepts no supported type."""
    try:
        media_type = context.represent().media_type
    except NotAcceptable:
        media_type = JSON
    response = Response(status=error.code, body=dump(error.to_json(), media_type, pretty=is_pretty(context)), content_type=media_type)
    response.headers["X-Content-Type-Options"] = "nosniff"
    if error.details.retry_after_seconds:
        response.headers["Retry-After"] = str(error.details.retry_after_seconds)
    return response


def plain(code: int, text: str) -> Response:
    """Return a text response."""
    response = Response(status=code, body=text.encode(), content_type="text/plain; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def add_headers(context: RequestContext, response: Response) -> None:
    """Add audit id, cache control and warnings to an answer."""
    cached = b"" if response.sets("Cache-Control") else NOT_CACHED
    response.encoded = b"Audit-Id: %b\r\n%b%b" % (context.audit_id.encode(), cached, response.encoded)
    if context.warnings:
        for value in warnings(context.warnings):
            response.headers.add("Warning", value)


def warnings(texts: Iterable[str]) -> list[str]:
    """Return values of ``Warning`` headers. Above 4096 characters in all, cut each to 256, and drop those beyond 4096.

    At most 64: some clients (Python's ``http.client``) reject over 100 headers.
    """
    listed = list(islice(filter(None, texts), _MOST_WARNINGS))
    if sum(map(len, listed)) <= _WARNINGS:
        return [warning(each) for each in listed]
    values, written = [], 0
    for each in listed:
        if written >= _WARNINGS:
            break
        cut = each[:_ONE_WARNING]
        written += len(cut)
        values.append(warning(cut))
    return values


def warning(text: str) -> str:
    """Return a ``Warning`` header's value (RFC 7234 §5.5), which kubectl prints. Unprintable characters become ``?``."""
    clean = "".join([each if each.isprintable() else "?" for each in text])
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def etag_of(body: bytes) -> str:
    """Return a document's entity tag, as in Go: SHA-512 in upper-case hexadecimal, without quotes."""
    return hashlib.sha512(body).hexdigest().upper()


def success(details: Object) -> Object:
    """Return the ``Status`` of a success."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def unknown_resource() -> NotFound:
    """Return the error for an unknown resource or subresource."""
    return NotFound("the server could not find the requested resource")


def wrong_method() -> MethodNotAllowed:
    """Return the error for an unsupported method."""
    return MethodNotAllowed("the server does not allow this method on the requested resource")
