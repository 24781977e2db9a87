"""Streams: a client's websocket joined to the one that a :class:`Connect` says serves the object.

Whatever is wrong is answered before the upgrade, as a Status: the object is absent, there is nothing to connect to, the other side does not
answer. After it, bytes are copied both ways until one side ends; the close code and reason are passed on. Neither side is trusted:
messages are bounded, and a side that does not read stops the other instead of filling memory (:mod:`apiserver.endpoints.verbs.joining`).
"""

from __future__ import annotations

import asyncio

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints import responses
from apiserver.endpoints.call import Call
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.generic.strategy import Connect


class Streams:
    """The streams that are open; :meth:`end_all` closes them when the server stops."""

    def __init__(self) -> None:
        self._ending = asyncio.Event()

    def end_all(self) -> None:
        """Tell every stream to close: the client may dial again, and meets another server."""
        self._ending.set()

    async def ended(self) -> None:
        """Wait until the streams are told to close."""
        await self._ending.wait()


async def connect(served: Served, call: Call, stream: Connect, streams: Streams) -> Response:
    """Serve one stream from its upgrade to its end."""
    if "dryRun" in call.request.query:
        raise BadRequest("dryRun is not supported")
    item = await served.store.get(call.info.namespace, call.info.name)
    await served.store.connecting(call.info.namespace, call.info.name, call.info.subresource, call.caller)
    destination = await stream.locate(item.object)
    if not upgrade.is_upgrade(call.request):
        raise BadRequest("Upgrade request required")
    if not upgrade.is_well_formed(call.request):
        raise BadRequest("Upgrade request required: only websockets (RFC 6455) are served")
    from apiserver.endpoints.http.websocket import WebSocket  # here, because most servers never have one
    from apiserver.endpoints.verbs import joining

    client = WebSocket(call.request, protocols=stream.subprotocols, max_bytes=joining.MAX_MESSAGE_BYTES, ping_seconds=stream.ping_seconds)
    async with joining.dialled(destination, stream) as server:
        responses.add_headers(call, client)
        await client.accept()
        call.started(client.status)
        call.initialized()
        await joining.join(client, server, streams.ended)
    return client
