"""The server of ``launcher.protocol`` on ``layout.LAUNCHER_SOCKET``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import codec, messages, reading

logger = logging.getLogger(__name__)

VERSION: Final = "0.1.0"
MAX_CONNECTIONS: Final = 8
"""One virt-handler, its successor during an update, and debugging."""
MAX_PENDING: Final = 32
SEND_SECONDS: Final = 10.0
READ_BYTES: Final = 64 << 10


def remove(path: Path) -> None:
    """Remove a socket of an earlier process, because binding would fail."""
    path.unlink(missing_ok=True)


HandleAction = Callable[[messages.Action], Awaitable[None]]
"""Carries out a request, or raises ``RequestRefused``. It completes even if the client disconnects."""


HandleRead = Callable[[], Awaitable[str]]
"""Returns the text of a ``Read``, or raises ``RequestRefused``."""


class Server:
    """Serves status, requests and texts to ``MAX_CONNECTIONS`` clients; a further one replaces the oldest."""

    def __init__(
        self,
        version: str,
        status: Callable[[], messages.Status],
        handle: HandleAction,
        reads: Mapping[str, HandleRead] | None = None,
        *,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        self._send_seconds = send_seconds
        self._version = version
        self._status = status
        self._handle = handle
        self._reads = reads or {}
        self._connections: dict[_Connection, None] = {}
        self._deserted = asyncio.Event()
        self._deserted.set()

    def status_changed(self) -> None:
        """Have the newest status sent to each client."""
        for connection in self._connections:
            connection.wake()

    async def flush(self) -> None:
        """Wait until each client was sent the newest status; for one that disconnects, forever."""
        self.status_changed()
        for connection in list(self._connections):
            connection.idle.clear()
            await connection.idle.wait()

    async def deserted(self) -> None:
        """Wait until no client is connected."""
        await self._deserted.wait()

    async def run(self, path: Path) -> None:
        """Serve clients at ``path`` until cancelled."""
        remove(path)
        async with asyncio.TaskGroup() as requests:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(requests, reader, writer)

            server = await asyncio.start_unix_server(serve, path)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()  # serve_forever would wait for all clients (since Python 3.12)

    async def _serve(self, requests: asyncio.TaskGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).abort()  # the oldest, so dead connections block no new one
        connection = _Connection(writer, self._status, self._send_seconds)
        self._connections[connection] = None
        self._deserted.clear()
        hello = messages.Hello(
            messages.PROTOCOL, self._version, self._status(), tuple(self._reads), messages.LATER_ACTIONS, messages.OPERATIONS
        )
        connection.send(hello)
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(connection.run())
                await self._receive(requests, reader, connection)
                sending.cancel()
        except* reading.ProtocolError as errors:
            logger.warning("a client violated the protocol", extra={"error": str(errors.exceptions[0])})
        except* (OSError, TimeoutError):
            logger.debug("a client disconnected")
        finally:
            self._connections.pop(connection, None)
            if not self._connections:
                self._deserted.set()
            writer.close()

    async def _receive(self, requests: asyncio.TaskGroup, reader: asyncio.StreamReader, connection: _Connection) -> None:
        receiver = codec.requests()
        while data := await reader.read(READ_BYTES):
            for call in receiver.receive(data):
                await connection.admit()
                requests.create_task(self._answer(call, connection))
        receiver.close()

    async def _answer(self, call: messages.Call, connection: _Connection) -> None:
        try:
            answer = await self._carry_out(call)
        except RequestRefused as refused:
            told = (refused.disks, refused.full, refused.unresolved)
            connection.answer(messages.Refusal(call.id, refused.reason, str(refused), self._status(), *told))
        except Exception as error:  # request boundary: an error of ours must not end the process that holds the guest
            logger.exception("a request failed unexpectedly", extra={"request": type(call.request).__name__})
            connection.answer(
                messages.Refusal(call.id, "Failed", f"{type(error).__name__} in virt-launcher; its log has the details", self._status())
            )
        else:
            connection.answer(answer)

    async def _carry_out(self, call: messages.Call) -> messages.Reply | messages.Content:
        if not isinstance(call.request, messages.Read):
            await self._handle(call.request)
            return messages.Reply(call.id, self._status())
        what = call.request.what
        if (tell := self._reads.get(what)) is None:
            raise RequestRefused("Invalid", f"this virt-launcher does not provide {what!r}")
        text = await tell()
        if not codec.fits(text):
            raise RequestRefused("Failed", f"{what} would take more than {codec.MAX_CONTENT_BYTES} bytes")
        return messages.Content(call.id, text)


class _Connection:
    """The queue for one client: answers in order, and at most one status."""

    def __init__(self, writer: asyncio.StreamWriter, status: Callable[[], messages.Status], send_seconds: float) -> None:
        self._writer = writer
        self._send_seconds = send_seconds
        self._status = status
        self._outgoing: list[messages.FromLauncher] = []
        self._sent_revision = -1
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        self._pending = asyncio.Semaphore(MAX_PENDING)

    def abort(self) -> None:
        self._writer.transport.abort()

    def wake(self) -> None:
        self._wake.set()

    def send(self, message: messages.FromLauncher) -> None:
        self._outgoing.append(message)
        self._wake.set()

    async def admit(self) -> None:
        """Wait until fewer than ``MAX_PENDING`` requests are unanswered, which slows a flooding client."""
        await self._pending.acquire()

    def answer(self, message: messages.FromLauncher) -> None:
        self._pending.release()
        self.send(message)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.idle.clear()
            outgoing, self._outgoing = self._outgoing, []
            revisions = [message.status.revision for message in outgoing if not isinstance(message, messages.Content)]
            self._sent_revision = max([self._sent_revision, *revisions])
            status = self._status()
            if status.revision > self._sent_revision:
                outgoing.append(messages.StatusChanged(status))
                self._sent_revision = status.revision
            for message in outgoing:
                self._writer.write(codec.encode(message))
            async with asyncio.timeout(self._send_seconds):
                await self._writer.drain()
            if not self._outgoing and not self._wake.is_set():
                self.idle.set()
