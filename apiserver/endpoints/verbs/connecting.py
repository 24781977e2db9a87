"""Streams: a client's websocket joined to the one that a :class:`Connect` says serves the object.

Whatever is wrong is answered before the upgrade, as a Status: the object is absent, there is nothing to connect to, the other side does not
answer. After it, bytes are copied both ways until one side ends; the close code and reason are passed on. Neither side is trusted:
messages are bounded, and a side that does not read stops the other instead of filling memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson

from apiserver.apis.meta.errors import BadRequest, Details, ServiceUnavailable, StatusError, from_http, from_status
from apiserver.endpoints import responses
from apiserver.endpoints.call import Call
from apiserver.endpoints.http import upgrade
from apiserver.endpoints.http.messages import Response
from apiserver.endpoints.http.upgrade import Closed
from apiserver.endpoints.verbs.served import Served
from apiserver.registry.generic.strategy import Connect, Destination

if TYPE_CHECKING:
    from apiserver.endpoints.http.websocket import WebSocket

MAX_MESSAGE_BYTES: Final = 1 << 20
DIAL_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
_MAX_REASON_BYTES: Final = 123
_MAX_STATUS_BYTES: Final = 16 << 10
_GOING_AWAY: Final = 1001


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

    client = WebSocket(call.request, protocols=stream.subprotocols, max_bytes=MAX_MESSAGE_BYTES, ping_seconds=stream.ping_seconds)
    async with _dialled(destination, stream) as server:
        responses.add_headers(call, client)
        await client.accept()
        call.started(client.status)
        call.initialized()
        await _join(client, server, streams)
    return client


@contextlib.asynccontextmanager
async def _dialled(destination: Destination, stream: Connect) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Open the websocket of the destination.

    Raises:
        StatusError: its own answer, if it gave one; ServiceUnavailable if it cannot be reached.
    """
    timeout = aiohttp.ClientTimeout(total=None, connect=DIAL_SECONDS, sock_connect=DIAL_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                server = await session.ws_connect(
                    destination.url,
                    protocols=stream.subprotocols,
                    ssl=destination.tls,
                    server_hostname=destination.server_name,
                    max_msg_size=MAX_MESSAGE_BYTES,
                    heartbeat=stream.ping_seconds,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await _refusal(session, destination, error) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = f"the server of the stream at {destination.url.partition('/v1')[0]} cannot be reached: {error}"
            raise ServiceUnavailable(why, Details(retry_after_seconds=1)) from error
        async with server:
            yield server


async def _refusal(session: aiohttp.ClientSession, destination: Destination, error: aiohttp.WSServerHandshakeError) -> StatusError:
    """Return why the destination refused the upgrade. aiohttp drops the body of that answer, so it is asked again, without upgrade."""
    try:
        async with (
            asyncio.timeout(DIAL_SECONDS),
            session.get(destination.url, ssl=destination.tls, server_hostname=destination.server_name, allow_redirects=False) as answer,
        ):
            status = orjson.loads(await answer.content.read(_MAX_STATUS_BYTES))
    except (aiohttp.ClientError, OSError, ValueError):
        return from_http(error.status, error.message)
    if not isinstance(status, dict) or status.get("kind") != "Status" or answer.status != error.status:
        return from_http(error.status, error.message)
    return from_status(status, error.status)


async def _join(client: WebSocket, server: aiohttp.ClientWebSocketResponse, streams: Streams) -> None:
    """Copy both ways until one side ends or the server stops, then close the other side with the reason."""
    async with asyncio.TaskGroup() as tasks:
        copies = [tasks.create_task(_upstream(client, server)), tasks.create_task(_downstream(server, client))]
        stop = tasks.create_task(streams.ended())
        _, pending = await asyncio.wait({*copies, stop}, return_when=asyncio.FIRST_COMPLETED)
        ended = [each.result() for each in copies if each.done()]
        for each in pending:
            each.cancel()
    code, reason = ended[0] if ended else (_GOING_AWAY, "the server stops: dial again")
    if not 1000 <= code < 5000 or code in {1004, 1005, 1006, 1015}:
        code = _GOING_AWAY  # these may not be sent (RFC 6455, 7.4.1)
    reason = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
    async with _closing():
        await client.end(code, reason)
    async with _closing():
        await server.close(code=code, message=reason.encode())


async def _upstream(client: WebSocket, server: aiohttp.ClientWebSocketResponse) -> tuple[int, str]:
    """Copy messages until the client ends; return the close code and reason to pass on."""
    try:
        while True:
            message = await client.receive()
            await (server.send_bytes(message) if isinstance(message, bytes) else server.send_str(message))
    except Closed as closed:
        return closed.code, closed.reason
    except (ConnectionError, aiohttp.ClientError) as error:
        return _GOING_AWAY, f"the connection broke: {error}"


async def _downstream(server: aiohttp.ClientWebSocketResponse, client: WebSocket) -> tuple[int, str]:
    """Copy messages until the server of the stream ends; return the close code and reason to pass on."""
    try:
        while True:
            message = await server.receive()
            match message.type:
                case aiohttp.WSMsgType.BINARY:
                    await client.send_bytes(message.data)
                case aiohttp.WSMsgType.TEXT:
                    await client.send_text(message.data.encode())
                case aiohttp.WSMsgType.CLOSE:
                    return int(message.data or 1000), str(message.extra or "")
                case aiohttp.WSMsgType.ERROR:
                    return _GOING_AWAY, f"the connection broke: {message.data}"
                case _:
                    return server.close_code or _GOING_AWAY, ""
    except (ConnectionError, aiohttp.ClientError) as error:
        return _GOING_AWAY, f"the connection broke: {error}"


@contextlib.asynccontextmanager
async def _closing() -> AsyncIterator[None]:
    """Give a side that no longer answers a moment, then let it go."""
    with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            yield
