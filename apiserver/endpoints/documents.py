"""Discovery and OpenAPI documents, encoded once and served with entity tags and 304."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from time import time
from typing import Final

import orjson

from apiserver.apis.meta.errors import NotAcceptable
from apiserver.apis.meta.objects import Object
from apiserver.endpoints import responses
from apiserver.endpoints.context import Page, RequestContext
from apiserver.endpoints.http.messages import Response, date_of
from apiserver.endpoints.negotiation import JSON, negotiate

_YEAR: Final = 365 * 24 * 3600
_GZIP_FROM: Final = 1400
"""In bytes, as in Go: less fits into one packet."""


@dataclass(frozen=True)
class Document:
    """An encoded document and its tag."""

    body: bytes
    etag: str
    content_type: str = JSON

    @classmethod
    def of(cls, value: Object, content_type: str = JSON) -> Document:
        """Encode an object as a document."""
        body = responses.dump(value)
        return cls(body, responses.etag_of(body), content_type)

    @cached_property
    def compressed(self) -> bytes:
        """The body in gzip, compressed at first use."""
        return gzip.compress(self.body, mtime=0)


async def serve(context: RequestContext, document: Document, *, public: bool = False, packed: bool = False) -> Response:
    """Serve the document, or 304 if unchanged.

    ``public``: shared caches may keep it; ``packed``: compress a large one only once, and never indent.
    """
    headers = {"ETag": f'"{document.etag}"', "Vary": "Accept"}
    if public:
        headers["Cache-Control"] = "public"
    known = {each.strip().removeprefix("W/").strip('"') for each in context.request.headers.get("If-None-Match", "").split(",")}
    if document.etag in known:
        return Response(status=304, headers=headers)
    if packed and len(document.body) >= _GZIP_FROM:
        headers["Vary"] = "Accept, Accept-Encoding"
        if responses.takes_gzip(context.request):
            headers["Content-Encoding"] = "gzip"
            return Response(body=document.compressed, headers=headers, content_type=document.content_type)
        return Response(body=document.body, headers=headers, content_type=document.content_type)
    body = document.body
    if not packed and responses.is_pretty(context):
        body = responses.dump(orjson.loads(body), pretty=True)
    response = Response(body=body, headers=headers, content_type=document.content_type)
    return await responses.compressed(context.request, response)


class OpenAPI:
    """Serves ``/openapi/v2`` and ``/openapi/v3``."""

    def __init__(self, v2: Object, v3: Mapping[str, Object]) -> None:
        """Take the v2 document, and the v3 documents by path (``apis/kubevirt.io/v1alpha1``)."""
        self._v2 = Document.of(v2)
        self._v3 = {path: Document.of(value) for path, value in v3.items()}
        self._root = Document.of(
            {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={each.etag}"} for path, each in self._v3.items()}}
        )

    def pages(self) -> dict[str, Page]:
        """Return the documents' handlers by path.

        They raise NotAcceptable for clients that do not accept JSON; for the aggregator, kube-apiserver converts to protobuf.
        """
        groups: dict[str, Page] = {f"/openapi/v3/{path}": partial(self._by_hash, path, each) for path, each in self._v3.items()}
        return {"/openapi/v2": partial(self._whole, self._v2), "/openapi/v3": partial(self._whole, self._root), **groups}

    @staticmethod
    async def _whole(document: Document, context: RequestContext) -> Response:
        _want_json(context)
        return await serve(context, document, packed=True)

    @staticmethod
    async def _by_hash(path: str, document: Document, context: RequestContext) -> Response:
        _want_json(context)
        wanted = context.request.query.get("hash")
        if wanted and wanted != document.etag:
            return Response(status=301, headers={"Location": f"/openapi/v3/{path}?hash={document.etag}"})
        response = await serve(context, document, packed=True)
        if wanted:
            response.headers["Cache-Control"] = "public, immutable"
            response.headers["Expires"] = date_of(int(time()) + _YEAR).decode()
        return response


def _want_json(context: RequestContext) -> None:
    if context.accept and negotiate(context.accept).media_type != JSON:
        raise NotAcceptable("only the following media types are accepted: application/json")
