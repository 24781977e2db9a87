"""GET, PUT and PATCH of ``/scale``."""

from __future__ import annotations

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.strategic_patch import Shape
from apiserver.endpoints import bodies, responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.negotiation import media_name
from apiserver.endpoints.verbs import patches
from apiserver.endpoints.verbs.served import Served
from apiserver.endpoints.verbs.writing import write_options
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.store import Change, Stored

_SHAPE = Shape({"type": "object"}, {})


async def get(served: Served, context: RequestContext, scaling: Scaling) -> Response:
    """Answer with the object's Scale."""
    return await _answer(context, scaling, await served.store.get(context.info.namespace, context.info.name))


async def update(served: Served, context: RequestContext, scaling: Scaling) -> Response:
    """Set the replicas, at the body's ``resourceVersion`` if any; answer with the Scale. Raises StatusError."""
    options = write_options(context)
    scale = (await bodies.read_object(context.request)).value
    if not scale:
        raise BadRequest("the request has no body: it must be a Scale")
    return await _write(served, context, scaling, lambda _: scale, options, repeatable=True)


async def patch(served: Served, context: RequestContext, scaling: Scaling) -> Response:
    """Patch the replicas; answer with the Scale."""
    media_type = media_name(context.request.headers.get("Content-Type"))
    raw = await bodies.read(context.request)
    if media_type == patches.APPLY_PATCH and served.store.applies("scale"):
        options = write_options(context, "PatchOptions", apply=True)
        applied, _ = patches.parse_apply(raw)
        return await _answer(context, scaling, await served.store.apply_scale(context.info.namespace, context.info.name, applied, options))
    change, _ = patches.parse(media_type, raw, _SHAPE)
    options = write_options(context, "PatchOptions")
    return await _write(served, context, scaling, change, options, repeatable=media_type in patches.REPEATABLE)


async def _write(
    served: Served, context: RequestContext, scaling: Scaling, change: Change, options: WriteOptions, *, repeatable: bool
) -> Response:  # fmt: skip
    strategy = served.strategy

    def scaled(stored: Stored) -> Object:
        obj = strategy.to_hub(stored())
        return strategy.from_hub(scaling.put_back(obj, change(lambda: scaling.view(obj))))

    item = await served.store.update(context.info.namespace, context.info.name, scaled, options, part="scale", repeatable=repeatable)
    return await _answer(context, scaling, item)


async def _answer(context: RequestContext, scaling: Scaling, item: Item) -> Response:
    representation = context.represent()
    return await responses.answer(context, scaling.view(item.object), media_type=representation.media_type)
