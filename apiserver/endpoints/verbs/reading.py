"""GET of an object and of a collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from apiserver.apis.meta.objects import Object
from apiserver.client.turns import Turn
from apiserver.endpoints import queries, responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Joined, Response
from apiserver.endpoints.negotiation import Representation
from apiserver.endpoints.presenting import MANY, ONE, Include, include_of
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic import listing, selection
from apiserver.registry.generic.listing import ListQuery, parse_revision
from apiserver.registry.generic.strategy import Read

TURN_SECONDS: Final = 0.004
"""Per iteration of the event loop."""
MOST: Final = 128
"""Objects per iteration."""


async def get(served: Served, context: RequestContext) -> Response:
    """Answer with one object (``/status`` also returns all of it)."""
    representation = context.represent(*ONE)
    text = context.request.query.get("resourceVersion", "")
    item = await served.store.get(context.info.namespace, context.info.name, fresh=not text, at_least=parse_revision(text))
    return await served.answer_one(context, item, representation)


async def read_part(served: Served, context: RequestContext, part: Read) -> Response:
    """Answer with a read-only subresource of one object."""
    media_type = context.represent().media_type
    item = await served.store.get(context.info.namespace, context.info.name)
    return await responses.answer(context, await part.read(item.object), media_type=media_type)


async def list_(served: Served, context: RequestContext) -> Response:
    """Answer with a collection's objects; with ``limit``, a page of them. Raises StatusError."""
    representation = context.represent(*MANY)
    options = queries.list_options(context.request.query, watch=False)
    page = await listing.run(served.store, list_query(served, context, options))
    metadata = metadata_of(page)
    if representation.transform:
        include = include_of(context.request.query.get("includeObject"))
        body = await in_pieces(served, page.items, metadata, representation, include)
    else:
        body = _whole(served, page.items, metadata)
    return await responses.answer(context, body, media_type=representation.media_type)


async def in_pieces(served: Served, items: Sequence[Item], metadata: Object, representation: Representation, include: Include) -> Joined:
    """Return a list's encoded body; between objects, other requests may run."""
    presenter = served.presenter
    frame = presenter.many((), metadata, representation, include)
    parts: list[bytes] = []
    turn = Turn(TURN_SECONDS, most=MOST)
    for item in items:
        await turn.rest()
        parts += (b",", orjson.dumps(presenter.part(served.store.shown(item), representation, include)))
    return _list(orjson.dumps(frame)[: -len(b"]}")], parts, sum(map(len, parts)), len(items))


def list_query(served: Served, context: RequestContext, options: queries.ListOptions) -> ListQuery:
    """Build the query from the options; raises BadRequest for a wrong selector."""
    return ListQuery(
        namespace=context.info.namespace,
        selection=selection.parse(served.strategy, options.label_selector, options.field_selector),
        limit=options.limit,
        token=options.continue_token,
        resource_version=options.resource_version,
        exact=options.match == queries.EXACT,
        match=bool(options.match),
    )


def metadata_of(page: listing.Listing) -> Object:
    """Return a page's ``metadata``: revision, and any continue token and remaining count."""
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def _whole(served: Served, items: Sequence[Item], metadata: Object) -> Joined:
    resource = served.strategy.resource
    head = orjson.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
    return _list(head[:-1] + b',"items":[', *served.store.shown_pieces(items), len(items))


def _list(head: bytes, parts: list[bytes], length: int, number: int) -> Joined:
    if parts:
        parts[0] = b""
        length -= len(b",")
    return Joined(head, parts, b"]}\n", number=number, length=length)
