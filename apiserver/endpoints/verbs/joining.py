"""Join a client's websocket with that of the stream's server. Import it late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Final, cast

import orjson
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode
from websockets.http11 import Response
from websockets.typing import Subprotocol

from apiserver.apis.meta.errors import Details, ServiceUnavailable, StatusError, UnknownStatus, from_http, from_status, of_untrusted
from apiserver.apis.meta.lines import one_line
from apiserver.endpoints.http.upgrade import GOING_AWAY, Closed, End
from apiserver.endpoints.http.websocket import WebSocket
from apiserver.endpoints.verbs.bounded import Bounded
from apiserver.registry.generic.strategy import Connect, Destination

MAX_MESSAGE_BYTES: Final = 64 << 10
"""Longer ones end the stream with 1009; senders may cut streams anywhere."""
DIAL_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
WINDOW_BYTES: Final = 128 << 10
_MESSAGE_COST: Final = 256
"""Of a stored message, in bytes."""
_FRAMES: Final = (1, 0)
"""Waiting for the client: reading pauses above the first number, and resumes at the second."""
_MAX_REASON_BYTES: Final = 123
_MAX_TEXT_BYTES: Final = 512
"""Of a failed dial."""
Ending = Callable[[], Coroutine[None, None, End]]
"""Waits until the server must end a stream."""
Continued = Callable[[], Awaitable[End | None]]
"""Returns the end of a stream that no server continues, or None."""


class _Dial(websocket):
    """Follows no redirects: servers must not choose where a stream is served."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@contextlib.asynccontextmanager
async def dialled(destination: Destination, stream: Connect, holder: str = "") -> AsyncIterator[Bounded]:
    """Yield a websocket to the destination; it closes after the block. ``holder``: the user's token, sent in ``stream.holder_header``.

    Raises the server's StatusError, or ServiceUnavailable.
    """
    dial = _Dial(
        "ws" + destination.url.removeprefix("http"),
        subprotocols=[Subprotocol(each) for each in stream.subprotocols] or None,
        additional_headers={stream.holder_header: holder} if stream.holder_header else None,
        ssl=destination.tls,
        server_hostname=destination.server_name,
        compression=None,
        proxy=None,  # not for the cluster
        user_agent_header=None,
        open_timeout=DIAL_SECONDS,
        close_timeout=CLOSE_SECONDS,
        ping_interval=stream.ping_seconds or None,
        ping_timeout=stream.ping_seconds / 2 or None,
        max_size=MAX_MESSAGE_BYTES,
        max_queue=_FRAMES,
        create_connection=Bounded,
    )
    try:
        server = cast("Bounded", await dial)
    except InvalidStatus as error:
        raise _refusal(error.response) from error
    except (InvalidHandshake, OSError, TimeoutError) as error:
        what = one_line(str(error), _MAX_TEXT_BYTES)  # may contain headers
        raise ServiceUnavailable(f"{destination} cannot be reached: {what}", Details(retry_after_seconds=1)) from error
    async with server:
        with _trusted(server, destination):
            yield server


@contextlib.contextmanager
def _trusted(server: Bounded, destination: Destination) -> Iterator[None]:
    """Abort the connection once the server's certificate loses its trust; raise ServiceUnavailable if it has none."""
    trust, certificate = destination.trust, _certificate(server)
    if trust is None:
        yield
        return
    if why := trust.refusal(certificate):
        raise ServiceUnavailable(f"{destination} is not trusted: {why}")

    def check() -> None:
        if trust.refusal(certificate):
            server.transport.abort()

    unsubscribe = trust.subscribe(check)
    try:
        yield
    finally:
        unsubscribe()


def _certificate(server: Bounded) -> Mapping[str, object]:
    tls = server.transport.get_extra_info("ssl_object")
    return tls.getpeercert() or {} if tls is not None else {}


def _refusal(answer: Response) -> StatusError:
    try:
        status = orjson.loads(answer.body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        error = from_status(status, answer.status_code)
    else:
        error = from_http(answer.status_code, answer.body[:_MAX_TEXT_BYTES].decode(errors="replace") or answer.reason_phrase)
    error = of_untrusted(error)
    return error if not isinstance(error, UnknownStatus) else ServiceUnavailable(error.message, error.details)


async def join(client: WebSocket, server: Bounded, endings: Sequence[Ending], final: Continued) -> None:
    """Pass frames both ways until a side closes or one of ``endings`` returns an End; close both with the code and reason of that.

    If the server left, ``final`` decides whether clients may connect again.
    """
    async with asyncio.TaskGroup() as tasks:
        copies = [tasks.create_task(_upstream(client, server)), tasks.create_task(_left(server, client, final))]
        orders = [tasks.create_task(each()) for each in endings]
        _, pending = await asyncio.wait({*copies, *orders}, return_when=asyncio.FIRST_COMPLETED)
        ended = [each.result() for each in (*orders, *copies) if each.done()]
        for each in pending:
            each.cancel()
    code, reason = ended[0]
    if not 1000 <= code < 5000 or code in {1004, 1005, 1006, 1015}:
        code = GOING_AWAY  # RFC 6455, 7.4.1 forbids sending these
    reason = one_line(reason, _MAX_REASON_BYTES).encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
    async with _closing():
        await client.end(code, reason)
    async with _closing():
        await server.close(code, reason)


async def _upstream(client: WebSocket, server: Bounded) -> End:
    """Pass the client's frames to the server; return the End when the client closes.

    At most two windows await their pongs (``docs/decisions/streams.md``).
    """
    sent = 0
    pong: Awaitable[float] | None = None
    try:
        while True:
            frames = await client.receive_frames()
            sent += len(frames) + _MESSAGE_COST
            if sent < WINDOW_BYTES:
                await server.send_frames(frames)
                continue
            sent, awaited = 0, pong
            pong = await server.send_with_ping(frames)
            if awaited is not None:
                await awaited
    except Closed as closed:
        return End(closed.code, closed.reason)
    except (ConnectionError, ConnectionClosed) as error:
        return End(GOING_AWAY, f"the connection broke: {error}")


async def _left(server: Bounded, client: WebSocket, final: Continued) -> End:
    end = await _downstream(server, client)
    return (await final() if end.code == GOING_AWAY else None) or end


async def _downstream(server: Bounded, client: WebSocket) -> End:
    try:
        while True:
            if not client.push(await server.recv(decode=False)):
                await client.room()
    except ConnectionClosed as closed:
        if closed.rcvd is None or not closed.rcvd_then_sent:
            return End(GOING_AWAY, f"the connection broke: {closed}")
        return End(1000 if closed.rcvd.code == CloseCode.NO_STATUS_RCVD else closed.rcvd.code, closed.rcvd.reason)
    except ConnectionError as error:
        return End(GOING_AWAY, f"the connection broke: {error}")


@contextlib.asynccontextmanager
async def _closing() -> AsyncIterator[None]:
    with contextlib.suppress(ConnectionError, ConnectionClosed, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            yield
