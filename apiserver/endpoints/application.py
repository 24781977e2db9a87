"""Routing: find the verb that answers an authenticated and authorized request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.resources import Resource
from apiserver.endpoints import discovery, responses
from apiserver.endpoints.context import Page, RequestContext
from apiserver.endpoints.documents import Document, OpenAPI, serve
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import wants_aggregated_discovery
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.verbs import connecting, deleting, reading, scaling, watching, writing
from apiserver.endpoints.verbs.served import Served
from apiserver.endpoints.verbs.watching import Watches
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.strategy import AnyVerb, CreatingVerb, DeletingVerb, RelayedVerb, Strategy, UpdatingVerb

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_ACTIONS: Final = frozenset({"POST", "PUT"})


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an API server that answer requests."""

    served: Mapping[Resource, Served]
    openapi: OpenAPI
    pages: Mapping[str, Page]
    """By exact path."""
    watches: Watches
    streams: connecting.Streams
    now: Callable[[], datetime]


class Application:
    """Routes each request to its verb or document."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._by_path = {(each.group, each.version, each.plural): served for each, served in parts.served.items()}
        self._versions = {(group, version) for group, version, _ in self._by_path}
        self._discovery = _documents([each.strategy for each in parts.served.values()])
        self._aggregated = Document.of(discovery.aggregated([each.strategy for each in parts.served.values()]), discovery.AGGREGATED_TYPE)
        self._openapi = parts.openapi.pages()

    def is_long_running(self, info: RequestInfo) -> bool:
        """Return whether this is a watch or a stream."""
        if info.verb == "watch":
            return info.is_resource
        if not info.subresource:
            return False
        served = self._by_path.get((info.group, info.version, info.resource))
        return served is not None and info.subresource in served.strategy.connects

    def answer(self, context: RequestContext) -> Awaitable[Response]:
        """Return the coroutine that answers."""
        if context.info.is_resource and (context.info.group, context.info.version) in self._versions:
            return self._resource(context)
        return self._path(context)

    async def _path(self, context: RequestContext) -> Response:
        path = context.info.path
        page = self._page(path)
        if page is None:
            if path.startswith("/apis/"):
                raise responses.unknown_resource()
            return await self._index(context, code=404)
        if context.request.method not in {"GET", "HEAD"}:
            raise responses.wrong_method()
        return await page(context)

    def _page(self, path: str) -> Page | None:
        if path == "/":
            return self._index
        document = path.removesuffix("/")
        if document == "/apis":
            return self._groups
        if document in self._discovery:
            return partial(serve, document=self._discovery[document])
        return self._openapi.get(path) or self._parts.pages.get(path)

    async def _groups(self, context: RequestContext) -> Response:
        if wants_aggregated_discovery(context.accept):
            return await serve(context, self._aggregated, public=True)
        return await serve(context, self._discovery["/apis"])

    async def _index(self, context: RequestContext, code: int = 200) -> Response:
        listed = {*self._discovery, *self._parts.pages, "/openapi/v2", "/openapi/v3"}
        paths = sorted(each for each in listed if not each.endswith("/"))
        return await responses.answer(context, {"paths": paths}, code=code, pretty=True)

    def _resource(self, context: RequestContext) -> Awaitable[Response]:
        info = context.info
        served = self._by_path.get((info.group, info.version, info.resource))
        if served is None or _is_too_long(info, served.strategy) or (info.namespace and not served.strategy.resource.namespaced):
            raise responses.unknown_resource()
        if info.misnamed:
            raise BadRequest(info.misnamed)
        if context.request.method not in _METHODS:
            raise responses.wrong_method()
        if info.verb == "watch":
            return self._watch(served, context)
        if not info.name or info.selected_name:
            return self._collection(served, context)
        if served.strategy.resource.namespaced and not info.namespace:
            raise responses.unknown_resource()
        if not info.subresource:
            return _object(served, context)
        return self._subresource(served, context)

    def _watch(self, served: Served, context: RequestContext) -> Awaitable[Response]:
        """Watch a collection or, at the old path ``/watch/…/NAME``, one object."""
        info = context.info
        if context.request.method != "GET":
            raise responses.wrong_method()
        named = bool(info.name) and not info.selected_name
        if info.subresource or (named and served.strategy.resource.namespaced and not info.namespace):
            raise responses.unknown_resource()
        return watching.watch(served, context, self._parts.watches, name=info.name if named else "")

    def _collection(self, served: Served, context: RequestContext) -> Awaitable[Response]:
        whole = served.strategy.resource.namespaced and not context.info.namespace
        match context.request.method:
            case "GET":
                return reading.list_(served, context)
            case "POST" if not whole:
                return writing.create(served, context)
            case "DELETE" if not whole:
                return deleting.delete_collection(served, context)
            case _:
                raise responses.wrong_method()

    def _subresource(self, served: Served, context: RequestContext) -> Awaitable[Response]:
        name, method = context.info.subresource, context.request.method
        if name == "status" and served.strategy.has_status:
            if method in {"GET", "PUT", "PATCH"}:
                return _object(served, context)
            raise responses.wrong_method()
        if name == "scale" and (scale := served.strategy.scaling) is not None:
            return _scale(served, context, scale)
        if stream := served.strategy.connects.get(name):
            if method != "GET":
                raise responses.wrong_method()
            return connecting.connect(served, context, stream, self._parts.streams)
        if part := served.strategy.reads.get(name):
            if method != "GET":
                raise responses.wrong_method()
            return reading.read_part(served, context, part)
        verb = served.strategy.verbs.get(name)
        if verb is None:
            raise responses.unknown_resource()
        return self._verb(served, context, verb)

    def _verb(self, served: Served, context: RequestContext, verb: AnyVerb) -> Awaitable[Response]:
        if context.request.method not in _ACTIONS:
            raise responses.wrong_method()
        if isinstance(verb, CreatingVerb):
            return writing.act_by_creating(served, context, verb, self._parts.served, self._parts.now)
        if isinstance(verb, UpdatingVerb):
            return writing.act_by_updating(served, context, verb, self._parts.served)
        if isinstance(verb, DeletingVerb):
            return writing.act_by_deleting(served, context, verb, self._parts.served)
        if isinstance(verb, RelayedVerb):
            return writing.act_by_relaying(served, context, verb)
        return writing.act(served, context, verb)


def _is_too_long(info: RequestInfo, strategy: Strategy) -> bool:
    stream = strategy.connects.get(info.subresource)
    return len(info.rest) > (len(stream.segments) if stream is not None else 0)


def _scale(served: Served, context: RequestContext, scale: Scaling) -> Awaitable[Response]:
    match context.request.method:
        case "GET":
            return scaling.get(served, context, scale)
        case "PUT":
            return scaling.update(served, context, scale)
        case "PATCH":
            return scaling.patch(served, context, scale)
        case _:
            raise responses.wrong_method()


def _object(served: Served, context: RequestContext) -> Awaitable[Response]:
    match context.request.method:
        case "GET":
            return reading.get(served, context)
        case "PUT":
            return writing.update(served, context)
        case "PATCH":
            return writing.patch(served, context)
        case "DELETE":
            return deleting.delete(served, context)
        case _:
            raise responses.wrong_method()


def _documents(strategies: Sequence[Strategy]) -> dict[str, Document]:
    documents = {"/apis": Document.of(discovery.api_group_list(strategies))}
    for group, version in {(each.resource.group, each.resource.version) for each in strategies}:
        documents[f"/apis/{group}"] = Document.of(discovery.api_group(strategies, group))
        documents[f"/apis/{group}/{version}"] = Document.of(discovery.api_resource_list(strategies, group, version))
    return documents
