"""POST, PUT and PATCH of objects, and the action subresources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from apiserver.apis.meta.errors import BadRequest, NotFound
from apiserver.apis.meta.objects import HubObject, Object, name_of, uid_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import duplicate_field
from apiserver.endpoints import bodies, queries
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import Representation, media_name
from apiserver.endpoints.presenting import ONE
from apiserver.endpoints.verbs import patches
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.generic import codec, listing, metadata, selection
from apiserver.registry.generic.options import DeleteOptions, WriteOptions
from apiserver.registry.generic.planning import Part
from apiserver.registry.generic.store import Stored
from apiserver.registry.generic.strategy import CreatingVerb, DeletingVerb, RelayedVerb, UpdatingVerb, Verb
from apiserver.registry.generic.transactions import LockTaken


async def create(served: Served, context: RequestContext) -> Response:
    """Create an object; answer with it and 201."""
    representation = context.represent(*ONE)
    options = write_options(context, "CreateOptions")
    body = await _body(context, options)
    item = await served.store.create(context.info.namespace, body.value, options)
    return await served.answer_one(context, item, representation, code=201)


async def update(served: Served, context: RequestContext) -> Response:
    """Replace an object, or its status; answer with the result."""
    representation = context.represent(*ONE)
    options = write_options(context)
    body = await _body(context, options)
    metadata.must_be_named(body.value, context.info.name)
    metadata.match_request(body.value, served.strategy.resource, context.info.namespace, context.info.name)
    wanted = body.afresh()
    item = await served.store.update(context.info.namespace, context.info.name, lambda _: wanted(), options, part=_part(context))
    return await served.answer_one(context, item, representation)


async def patch(served: Served, context: RequestContext) -> Response:
    """Patch an object, or its status; retry after conflicting writes."""
    representation = context.represent(*ONE)
    media_type = media_name(context.request.headers.get("Content-Type"))
    if media_type == patches.APPLY_PATCH and served.store.applies(_part(context)):
        return await _apply(served, context, representation)
    options = write_options(context, "PatchOptions")
    raw = await bodies.read(context.request)
    change, options.superfluous = patches.parse(media_type, raw, served.shape)

    def patched(stored: Stored) -> Object:
        obj = change(stored)
        if not obj.get("apiVersion"):
            raise BadRequest(f"the patch of {context.info.name} removes its apiVersion")
        metadata.must_be_named(obj, context.info.name)
        return obj

    repeatable = media_type in patches.REPEATABLE
    item = await served.store.update(
        context.info.namespace, context.info.name, patched, options, part=_part(context), repeatable=repeatable
    )
    return await served.answer_one(context, item, representation)


async def _apply(served: Served, context: RequestContext, representation: Representation) -> Response:
    options = write_options(context, "PatchOptions", apply=True)
    applied, duplicates = patches.parse_apply(await bodies.read(context.request))
    if duplicates and options.field_validation == "Strict":
        listed = ", ".join(f'duplicate field "{each}"' for each in duplicates)
        raise BadRequest(f"error strict decoding YAML: {listed}")
    options.superfluous = tuple(map(duplicate_field, duplicates))

    async def may_create() -> None:
        if context.authorize is not None:
            await context.authorize("create")

    item, made = await served.store.apply(
        context.info.namespace, context.info.name, applied, options, part=_part(context), may_create=may_create
    )  # fmt: skip
    return await served.answer_one(context, item, representation, code=201 if made else 200)


async def act(served: Served, context: RequestContext, verb: Verb) -> Response:
    """Apply a verb to an object; answer with the result."""
    representation = context.represent(*ONE)
    options = write_options(context)
    body = (await bodies.read_object(context.request)).value
    item = await served.store.act(context.info.namespace, context.info.name, context.info.subresource, verb, body, options)
    return await served.answer_one(context, item, representation)


async def act_by_creating(
    served: Served, context: RequestContext, verb: CreatingVerb, everything: Mapping[Resource, Served], now: Callable[[], datetime]
) -> Response:
    """Create the object that a verb derives from another one, or find the one of an earlier call with this id; answer with it.

    ``everything``: all served resources.
    """
    representation = context.represent(*ONE)
    options = write_options(context, "CreateOptions")
    body = (await bodies.read_object(context.request)).value
    item = await served.store.get(context.info.namespace, context.info.name)
    created = everything[verb.creates]
    if known := verb.name_for_id(item.object, body):
        with suppress(NotFound):
            earlier = await created.store.get(context.info.namespace, known)
            if verb.is_of(item.object, earlier.object):
                return await created.answer_one(context, earlier, representation)
    made = created.strategy.from_hub(HubObject(verb.make(codec.copy(item.object), body, now())))
    try:
        made_item = await created.store.create(context.info.namespace, made, options)
    except LockTaken as taken:  # its caller cannot see the object
        raise LockTaken(served.strategy.resource, context.info.name, taken.why, taken.lock) from taken
    return await created.answer_one(context, made_item, representation, code=201)


class _ForAnother(Verb):
    def __init__(self, verb: UpdatingVerb, obj: Object) -> None:
        self._verb, self._obj = verb, obj

    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        return self._verb.change(self._obj, obj, body, now)


async def act_by_updating(served: Served, context: RequestContext, verb: UpdatingVerb, everything: Mapping[Resource, Served]) -> Response:
    """Change the object that ``verb``, called on another object, names; answer with it. Raises StatusError."""
    representation = context.represent(*ONE)
    options = write_options(context)
    body = (await bodies.read_object(context.request)).value
    item = await served.store.get(context.info.namespace, context.info.name)
    updated = everything[verb.updates]
    name = verb.target(item.object, body)
    act = _ForAnother(verb, codec.copy(item.object))
    result = await updated.store.act(context.info.namespace, name, context.info.subresource, act, body, options)
    return await updated.answer_one(context, result, representation)


async def act_by_deleting(served: Served, context: RequestContext, verb: DeletingVerb, everything: Mapping[Resource, Served]) -> Response:
    """Delete the object that a verb chooses for another one; answer with it."""
    representation = context.represent(*ONE)
    options = write_options(context, "DeleteOptions")
    body = (await bodies.read_object(context.request)).value
    item = await served.store.get(context.info.namespace, context.info.name)
    deleted = everything[verb.deletes]
    selected = selection.parse(deleted.strategy, "", verb.candidates(item.object))
    found = await listing.run(deleted.store, listing.ListQuery(context.info.namespace, selected))
    chosen = verb.choose(codec.copy(item.object), body, [each.object for each in found.items])
    deletion = DeleteOptions(dry_run=options.dry_run, caller=options.caller)
    result, _ = await deleted.store.delete(context.info.namespace, name_of(chosen), deletion, uid=uid_of(chosen))
    return await deleted.answer_one(context, result, representation)


async def act_by_relaying(served: Served, context: RequestContext, verb: RelayedVerb) -> Response:
    """Have another process act on an object; answer with the object as before. A dry run only checks the request."""
    representation = context.represent(*ONE)
    options = write_options(context)
    body = (await bodies.read_object(context.request)).value
    item = await served.store.get(context.info.namespace, context.info.name)
    verb.check(item.object, body)
    if not options.dry_run:
        await verb.act(item.object, body)
    return await served.answer_one(context, item, representation)


def write_options(context: RequestContext, kind: str = "UpdateOptions", *, apply: bool = False) -> WriteOptions:
    """Parse and check a write's options. Raises Invalid."""
    query = context.request.query
    if not query and not apply:
        return WriteOptions(caller=context.caller)
    return queries.write_options(query, query.getall("dryRun", []), context.caller, kind=kind, apply=apply)


def _part(context: RequestContext) -> Part:
    return "status" if context.info.subresource == "status" else ""


async def _body(context: RequestContext, options: WriteOptions) -> bodies.Body:
    body = await bodies.read_object(context.request, notice_duplicates=options.field_validation != "Ignore", required=True)
    if body.duplicates:
        options.superfluous = tuple(map(duplicate_field, body.duplicates))
    return body
