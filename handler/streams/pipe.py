"""Copies between a websocket and a unix socket until one of them ends.

It buffers only one read each way: a slow browser makes the guest's socket wait, and a guest that does not read makes the websocket wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import WSMsgType, web

from apiserver.apis.virt.places import streams
from handler.streams.usbredir import Breach, Packets

CHUNK_BYTES: Final = 64 << 10
AHEAD_BYTES: Final = 16 << 10
"""Reading from the guest pauses while twice as much is unsent."""
MAX_MESSAGE_BYTES: Final = 64 << 10
"""virt-api sends no longer messages."""
CLOSE_UNSUPPORTED: Final = 1003
CLOSE_PROTOCOL_ERROR: Final = 1002


@dataclass(frozen=True, slots=True)
class Close:
    """Code and reason to close the websocket with (RFC 6455, 7.4); None if the peer closed it."""

    code: int
    reason: str


class _Ended(Exception):
    def __init__(self, close: Close | None) -> None:
        super().__init__(close)
        self.close = close


async def run(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, packets: Packets | None = None
) -> Close | None:
    """Copy until either side ends and return how to close the websocket; ``packets`` checks the usbredir protocol."""
    closes: list[Close | None] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_to_socket(socket, reader, writer, packets))
            tasks.create_task(_to_guest(socket, writer, packets))
    except* _Ended as group:
        closes = [error.close for error in group.exceptions if isinstance(error, _Ended)]
    return closes[0] if closes else None


async def _to_socket(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, packets: Packets | None
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            if packets is not None:
                writer.write(packets.from_guest(data))
            await socket.send_bytes(data)  # waits while the peer's window is full
    except Breach as error:
        raise _Ended(Close(CLOSE_PROTOCOL_ERROR, str(error))) from error
    except OSError as error:
        if isinstance(error, ConnectionResetError) and socket.closed:
            raise _Ended(None) from error
        raise _Ended(Close(streams.CLOSE_NORMAL, "the connection to the guest broke")) from error
    raise _Ended(Close(streams.CLOSE_NORMAL, "the guest is off"))


async def _to_guest(socket: web.WebSocketResponse, writer: asyncio.StreamWriter, packets: Packets | None) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            raise _Ended(Close(CLOSE_UNSUPPORTED, "only binary messages are carried"))
        try:
            writer.write(packets.from_client(message.data) if packets is not None else message.data)
            await writer.drain()
        except Breach as error:
            raise _Ended(Close(CLOSE_PROTOCOL_ERROR, str(error))) from error
        except OSError as error:
            raise _Ended(Close(streams.CLOSE_NORMAL, "the guest is off")) from error
    raise _Ended(None)
