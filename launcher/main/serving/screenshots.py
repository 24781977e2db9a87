"""Pictures of the guest's screen: each connection gets one as PNG, or a message why there is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from apiserver.apis.virt.spec.screenshot import MAX_TEXT
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.serving.wire import remove

MAX_WAITING: Final = 8
SEND_SECONDS: Final = 10.0

Take = Callable[[], Awaitable[bytes]]
"""Takes a picture, or raises RequestRefused."""


class Screenshots:
    """Serves pictures of the guest's screen, one at a time, because each takes memory of the pod."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def serve(self, path: Path) -> None:
        """Answer each connection at ``path`` with a picture of the screen, or why there is none, until cancelled."""
        remove(path)
        server = await asyncio.start_unix_server(self._answer, path)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()  # serve_forever would wait for all clients (since Python 3.12)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting += 1
        try:
            if self._waiting <= MAX_WAITING:
                async with self._turn:
                    await self._send(writer)
        finally:
            self._waiting -= 1
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        try:
            content = await self._take()
        except RequestRefused as refused:
            content = str(refused).encode()[:MAX_TEXT]
        writer.transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(SEND_SECONDS):
                writer.write(content)
                await writer.drain()
