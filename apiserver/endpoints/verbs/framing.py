"""Encode a watch's frames as lines of an answer or, for browsers, messages of a websocket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints import responses
from apiserver.endpoints.context import RequestContext
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Stream
from apiserver.endpoints.negotiation import JSON

_MAX_MESSAGE: Final = 4096
"""Of a client; messages are ignored."""
_PING_SECONDS: Final = 30.0


class Lines:
    """Sends a watch's frames as lines of one HTTP answer."""

    def __init__(self, context: RequestContext) -> None:
        self.response = stream = Stream(context.request, content_type=JSON)
        self._stream = stream
        self.coding = "chunked" if stream.chunked else "plain"
        """Answers share :meth:`encode`'s results by this key."""
        self.send = stream.push
        """Sends a result of :meth:`encode`; False: await :meth:`room`."""
        responses.add_headers(context, stream)

    async def begin(self) -> None:
        """Send the response's head. Raises Gone."""
        await self._stream.prepare()

    def encode(self, frames: Sequence[bytes]) -> bytes:
        """Return the answer's next bytes: these frames, at least one, which are lines."""
        return self._stream.coded(b"".join(frames))

    async def room(self) -> None:
        """Wait until there is room for more. Raises Gone."""
        await self._stream.room()

    async def end(self) -> None:
        """End the answer."""
        await self._stream.end()


class Messages:
    """Sends a watch's frames as messages of a websocket; ignores the client's messages."""

    def __init__(self, context: RequestContext) -> None:
        """Prepare the websocket. Raises BadRequest if the upgrade violates RFC 6455."""
        request = context.request
        if not upgrade.is_well_formed(request):
            raise BadRequest("Upgrade request required: only WebSockets (RFC 6455) are supported")
        from apiserver.endpoints.http import websocket  # late: rarely used

        task = request.task
        self.response = socket = websocket.WebSocket(
            request,
            protocols=upgrade.offered(request),
            max_bytes=_MAX_MESSAGE,
            ping_seconds=_PING_SECONDS,
            on_close=task.cancel if task is not None else None,
        )
        self._socket = socket
        self.coding = "websocket"
        self.encode = websocket.texts
        self.send = socket.push
        responses.add_headers(context, socket)

    async def begin(self) -> None:
        """Upgrade the connection."""
        await self._socket.accept()

    async def room(self) -> None:
        """Wait until there is room for more. Raises Gone."""
        await self._socket.room()

    async def end(self) -> None:
        """Close the websocket, and wait for the client's close."""
        await self._socket.end()


def frames_of(context: RequestContext) -> Lines | Messages:
    """Return :class:`Messages` for a websocket, else :class:`Lines`. Raises BadRequest for an invalid handshake."""
    return Messages(context) if upgrade.is_upgrade(context.request) else Lines(context)
