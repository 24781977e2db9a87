"""DELETE of an object and of a collection."""

from __future__ import annotations

from apiserver.apis.meta.objects import uid_of
from apiserver.endpoints import bodies, queries, responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.presenting import MANY, ONE, include_of
from apiserver.endpoints.verbs.reading import in_pieces, list_query, metadata_of
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.generic import listing
from apiserver.registry.generic.options import DeleteOptions


async def delete(served: Served, context: RequestContext) -> Response:
    """Delete one object. Answer Success, or the object if finalizers hold it."""
    representation = context.represent(*ONE)
    options = await _options(context)
    item, gone = await served.store.delete(context.info.namespace, context.info.name, options)
    if not gone:
        code = 202 if options.orphan_dependents is False else 200
        return await served.answer_one(context, item, representation, code=code)
    resource = served.strategy.resource
    details = {"name": context.info.name, "group": resource.group, "kind": resource.plural, "uid": uid_of(item.object)}
    return await responses.answer(context, responses.success(details), media_type=representation.media_type)


async def delete_collection(served: Served, context: RequestContext) -> Response:
    """Delete the selected objects, with ``limit`` only a page of them; answer with their list."""
    representation = context.represent(*MANY)
    listed = queries.list_options(context.request.query, watch=False)
    options = await _options(context)
    page = await listing.run(served.store, list_query(served, context, listed))
    deleted = await served.store.delete_each(page.items, options)
    include = include_of(context.request.query.get("includeObject"))
    document = await in_pieces(served, deleted, metadata_of(page), representation, include)
    return await responses.answer(context, document, media_type=representation.media_type)


async def _options(context: RequestContext) -> DeleteOptions:
    body = (await bodies.read_object(context.request, notice_duplicates=False)).value
    query = context.request.query
    return queries.delete_options(query, query.getall("dryRun", []), body, context.caller)
