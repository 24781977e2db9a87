"""A console: one serial port with any number of viewers.

1. A new viewer gets the last ``CONSOLE_REPLAY_BYTES`` of output first, then new output.
2. Input of any viewer reaches the guest in order. Without a guest it is dropped.
3. A viewer that does not read is disconnected when it has ``MAX_BACKLOG`` unread bytes. The guest and other viewers never wait.
4. When QEMU ends, viewers stay connected for the next QEMU.
5. A reader of the log gets the last ``CONSOLE_HISTORY_BYTES``, then new output as a viewer, unless it has ended its own direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places.layout import CONSOLE_HISTORY_BYTES, CONSOLE_REPLAY_BYTES
from launcher.main.serving.wire import remove

logger = logging.getLogger(__name__)

MAX_BACKLOG: Final = 256 << 10
MAX_VIEWERS: Final = 16
"""virt-handler allows 8; a new one's may connect before the old ones disconnect."""
READ_BYTES: Final = 16 << 10
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CONNECT_SECONDS: Final = 0.05
"""QEMU creates its socket during its start, and the guest's first output waits for us."""


class Replay:
    """The guest's newest output, limited in size."""

    def __init__(self, limit: int = CONSOLE_HISTORY_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()
        self._cut = False
        self.total = 0
        """Bytes of all output, also of what is not kept."""

    def add(self, data: bytes) -> None:
        """Append the guest's output."""
        self._data += data
        self.total += len(data)
        if len(self._data) > self._limit + self._limit // 4:  # in large steps, for constant cost per byte
            del self._data[: len(self._data) - self._limit]
            self._cut = True

    def content(self, limit: int = CONSOLE_HISTORY_BYTES) -> bytes:
        """Return the newest output, at most ``limit`` bytes, from a line's start if older output is missing."""
        data, cut, limit = self._data, self._cut, min(limit, self._limit)
        if len(data) > limit:
            data, cut = data[len(data) - limit :], True
        return bytes(data[data.find(b"\n") + 1 :] if cut else data)

    def since(self, position: int) -> bytes:
        """Return the output after ``position``, an earlier ``total``, as far as it is kept."""
        return bytes(self._data[-(self.total - position) :]) if position < self.total else b""


class Console:
    """Connects the serial socket with the viewers."""

    def __init__(self, serial: Path, changed: Callable[[], None], max_viewers: int = MAX_VIEWERS) -> None:
        """``changed`` is called after each change of the number of viewers."""
        self._max_viewers = max_viewers
        self._serial = serial
        self._changed = changed
        self._replay = Replay()
        self._viewers: set[asyncio.StreamWriter] = set()
        self._copy: Callable[[bytes], None] | None = None
        self._readers = 0
        """Readers of the log that still get the history."""
        self._guest: asyncio.StreamWriter | None = None
        self._wanted = asyncio.Event()
        self.connected = asyncio.Event()

    @property
    def viewers(self) -> int:
        """Return the number of connected viewers."""
        return len(self._viewers)

    def copy_to(self, copy: Callable[[bytes], None]) -> None:
        """Call ``copy``, which must not wait, with all further output of the guest."""
        self._copy = copy

    def attach(self) -> None:
        """Have :meth:`run` connect to the serial port as soon as it exists."""
        self._wanted.set()

    def detach(self) -> None:
        """Stop trying to connect; an open connection remains until QEMU ends it."""
        self._wanted.clear()

    async def run(self) -> None:
        """Connect to the serial port when :meth:`attach` requests it, and forward the guest's output, until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                reader, writer = await asyncio.open_unix_connection(self._serial)
            except OSError:
                await asyncio.sleep(CONNECT_SECONDS)
                continue
            self._guest = writer
            self.connected.set()
            try:
                with contextlib.suppress(OSError):
                    while data := await reader.read(READ_BYTES):
                        self._show(data)
            finally:
                self.connected.clear()
                self._guest = None
                writer.close()
            await asyncio.sleep(CONNECT_SECONDS)

    async def serve(self, path: Path) -> None:
        """Accept viewers at ``path`` until cancelled."""
        await self._serve(path, self._view)

    async def serve_log(self, path: Path) -> None:
        """Accept readers of the log at ``path`` until cancelled."""
        await self._serve(path, self._log)

    async def _serve(self, path: Path, answer: Answer) -> None:
        remove(path)
        server = await asyncio.start_unix_server(answer, path)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()  # serve_forever would wait for all viewers (since Python 3.12)
            for viewer in list(self._viewers):
                viewer.close()

    async def _view(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._viewers) < self._max_viewers:
                with self._present(writer), contextlib.suppress(OSError):
                    writer.write(self._replay.content(CONSOLE_REPLAY_BYTES))
                    while data := await reader.read(READ_BYTES):
                        await self._type(data)
        finally:
            writer.close()

    async def _log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._viewers) + self._readers < self._max_viewers:
                with contextlib.suppress(OSError):
                    await self._send_history(writer)
                    with self._present(writer):
                        while await reader.read(READ_BYTES):
                            pass  # a reader of the log types nothing
        finally:
            writer.close()

    async def _send_history(self, writer: asyncio.StreamWriter) -> None:
        self._readers += 1
        try:
            position, content = self._replay.total, self._replay.content()
            while content:
                writer.write(content)
                await writer.drain()
                position, content = self._replay.total, self._replay.since(position)
        finally:
            self._readers -= 1

    @contextlib.contextmanager
    def _present(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._viewers.add(writer)
        self._changed()
        try:
            yield
        finally:
            self._viewers.discard(writer)
            self._changed()

    async def _type(self, data: bytes) -> None:
        guest = self._guest
        if guest is not None:
            with contextlib.suppress(OSError):  # the next input goes to QEMU's successor
                guest.write(data)
                await guest.drain()

    def _show(self, data: bytes) -> None:
        self._replay.add(data)
        if self._copy is not None:
            self._copy(data)
        for viewer in list(self._viewers):
            if viewer.transport.get_write_buffer_size() > MAX_BACKLOG:
                logger.info("disconnected a client that does not read the console")
                self._viewers.discard(viewer)
                viewer.transport.abort()
                self._changed()
            else:
                viewer.write(data)
