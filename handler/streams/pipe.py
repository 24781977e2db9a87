"""Copies between a websocket and a socket of the guest until one of them ends.

It buffers only one read each way, so a slow reader makes the other side wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import WSMsgType, web

from apiserver.apis.virt.places import streams
from handler.streams.spice import Channel
from handler.streams.usbredir import Breach

CHUNK_BYTES: Final = 64 << 10
AHEAD_BYTES: Final = 16 << 10
"""Reading from the guest pauses while twice as much is unsent."""
MAX_MESSAGE_BYTES: Final = 64 << 10
"""virt-api sends no longer messages."""
CLOSE_UNSUPPORTED: Final = 1003
CLOSE_PROTOCOL_ERROR: Final = 1002
WATCH_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 3.0
OFF: Final = "the guest is off"
END: Final = "the end of the output"
CLOSED: Final = "the guest closed the connection"
ONLY_BINARY: Final = "only binary messages are allowed"
AFTER_END: Final = "a message follows the empty one, which is the last"

HasLeft = Callable[[], bool]
"""Returns whether a stream's guest has left its pod."""


class Guard(Protocol):
    """Checks both directions of a protocol, and decides what the guest gets."""

    def from_client(self, data: bytes) -> bytes:
        """Return what the guest gets now that the client sent ``data``. Raises Breach."""
        ...

    def from_guest(self, data: bytes) -> bytes:
        """Return what the guest gets after it sent ``data``, which the client gets as it is. Raises Breach."""
        ...


@dataclass(frozen=True, slots=True)
class Close:
    """Code and reason with which to close a websocket (RFC 6455, 7.4)."""

    code: int
    reason: str


class _Ended(Exception):
    def __init__(self, close: Close | None) -> None:
        super().__init__(close)
        self.close = close


async def run(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guard: Guard | None = None
) -> Close | None:
    """Copy between websocket and guest until either ends; return how to close the websocket, None if the client did.

    ``guard`` checks the client's protocol. The caller closes both.
    """
    return await _until_ended(_to_socket(socket, reader, writer, guard), _to_guest(socket, writer, guard))


async def output(socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Close | None:
    """Copy the guest's output to the client until either ends, or the client sends data; return as :func:`run`."""
    return await _until_ended(_to_socket(socket, reader, writer, None, END), _only_read(socket))


async def connection(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, has_left: HasLeft
) -> Close | None:
    """Copy as :func:`run` for a TCP connection, at most until the guest left its pod. An empty message ends the client's direction."""
    copies = _to_socket(socket, reader, writer, None, CLOSED), _to_guest(socket, writer, None, ends_by_empty=True)
    return await _until_ended(*copies, _watch(has_left))


async def datagrams(socket: web.WebSocketResponse, port: sockets.socket, has_left: HasLeft) -> Close | None:
    """Copy as :func:`run` between messages and datagrams of a connected UDP socket, until the guest left its pod.

    Datagrams that a side does not read are lost.
    """
    return await _until_ended(_from_port(socket, port), _to_port(socket, port), _watch(has_left))


async def settle(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send and read what QEMU needs to survive the end of a SPICE channel, for at most ``SETTLE_SECONDS``; for after the client left."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS):
            _write(writer, channel.ending())
            while channel.is_fragile and (data := await reader.read(CHUNK_BYTES)):
                channel.from_guest(data)


async def _until_ended(*copies: Coroutine[None, None, None]) -> Close | None:
    closes: list[Close | None] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in copies:
                tasks.create_task(each)
    except* _Ended as group:
        closes = [error.close for error in group.exceptions if isinstance(error, _Ended)]
    return closes[0] if closes else None


async def _watch(has_left: HasLeft) -> None:
    """Wait until the guest left its pod, then raise _Ended: perhaps nothing else ends a connection to a pod that is gone."""
    while not has_left():  # noqa: ASYNC110 - the informer tells others; a look takes microseconds
        await asyncio.sleep(WATCH_SECONDS)
    raise _Ended(Close(streams.CLOSE_NORMAL, OFF))


async def _only_read(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        raise _Ended(Close(CLOSE_UNSUPPORTED, "this stream is only read"))
    raise _Ended(None)


async def _from_port(socket: web.WebSocketResponse, port: sockets.socket) -> None:
    while True:
        try:
            data = await asyncio.get_running_loop().sock_recv(port, MAX_MESSAGE_BYTES)
        except OSError:  # an ICMP error of the guest, as for a port without a program
            await asyncio.sleep(0)
            continue
        try:
            await socket.send_bytes(data)
        except ConnectionError as error:
            raise _Ended(None) from error


async def _to_port(socket: web.WebSocketResponse, port: sockets.socket) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            raise _Ended(Close(CLOSE_UNSUPPORTED, ONLY_BINARY))
        with contextlib.suppress(OSError):  # lost, as in a network
            port.send(message.data)
    raise _Ended(None)


async def _to_socket(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guard: Guard | None, end: str = OFF
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            if guard is not None:
                _write(writer, guard.from_guest(data))
            await socket.send_bytes(data)  # waits while the peer's window is full
    except Breach as error:
        raise _Ended(Close(CLOSE_PROTOCOL_ERROR, str(error))) from error
    except OSError as error:
        if isinstance(error, ConnectionResetError) and socket.closed:
            raise _Ended(None) from error
        raise _Ended(Close(streams.CLOSE_NORMAL, "lost the connection to the guest")) from error
    raise _Ended(Close(streams.CLOSE_NORMAL, end))


async def _to_guest(
    socket: web.WebSocketResponse, writer: asyncio.StreamWriter, guard: Guard | None, *, ends_by_empty: bool = False
) -> None:
    has_ended = False
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            raise _Ended(Close(CLOSE_UNSUPPORTED, ONLY_BINARY))
        if has_ended:
            raise _Ended(Close(CLOSE_PROTOCOL_ERROR, AFTER_END))
        has_ended = ends_by_empty and not message.data
        try:
            _write(writer, guard.from_client(message.data) if guard is not None else message.data)
            if has_ended:
                writer.write_eof()
            await writer.drain()
        except Breach as error:
            raise _Ended(Close(CLOSE_PROTOCOL_ERROR, str(error))) from error
        except OSError as error:
            raise _Ended(Close(streams.CLOSE_NORMAL, CLOSED if ends_by_empty else OFF)) from error
    raise _Ended(None)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.is_closing():
        raise ConnectionResetError
    writer.write(data)
