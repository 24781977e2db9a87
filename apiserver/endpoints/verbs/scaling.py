"""GET, PUT and PATCH of ``/scale``."""

from __future__ import annotations

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.strategic_patch import Shape
from apiserver.endpoints import bodies, responses
from apiserver.endpoints.call import Call
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


async def get(served: Served, call: Call, scaling: Scaling) -> Response:
    """Answer with the object's Scale."""
    return await _answer(call, scaling, await served.store.get(call.info.namespace, call.info.name))


async def update(served: Served, call: Call, scaling: Scaling) -> Response:
    """Set the replicas; without a ``resourceVersion`` whatever they were."""
    options = write_options(call)
    scale = (await bodies.read_object(call.request)).value
    if not scale:
        raise BadRequest("the request has no body: it must be a Scale")
    return await _write(served, call, scaling, lambda _: scale, options, repeatable=True)


async def patch(served: Served, call: Call, scaling: Scaling) -> Response:
    """Change the Scale in part: its replicas."""
    media_type = media_name(call.request.headers.get("Content-Type"))
    raw = await bodies.read(call.request)
    if media_type == patches.APPLY_PATCH and served.store.applies("scale"):
        options = write_options(call, "PatchOptions", apply=True)
        applied, _ = patches.parse_apply(raw)
        return await _answer(call, scaling, await served.store.apply_scale(call.info.namespace, call.info.name, applied, options))
    change, _ = patches.parse(media_type, raw, _SHAPE)
    options = write_options(call, "PatchOptions")
    return await _write(served, call, scaling, change, options, repeatable=media_type in patches.REPEATABLE)


async def _write(
    served: Served, call: Call, scaling: Scaling, change: Change, options: WriteOptions, *, repeatable: bool
) -> Response:  # fmt: skip
    def scaled(stored: Stored) -> Object:
        obj = stored()
        return scaling.put_back(obj, change(lambda: scaling.view(obj)))

    item = await served.store.update(call.info.namespace, call.info.name, scaled, options, part="scale", repeatable=repeatable)
    return await _answer(call, scaling, item)


async def _answer(call: Call, scaling: Scaling, item: Item) -> Response:
    representation = call.represent()
    return await responses.answer(call, scaling.view(item.object), media_type=representation.media_type)
