"""The console: one serial port, any number of people in front of it.

1. Whoever connects gets the last ``CONSOLE_REPLAY_BYTES`` of output first, then everything as it comes.
2. What any viewer types reaches the guest in order; while there is no guest it is dropped.
3. A viewer that does not read is cut off when ``MAX_BACKLOG`` bytes wait for it; the guest and the other viewers never wait.
4. QEMU's end may come and go: viewers stay connected and go on with the next one.

Every byte from the guest and the viewers is opaque here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places.layout import CONSOLE_REPLAY_BYTES
from launcher.main.serving.wire import remove

logger = logging.getLogger(__name__)

MAX_BACKLOG: Final = 256 << 10
MAX_VIEWERS: Final = 16
"""virt-handler lets 8 in; its successor's may come while its own are still there."""
READ_BYTES: Final = 16 << 10
CONNECT_SECONDS: Final = 0.05
"""QEMU creates its socket while it starts; the guest's first line waits for us."""


class Replay:
    """The newest output, bounded."""

    def __init__(self, limit: int = CONSOLE_REPLAY_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()
        self._cut = False

    def add(self, data: bytes) -> None:
        """Append output."""
        self._data += data
        if len(self._data) > 2 * self._limit:  # in large steps, so that a byte costs a constant
            del self._data[: len(self._data) - self._limit]
            self._cut = True

    def content(self) -> bytes:
        """Return the newest output, from the start of a line when older output is missing."""
        data, cut = self._data, self._cut
        if len(data) > self._limit:
            data, cut = data[len(data) - self._limit :], True
        return bytes(data[data.find(b"\n") + 1 :] if cut else data)


class Console:
    """The hub between the serial socket and the viewers."""

    def __init__(self, serial: Path, changed: Callable[[], None], max_viewers: int = MAX_VIEWERS) -> None:
        """Do nothing yet; ``changed`` is called whenever the number of viewers changed."""
        self._max_viewers = max_viewers
        self._serial = serial
        self._changed = changed
        self._replay = Replay()
        self._viewers: set[asyncio.StreamWriter] = set()
        self._guest: asyncio.StreamWriter | None = None
        self._wanted = asyncio.Event()
        self.connected = asyncio.Event()

    @property
    def viewers(self) -> int:
        """Return how many are connected."""
        return len(self._viewers)

    def attach(self) -> None:
        """Connect to the serial port as soon as it is there."""
        self._wanted.set()

    def detach(self) -> None:
        """Stop trying to connect; an open connection lasts until QEMU ends it."""
        self._wanted.clear()

    async def run(self) -> None:
        """Carry the guest's output until cancelled."""
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
        remove(path)
        server = await asyncio.start_unix_server(self._view, path)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()  # serve_forever would wait for every viewer to leave (since Python 3.12)
            for viewer in list(self._viewers):
                viewer.close()

    async def _view(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._viewers) < self._max_viewers:
                with self._present(writer), contextlib.suppress(OSError):
                    writer.write(self._replay.content())
                    while data := await reader.read(READ_BYTES):
                        await self._type(data)
        finally:
            writer.close()

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
            with contextlib.suppress(OSError):  # QEMU went; its successor gets what is typed next
                guest.write(data)
                await guest.drain()

    def _show(self, data: bytes) -> None:
        self._replay.add(data)
        for viewer in list(self._viewers):
            if viewer.transport.get_write_buffer_size() > MAX_BACKLOG:
                logger.info("a viewer that does not read the console was cut off")
                self._viewers.discard(viewer)
                viewer.transport.abort()
                self._changed()
            else:
                viewer.write(data)
