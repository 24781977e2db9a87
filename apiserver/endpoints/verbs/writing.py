"""POST, PUT and PATCH of objects, and the action subresources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import duplicate_field
from apiserver.endpoints import bodies, queries
from apiserver.endpoints.call import Call
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import Representation, media_name
from apiserver.endpoints.presenting import ONE
from apiserver.endpoints.verbs import patches
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.planning import Part
from apiserver.registry.generic.store import Stored
from apiserver.registry.generic.strategy import CreatingVerb, Verb
from apiserver.registry.generic.transactions import LockTaken


async def create(served: Served, call: Call) -> Response:
    """Create an object."""
    representation = call.represent(*ONE)
    options = write_options(call, "CreateOptions")
    body = await _body(call, options)
    item = await served.store.create(call.info.namespace, body.value, options)
    return await served.answer_one(call, item, representation, code=201)


async def update(served: Served, call: Call) -> Response:
    """Replace an object, or its status."""
    representation = call.represent(*ONE)
    options = write_options(call)
    body = await _body(call, options)
    metadata.must_be_named(body.value, call.info.name)
    metadata.match_request(body.value, served.strategy.resource, call.info.namespace, call.info.name)
    wanted = body.afresh()
    item = await served.store.update(call.info.namespace, call.info.name, lambda _: wanted(), options, part=_part(call))
    return await served.answer_one(call, item, representation)


async def patch(served: Served, call: Call) -> Response:
    """Patch an object, or its status; applied anew when somebody else wrote in between."""
    representation = call.represent(*ONE)
    media_type = media_name(call.request.headers.get("Content-Type"))
    if media_type == patches.APPLY_PATCH and served.store.applies(_part(call)):
        return await _apply(served, call, representation)
    options = write_options(call, "PatchOptions")
    raw = await bodies.read(call.request)
    change, options.superfluous = patches.parse(media_type, raw, served.shape)
    call.received(raw)

    def patched(stored: Stored) -> Object:
        obj = change(stored)
        if not obj.get("apiVersion"):
            raise BadRequest(f"the patch of {call.info.name} takes away its apiVersion: nobody can read what is left")
        metadata.must_be_named(obj, call.info.name)
        return obj

    repeatable = media_type in patches.REPEATABLE
    item = await served.store.update(call.info.namespace, call.info.name, patched, options, part=_part(call), repeatable=repeatable)
    return await served.answer_one(call, item, representation)


async def _apply(served: Served, call: Call, representation: Representation) -> Response:
    """Merge what one manager applies into the object, or its status; 201 when that made the object."""
    options = write_options(call, "PatchOptions", apply=True)
    applied, duplicates = patches.parse_apply(await bodies.read(call.request))
    call.received(applied)
    if duplicates and options.field_validation == "Strict":
        listed = ", ".join(f'duplicate field "{each}"' for each in duplicates)
        raise BadRequest(f"error strict decoding YAML: {listed}")
    options.superfluous = tuple(map(duplicate_field, duplicates))

    async def may_create() -> None:
        if call.authorize is not None:
            await call.authorize("create")

    item, made = await served.store.apply(
        call.info.namespace, call.info.name, applied, options, part=_part(call), may_create=may_create
    )  # fmt: skip
    return await served.answer_one(call, item, representation, code=201 if made else 200)


async def act(served: Served, call: Call, verb: Verb) -> Response:
    """Apply a verb to an object."""
    representation = call.represent(*ONE)
    options = write_options(call)
    body = (await bodies.read_object(call.request)).value
    call.received(body)
    item = await served.store.act(call.info.namespace, call.info.name, call.info.subresource, verb, body, options)
    return await served.answer_one(call, item, representation)


async def act_by_creating(
    served: Served, call: Call, verb: CreatingVerb, everything: Mapping[Resource, Served], now: Callable[[], datetime]
) -> Response:
    """Create the object that a verb makes of another one."""
    representation = call.represent(*ONE)
    options = write_options(call, "CreateOptions")
    body = (await bodies.read_object(call.request)).value
    call.received(body)
    item = await served.store.get(call.info.namespace, call.info.name)
    created = everything[verb.creates]
    made = verb.make(codec.copy(item.object), body, now())
    try:
        made_item = await created.store.create(call.info.namespace, made, options)
    except LockTaken as taken:  # of an object that its caller knows nothing of
        raise LockTaken(served.strategy.resource, call.info.name, taken.why) from taken
    return await created.answer_one(call, made_item, representation, code=201)


def write_options(call: Call, kind: str = "UpdateOptions", *, apply: bool = False) -> WriteOptions:
    """Return the checked options of a write."""
    query = call.request.query
    if not query and not apply:
        return WriteOptions(caller=call.caller)
    return queries.write_options(query, query.getall("dryRun", []), call.caller, kind=kind, apply=apply)


def _part(call: Call) -> Part:
    return "status" if call.info.subresource == "status" else ""


async def _body(call: Call, options: WriteOptions) -> bodies.Body:
    body = await bodies.read_object(call.request, notice_duplicates=options.field_validation != "Ignore", required=True)
    call.received(body.value)
    if body.duplicates:
        options.superfluous = tuple(map(duplicate_field, body.duplicates))
    return body
