"""Streams: join a client's websocket with that of a :class:`Connect`'s server.

Before the upgrade, errors are answered as a Status. Then bytes are copied both ways until one side ends or the user
loses the right; close code and reason are passed on. Messages are bounded, and a side that does not read stops the
other, because neither is trusted.

A websocket's GET needs the right to ``get``, interactive streams also ``create`` (``docs/decisions/streams.md``;
``k8s.io/kubernetes/pkg/registry/core/pod/rest/authorize.go``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from apiserver.apis.meta.errors import BadRequest, NotFound, StatusError
from apiserver.apis.meta.objects import Object, name_of, namespace_of, uid_of
from apiserver.endpoints import responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.http.upgrade import GOING_AWAY, NORMAL, End
from apiserver.endpoints.verbs.served import Served
from apiserver.endpoints.verbs.streamlimits import OpenStreams, StreamLimits
from apiserver.registry.generic.strategy import Connect


class Streams:
    """The open streams, closed by :meth:`end_all`."""

    def __init__(self, limits: StreamLimits) -> None:
        self.open = OpenStreams(limits)
        self._ending = asyncio.Event()

    def end_all(self) -> None:
        """Begin to close every stream; clients can dial another server."""
        self._ending.set()

    async def ended(self) -> End:
        """Wait for :meth:`end_all`; return the End: close code and reason."""
        await self._ending.wait()
        return End(GOING_AWAY, "the server is stopping: connect again")


async def connect(served: Served, context: RequestContext, stream: Connect, streams: Streams) -> Response:
    """Serve one stream from its upgrade to its end. Raises StatusError before the upgrade."""
    if stream.interactive and context.authorize is not None:
        await context.authorize("create")
    if "dryRun" in context.request.query:
        raise BadRequest("dryRun is not supported")
    item = await served.store.get(context.info.namespace, context.info.name)
    await served.store.connecting(context.info.namespace, context.info.name, context.info.subresource, context.caller)
    destination = await stream.locate(item.object, {**context.request.query, **_segments(stream, context.info.rest)})
    if not upgrade.is_upgrade(context.request):
        raise BadRequest("Upgrade request required")
    if not upgrade.is_well_formed(context.request):
        raise BadRequest("Upgrade request required: only WebSockets (RFC 6455) are supported")
    from apiserver.endpoints.http.websocket import WebSocket  # late: rarely used
    from apiserver.endpoints.verbs import bounded, joining

    client = WebSocket(
        context.request,
        protocols=stream.subprotocols,
        max_bytes=joining.MAX_MESSAGE_BYTES,
        ping_seconds=stream.ping_seconds,
        socket_bytes=bounded.SOCKET_BYTES,
    )
    async with streams.open.one(context.user, context.info, stream.share) as holder, joining.dialled(destination, stream, holder) as server:
        for warning in stream.warnings(item.object):
            context.warn(warning)
        responses.add_headers(context, client)
        await client.accept()
        await joining.join(client, server, _endings(context, stream, streams), partial(_final, served, item.object, stream))
    return client


async def _final(served: Served, before: Object, stream: Connect) -> End | None:
    """Return the End if no new stream can follow, because the object is deleted, or ``stream`` is over; else None."""
    try:
        now = (await served.store.get(namespace_of(before), name_of(before))).object
    except NotFound:
        return End(NORMAL, "it was deleted")
    except StatusError:
        return None
    reason = "it was deleted" if uid_of(now) != uid_of(before) else stream.over(now)
    return End(NORMAL, reason) if reason else None


def _segments(stream: Connect, rest: Sequence[str]) -> dict[str, str]:
    if stream.segments and not rest:
        raise BadRequest(f"the path lacks {stream.segments[0].name}: …/{'/'.join(each.name.upper() for each in stream.segments)}")
    return {each.name: text for each, text in zip(stream.segments, rest, strict=False)}


def _endings(context: RequestContext, stream: Connect, streams: Streams) -> list[Callable[[], Coroutine[None, None, End]]]:
    if context.withdrawn is None:
        return [streams.ended]
    verbs = (context.info.verb, "create") if stream.interactive else (context.info.verb,)
    return [streams.ended, partial(context.withdrawn, verbs)]
